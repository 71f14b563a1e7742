"""Plain programs that take a name with a colon for a file on another machine: `tar -f host:file`, `rsync a host:b`.

They start a remote shell to get there. Archivers take the one they were built with (rsh, or what stands in for it), and
run the rest through it: that is code. Copiers take ssh, which must then be found and allowed like any other program.

Rules: where it cannot be told whether a word is the name of an archive, it counts as one; what would make such a name
plain counts only where it cannot be another option's value: `--force-local` as the very first word. `./a:b` is a file
here for all of them. An option that names another remote shell does not take the default one's place, because it may
be another option's value itself.

Not here: those options (guard/escapes); which host that is, and whether it may be reached (egress/preflight, .rules).
"""

from __future__ import annotations

from collections.abc import Iterator

from palyra.guard.escapes import TAR, Finding, Words
from palyra.guard.options import find_options
from palyra.late import late
from palyra.values import dataclass

_ELSEWHERE = late(r"[^/:][^/:]*:")
"""As the archivers see it: a colon that is not the first letter, and no slash before it."""
_COPIED = late(r"(?:[^/:\[]*@)?(?:\[[^\]/]+\]|[^/:\[]+):(?!:)")
"""host:path, user@host:path, [::1]:path; two colons are a daemon of rsync's own, reached without a shell."""
_SCP_URL = late(r"(?i:scp|sftp|ssh)://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archiver:
    letters: str
    """Options whose value is the archive."""
    names: tuple[str, ...] = ("file",)
    values: str = ""
    """Options that surely take a value, as guard/escapes has them."""
    old_style: bool = False
    """The first word is a bundle without a dash: `tar cf host:a x`, `dump 0f host:a /`."""


_TAR = Archiver(letters="f", values=TAR.values, old_style=True)
_DUMP = Archiver(letters="f", old_style=True)
ARCHIVERS: dict[str, Archiver] = {
    **dict.fromkeys(("tar", "gtar", "star"), _TAR),
    **dict.fromkeys(("dump", "restore", "rdump", "rrestore", "xfsdump", "xfsrestore"), _DUMP),
    "cpio": Archiver(letters="FIO"),
    "mt": Archiver(letters="ft"),
}
COPIERS = frozenset({"scp", "rsync"})
ALWAYS = frozenset({"sftp", "sshfs"})


def read_remote(name: str, args: Words) -> Iterator[Finding]:
    if name in ARCHIVERS:
        yield from _read_archives(name, ARCHIVERS[name], args)
    elif (name in COPIERS and any(_is_copied(name, word) for word in args)) or (name in ALWAYS and args):
        yield Finding(argv=("ssh",))


def _read_archives(name: str, archiver: Archiver, args: Words) -> Iterator[Finding]:
    if args and args[0] == "--force-local":
        return
    for archive in _archives(name, archiver, args):
        if _ELSEWHERE.match(archive):
            why = f"{name} takes {archive[:40]} for a file on another machine and starts a remote shell"
            yield Finding(code=True, why=f"{why} (./{archive[:40]} is one here)")
            return


def _archives(name: str, archiver: Archiver, args: Words) -> Iterator[str]:
    if archiver.old_style and args and args[0][:1] not in ("-", ""):
        yield from _of_bundle(archiver, args)
    for option in find_options(args, letters=archiver.letters, names=archiver.names, values=archiver.values):
        yield option.value or ""
    if name == "star":
        yield from (word.lstrip("-")[2:] for word in args if word.lstrip("-")[:2] == "f=")


def _of_bundle(archiver: Archiver, args: Words) -> Iterator[str]:
    """Values stand behind the bundle, in the order of their letters; without a table of those it may be any word."""
    if not archiver.values:
        yield from args[1:] if any(letter in args[0] for letter in archiver.letters) else ()
        return
    values = iter(args[1:])
    for letter in args[0]:
        value = next(values, "") if letter in archiver.values else ""
        if letter in archiver.letters:
            yield value


def _is_copied(name: str, word: str) -> bool:
    if name == "rsync" and word[:8].lower() == "rsync://":
        return False
    return bool(_SCP_URL.match(word)) or (word[:1] not in ("-", "/", ".") and bool(_COPIED.match(word)))
