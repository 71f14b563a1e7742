"""Plain programs with an option that makes them run something: `tar -I`, `sort --compress-program`, `rg --pre`.

A table of such options, and `read_escapes`, which finds them wherever they stand, in bundles and shortened too.
A value that is a command line is handed on as one; a value that goes to a shell, a library or a settings file is code.

Not here: programs made to start others (guard/wrappers), git and sed (guard/gitline, guard/sedscript).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

from palyra.guard.options import find_options
from palyra.guard.programs import normalise
from palyra.late import late
from palyra.values import dataclass

Words = Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a program would run. Exactly one of `argv`, `shell` and `code` is meant."""

    argv: tuple[str, ...] = ()
    """Started as it stands."""
    shell: bool = False
    """A text goes to sh -c."""
    code: bool = False
    """It runs something that cannot be named from here."""
    inline: bool = False
    """The code itself stands in the arguments."""
    open_ended: bool = False
    """Further arguments come from stdin or from names of files."""
    words: tuple[str, ...] = ()
    """Where the name of an interpreter may stand."""
    why: str = ""


Reader = Callable[[Words], Iterator[Finding]]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class How(StrEnum):
    """What happens to the value of an option that names a program."""

    SHELL = "shell"
    """Handed to sh -c."""
    WORDS = "words"
    """Split into words and started, with further ones that cannot be seen here."""
    COMPRESS = "compress"
    """A compressor: a known one counts as that program, anything else goes through a shell."""
    CODE = "code"
    """A library, a script or a settings file that makes it run something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Escape:
    """Options of an otherwise plain program that make it run something."""

    values: str = ""
    """Short options that surely take a value: what follows one in a bundle is no option. One left off costs only a
    refusal too many; one too many would hide an option behind it."""
    short: tuple[tuple[str, How], ...] = ()
    long: tuple[tuple[str, How], ...] = ()
    """GNU programs take any unambiguous start of these, so every start counts, but for those in `plain`."""
    plain: frozenset[str] = frozenset()
    old_style: bool = False
    """The first argument is a bundle even without a dash (`tar cIf sh x`)."""


def _escape(long: str = "", short: str = "", values: str = "") -> Escape:
    """`long` and `short` hold `name:how` words; the default way is CODE."""
    return Escape(values=values, short=_pairs(short), long=_pairs(long))


def _pairs(text: str) -> tuple[tuple[str, How], ...]:
    return tuple((name, How(how or "code")) for name, _, how in (word.partition(":") for word in text.split()))


_PLUGIN = _escape("plugin")
_NETCAT = _escape("exec:words sh-exec:shell lua-exec", "c:shell e:words", "iIpqswWxX")
_GPG = _escape("options homedir agent-program dirmngr-program photo-viewer exec-path keyserver-options gpg-program")
_SSH_VALUES = "BbcDEeFIiJLlmOopQRSWw"

ESCAPES: dict[str, Escape] = {
    "sort": _escape("compress-program:compress"),
    "split": _escape("filter:shell"),
    "rg": _escape("pre:words hostname-bin:words"),
    "bat": _escape("pager:shell diff-so-fancy"),
    "batcat": _escape("pager:shell diff-so-fancy"),
    "ag": _escape("pager:shell"),
    "ugrep": _escape("filter:shell pager:shell view:shell"),
    "ug": _escape("filter:shell pager:shell view:shell"),
    "protoc": _escape("plugin"),
    "delta": _escape("pager:shell"),
    "install": _escape("strip-program:words"),
    "cpio": _escape("rsh-command:words"),
    # With -o it takes commands from stdin, and one of them starts ed, whose `!` is a shell.
    "sdiff": _escape("diff-program:words output", "o", "Iow"),
    "diff3": _escape("diff-program:words"),
    "patch": _escape("ed get", "e g", "BDFVYdgioprz"),  # -g fetches what is missing by co, get, p4 or cleartool
    "rsync": _escape("rsh:words rsync-path:shell daemon config dparam", "e:words", "eBfMT@"),
    "curl": _escape("engine config", "K", "AbcCdDeEFHKmoPQrtTuUwxXyYz"),  # a library by its path, in a file too
    "wget": _escape("use-askpass:words execute config", "e", "aABDeGIilnoOPQRtTUwX"),
    "wget2": _escape("use-askpass:words execute config plugin local-plugin", "e", "aABDeGIilnoOPQRtTUwX"),
    "aria2c": _escape("on-download-complete:words on-download-start:words on-download-stop:words "
                      "on-download-error:words on-download-pause:words on-bt-download-complete:words "
                      "conf-path enable-rpc"),
    "tcpdump": _escape("", "z:words", "BcCEFGijmMrQsTVwWyzZ"),
    "ssh": _escape("", "F I", _SSH_VALUES),
    "slogin": _escape("", "F I", _SSH_VALUES),
    "scp": _escape("", "S:words D:words F", "cDFiJloPSX"),
    "sftp": _escape("", "S:words D:shell b F", "BbcDFiJloPRSsX"),
    "ssh-keygen": _escape("", "D w", "abCfIN"),
    "ssh-add": _escape("", "s S", "Eet"),
    "nc": _NETCAT, "ncat": _NETCAT, "netcat": _NETCAT, "nc.openbsd": _NETCAT, "nc.traditional": _NETCAT,
    "gpg": _GPG, "gpg2": _GPG, "gpgv": _GPG, "gpgsm": _GPG,
    "nm": _PLUGIN, "ar": _PLUGIN, "ranlib": _PLUGIN, "strip": _PLUGIN, "objdump": _PLUGIN, "objcopy": _PLUGIN,
}  # fmt: skip
TAR = Escape(
    values="bCfFgHIKLNTVX",
    # At the end of a volume it asks for the next one, and an answer of `!` is a shell that goes on reading stdin.
    short=(("I", How.COMPRESS), ("F", How.SHELL), ("M", How.CODE), ("L", How.CODE)),
    long=(
        ("multi-volume", How.CODE),
        ("tape-length", How.CODE),
        ("use-compress-program", How.COMPRESS),
        ("to-command", How.SHELL),
        ("checkpoint-action", How.SHELL),
        ("info-script", How.SHELL),
        ("new-volume-script", How.SHELL),
        ("rsh-command", How.WORDS),
        ("rmt-command", How.WORDS),
    ),
    plain=frozenset({"checkpoint"}),
    old_style=True,
)
ESCAPES |= dict.fromkeys(("tar", "gtar", "bsdtar", "star"), TAR)

SSH_SETTINGS = _words(
    "proxycommand localcommand permitlocalcommand knownhostscommand pkcs11provider smartcarddevice "
    "securitykeyprovider xauthlocation include match proxyusefdpass"
)
"""`ssh -o` settings that start or load something here, not on the other side."""

OPENSSL_WORDS = _words("engine -engine -engine_impl -provider -provider-path -provider_path -module -config -post")
COMPRESSORS = _words(
    "gzip gunzip pigz unpigz bzip2 bunzip2 pbzip2 lbzip2 xz unxz pixz lzma unlzma lzip plzip lzop lz4 zstd unzstd "
    "zstdmt pzstd compress uncompress brotli"
)
"""What `tar -I` and `sort --compress-program` are honestly used with."""
_REMOTE_SHELLS = frozenset({"ssh", "slogin"})
"""What they are given is a host and a command for it (`rsync -e ssh`), and no name of a file."""
_PLAIN_WORDS = late(r"[\w.+-]+(?: -[\w-]+)*")


def split_words(text: str) -> tuple[str, ...] | None:
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return None


def read_escapes(name: str, escape: Escape, args: Words) -> Iterator[Finding]:
    ways = dict((*escape.short, *escape.long))
    letters = "".join(letter for letter, _ in escape.short)
    names = [word for word, _ in escape.long]
    if escape.old_style and args and args[0][:1] not in ("-", ""):
        yield from _read_old_bundle(name, escape, args)
    for option in find_options(args, letters=letters, names=names, values=escape.values, plain=tuple(escape.plain)):
        yield from _judge_value(name, option.name, option.value or "", ways[option.name])


def _read_old_bundle(name: str, escape: Escape, args: Words) -> Iterator[Finding]:
    """`tar cIf sh x.tar`: letters without a dash, their values behind in the same order."""
    values = iter(args[1:])
    for letter in args[0]:
        value = next(values, "") if letter in escape.values else ""
        for known, how in escape.short:
            if letter == known:
                yield from _judge_value(name, letter, value, how)


def _judge_value(name: str, option: str, value: str, how: How) -> Iterator[Finding]:
    dashed = f"{name} {'-' if len(option) == 1 else '--'}{option}"
    if option == "checkpoint-action" and not value.startswith("exec"):
        return
    words = split_words(value) or ()
    compresses = how is How.COMPRESS and _PLAIN_WORDS.fullmatch(value) and normalise(words[0]) in COMPRESSORS
    if compresses or (how is How.WORDS and words):
        # What it is given then are names of files: `rg --pre sed . '1e id'` is a script to that sed.
        yield Finding(argv=words, open_ended=how is How.WORDS and normalise(words[0]) not in _REMOTE_SHELLS)
    elif how is How.CODE or not words:
        yield Finding(code=True, words=tuple(value.split()), why=f"{dashed} makes it run or load something")
    else:
        yield Finding(shell=True, words=words, why=f"{dashed} hands a text to a shell")


def read_zip(args: Words) -> Iterator[Finding]:
    """It tests an archive by `sh -c "unzip -t 'FOLDER/…'"`, whatever quotes there are in the name of that folder."""
    tests = any(word[:1] == "-" and ("T" in word or word[:3] == "--t") for word in args)
    if tests and any("'" in word or "{}" in word for word in args):  # {}: find puts any name there
        yield Finding(shell=True, words=tuple(args), why="zip -T hands the archive's name to a shell")
    glued = (word for word in args if word[:1] == "-" and word[:2] != "--" and "TT" in word)
    named = (option.value or "" for option in find_options(args, names=("unzip-command",)))
    for word in (*glued, *named):
        yield Finding(shell=True, words=tuple(args), why=f"zip {word[:20]} tests with a program of its own")


def read_tree(args: Words) -> Iterator[Finding]:
    """Before 2.0 it lists folders below the last level by `sh -c 'tree -H "FOLDER" …'`, whatever is in their names."""
    bundles = [word for word in args if word[:1] == "-" and word[1:2] != "-"]
    if any("R" in word for word in bundles) and any("H" in word for word in bundles):
        yield Finding(shell=True, words=tuple(args), why="tree -R with -H hands names of folders to a shell")


def read_openssl(args: Words) -> Iterator[Finding]:
    for word in args:
        if word.lower().replace("--", "-") in OPENSSL_WORDS:
            yield Finding(code=True, why=f"openssl {word} loads a library")


def read_ssh(name: str) -> Reader:
    escape = ESCAPES[name]

    def read(args: Words) -> Iterator[Finding]:
        yield from read_escapes(name, escape, args)
        if name == "sftp" and args:
            yield Finding(
                code=True, words=tuple(args), why="sftp gives a line of its input that begins with ! to a shell"
            )
        for option in find_options(args, letters="o", values=escape.values):
            setting = re.split(r"[\s=]", (option.value or "").strip())[0].strip("\"'").lower()
            if setting in SSH_SETTINGS:
                yield Finding(shell=True, why=f"{name} -o {setting} runs a program here")

    return read
