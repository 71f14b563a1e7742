"""Which pieces of the arguments can be paths, and which of them leave the workspace.

Rules: a piece counts when it is absolute, holds a separator, starts with `.` or `~`, is the value of `--x=…`,
`-Xvalue`, `@file`, `if=…`, a file: URL or an entry of a list; a bare word counts only when it names something that
exists. Only known `scheme://` forms are URLs, and even those count when a file of that name exists:
`x:y/../../etc/passwd` is a path. Arguments are never rewritten. Paths are compared by component, after guard/look
followed their links.

This is advice for clear errors, given early; the sandbox is the wall, also for a link swapped a moment later.
Not here: the disk (guard/look), words that are text (guard/texts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from palyra.errors import Reason, Rejected
from palyra.guard.programs import normalise
from palyra.guard.texts import code_arguments, text_arguments
from palyra.late import late
from palyra.model.sights import PathCandidate, Sights

MAX_CANDIDATES = 512
"""More would let a call spend its time on looking things up."""

VISIBLE_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Read-only in every tier C sandbox and the same for all: naming them gives nothing away."""
MACHINE = ("/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime",
           "/proc/version")  # fmt: skip
"""The kernel's own numbers, in every sandbox of either tier; nothing of a process's."""
EACH_CALLS_OWN = ("/tmp", "/var/tmp")  # noqa: S108
"""Of tier C: empty when a call begins, gone when it ends."""
_NEVER_SHOWN = frozenset(("/", "/etc", "/home", "/var", *EACH_CALLS_OWN))
_KERNELS = ("/dev", "/proc", "/sys")
DEVICES = frozenset(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "stdin", "stdout", "stderr")
)
_OWN_DESCRIPTOR = late(r"/dev/fd(?:/\d+)?")

_URL = late(
    r"\b(?:https?|wss?|ftps?|sftp|scp|ssh|git|git\+ssh|git\+https?|ssh\+git|svn|svn\+ssh|hg|rsync|s3|gs|redis|rediss|"
    r"postgres|postgresql|mysql|mariadb|mongodb|mongodb\+srv|amqps?|ldaps?|nats|tcp|udp|docker|oci)://[^\s\"'<>,;]*",
    re.IGNORECASE,
)
_FILE_URL = late(r"file:(?://[^/]*)?(/[^\s\"'<>]*)", re.IGNORECASE)
_REMOTE = late(r"(?:[\w.+-]+@)(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):")
_REMOTE_HOST = late(r"(?:[\w.+-]+@)?(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):")
_REMOTE_PROGRAMS = frozenset({"scp", "rsync", "sftp", "ssh", "git"})
_MID_BUNDLE = late(r"(?<=[^/.~])(?:/|\.\.(?:/|$)|~)")
_ROOT_NAMES = frozenset(
    """
    bin boot dev etc home lib lib32 lib64 libx32 lost+found media mnt nix opt proc root run sbin snap srv sys tmp usr
    var Applications Users Volumes
    """.split()
)
"""What stands at the root of common systems."""
_LIST = late(r"[:,;=]")


def candidates(args: Sequence[str], *, program: str = "", code_too: bool = False) -> tuple[PathCandidate, ...]:
    """Every piece of the arguments that can be a path. `program` lets patterns, scripts and messages be left out;
    `code_too`: but not the code of `bash -c`, where no sandbox will hold what it does."""
    texts, files = text_arguments(program, args) if program else (frozenset[int](), ())
    texts -= code_arguments(program, args) if code_too else frozenset()
    remote = _REMOTE_HOST if normalise(program) in _REMOTE_PROGRAMS else _REMOTE
    found: dict[tuple[int, str], bool] = {(at, name): False for at, name in files if name}
    operands_only = False
    for at, word in enumerate(args):
        if word == "--":
            operands_only = True
        if at in texts or word in ("", "-", "--"):
            continue
        for text, must_exist in _read_word(word, remote, operands_only=operands_only):
            found[at, text] = found.get((at, text), True) and must_exist
        if len(found) > MAX_CANDIDATES:
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                f"The arguments name more than {MAX_CANDIDATES} paths.",
                "Name a folder, or split the call.",
            )
    return tuple(
        PathCandidate(argument=at, text=text, must_exist=must_exist) for (at, text), must_exist in found.items()
    )


def _read_word(word: str, remote: re.Pattern[str], *, operands_only: bool) -> Iterator[tuple[str, bool]]:
    """(text, whether it is a path only if it exists)."""
    if word[0] != "-" or operands_only:
        yield from _read_value(word, remote)
    if word[0] != "-":
        return  # else the `--` before it may have been an option's value: `grep -e -- -f/etc/shadow`
    if ".." in word:
        yield word, True  # a file whose name looks like an option: `cat --x=/../../etc/passwd` behind a `--`
    if word.startswith("--"):
        yield from _read_value(word.partition("=")[2], remote)
        return
    value = word[2:]
    yield from _read_value(value, remote)
    # In a bundle the value begins anywhere: -xf../out.tar, -vC/etc. But -Isrc/include names nothing at the root, so an
    # absolute path in the middle counts by its first name. Never by whether it exists: a refusal would then tell.
    for found in _MID_BUNDLE.finditer(value):
        piece = value[found.start() :]
        if piece[0] != "/" or _first_name(piece) in _ROOT_NAMES:
            yield piece, False


def _first_name(path: str) -> str:
    return next((part for part in path.split("/") if part not in ("", ".", "..")), "")


def _read_value(text: str, remote: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
    if not text or text == "-":
        return
    for found in _FILE_URL.finditer(text):
        yield from ((name, False) for name in _decode(found[1]))
    if _URL.match(text) or (remote.match(text) and not text.startswith((".", "~"))):
        yield text, True
        return
    yield text, not _looks_like_path(text)
    text = _URL.sub("", text)
    if text[:1] in ("@", "<") and text[1:]:
        yield text[1:], not _looks_like_path(text[1:])
    value = text.partition("=")[2].lstrip("@<")
    if value:
        yield value, not _looks_like_path(value)
    if _LIST.search(text):
        parts = (part.lstrip("@<") for part in _LIST.split(text))
        yield from ((part, False) for part in parts if _looks_like_path(part))


def _looks_like_path(text: str) -> bool:
    return "/" in text or text[:1] in (".", "~")


def _decode(text: str) -> tuple[str, ...]:
    """A file URL's path as a program may read it: percent-decoded, with and without what follows ? or #."""
    raw = re.sub(rb"%([0-9a-fA-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode("utf-8", "replace"))
    path = raw.decode("utf-8", "surrogateescape")
    return tuple(dict.fromkeys((path, re.split("[?#]", path, maxsplit=1)[0])))


def lexical(path: str, base: str = "/") -> str:
    """The path without `.`, `..` and doubled separators, by its text alone; a relative one stands on `base`."""
    parts: list[str] = []
    for part in (path if path.startswith("/") else f"{base}/{path}").split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def inside(root: str, path: str) -> bool:
    """Whether `path` is `root` or below it, by component. Both absolute; what still holds `..` is nowhere."""
    if not root.startswith("/") or not path.startswith("/") or ".." in path.split("/"):
        return False
    trunk = root.rstrip("/")
    return path == trunk or path.startswith(trunk + "/") or trunk == ""


def is_device(path: str) -> bool:
    """A device or descriptor of the program itself: harmless to name, and not to be followed as a link."""
    return path in DEVICES or _OWN_DESCRIPTOR.fullmatch(path) is not None


def judge_paths(
    sights: Sights, read_roots: Sequence[str], *, visible: Sequence[str] = VISIBLE_SYSTEM
) -> tuple[tuple[int, str, str], ...]:
    """(argument, text, where it really ends) of every path outside the workspace and what may be read beside it."""
    roots = (sights.workspace.path, *read_roots, *visible)
    return tuple(
        (sight.argument, sight.text, sight.resolved)
        for sight in sights.paths
        if not is_device(sight.resolved) and not any(inside(root, sight.resolved) for root in roots if root)
    )


def can_be_granted(path: str) -> bool:
    """Whether a sandbox can show it at all (sandbox/view): what is private to each, or the kernel's, it cannot."""
    return path not in _NEVER_SHOWN and not any(inside(tree, path) for tree in _KERNELS)


_SYSTEM_TREES = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/boot", "/dev", "/proc", "/sys"),
    *("/System", "/Library", "/Applications", "/private/etc"),
)
_WORK_TREES = ("/usr/src", "/usr/local/src", "/dev/shm")  # noqa: S108  # below these, projects are at home
_SYSTEM_FOLDERS = frozenset(
    """
    /home /root /var /var/lib /var/run /var/log /var/cache /var/spool /var/tmp /var/db /run /run/user /tmp /opt /srv
    /usr/src /usr/local/src /dev/shm /Users /Volumes /private /private/var /private/tmp
    """.split()
)


@lru_cache(maxsize=256)
def workspace_problem(path: str, *, home: str, state_home: str) -> str:
    """Why this folder (a real path) must not become the one writable place of a sandbox; empty when it may."""
    if path == "/":
        return "The workspace is the root of the file system."
    if path == home or lexical("..", path) in ("/home", "/Users"):
        return "The workspace is a home folder itself."
    if home and inside(path, home):
        return "The workspace contains the home folder."
    if state_home and inside(path, state_home):
        return "The workspace contains Palyra's own state."
    if state_home and inside(state_home, path):
        return "The workspace lies inside Palyra's own state."
    below = any(inside(tree, path) for tree in _SYSTEM_TREES)
    if path in _SYSTEM_FOLDERS or (below and not any(inside(tree, path) for tree in _WORK_TREES)):
        return f"The workspace {path[:200]} is a system folder."
    return ""
