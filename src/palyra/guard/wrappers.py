"""What a program would start, read from its arguments: wrappers count as what they run.

`read_wrapper` answers with findings: a command line that is started, a text that goes to sh, or code that cannot be
named. An option that a wrapper's description does not know makes the rest uncertain, and that counts as code.

Not here: options of plain programs that run something (guard/escapes); what is found being an interpreter or not, and
chains of wrappers (guard/command).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import field

from palyra.guard.environ import FIXED, is_banned
from palyra.guard.escapes import (
    ESCAPES,
    Finding,
    Reader,
    read_escapes,
    read_openssl,
    read_ssh,
    read_tree,
    read_zip,
    split_words,
)
from palyra.guard.gitline import read_git
from palyra.guard.options import Option, Scan, Spec, find_options, read_options
from palyra.guard.programs import BUILD_TOOLS, REACHES, is_runner, normalise
from palyra.guard.sedscript import read_sed
from palyra.late import late
from palyra.values import dataclass

Words = Sequence[str]


@dataclass(frozen=True, slots=True)
class Prefix:
    """A wrapper of the form `NAME [option…] [operand…] COMMAND [argument…]`."""

    spec: Spec = field(default_factory=Spec)
    operands: int = 0
    shell_options: str = ""
    """Options that start a shell or an editor."""


_SUDO = Spec(
    "ABbEeHiKklNnPSsVvC:D:g:h:p:R:r:T:t:U:u:",
    "askpass background bell close-from= preserve-env? chdir= edit group= set-home help host= login remove-timestamp "
    "reset-timestamp list non-interactive preserve-groups prompt= chroot= role= stdin shell type= command-timeout= "
    "other-user= user= version validate",
)
_SETARCH = Prefix(
    Spec(
        "vBFILRSTXZ3h",
        "verbose 32bit fdpic-funcptrs short-inode addr-compat-layout addr-no-randomize whole-seconds sticky-timeouts "
        "read-implies-exec mmap-page-zero 3gb 4gb uname-2.6 list show?",
    )
)
PREFIXES: dict[str, Prefix] = {
    "nice": Prefix(Spec("n:0123456789", "adjustment=")),
    "nohup": Prefix(),
    "timeout": Prefix(Spec("k:s:vfp", "kill-after= signal= verbose foreground preserve-status"), 1),
    "time": Prefix(Spec("f:o:apvqV", "format= output= append portability verbose quiet")),
    "stdbuf": Prefix(Spec("i:o:e:", "input= output= error=")),
    "setsid": Prefix(Spec("cfw", "ctty fork wait")),
    "ionice": Prefix(Spec("c:n:p:P:u:t", "class= classdata= pid= pgid= uid= ignore")),
    "chrt": Prefix(
        Spec(
            "abdfimoprRvT:P:D:",
            "all-tasks batch deadline fifo idle max other pid rr reset-on-fork verbose sched-runtime= sched-period= "
            "sched-deadline=",
        ),
        1,
    ),
    "taskset": Prefix(Spec("apc", "all-tasks pid cpu-list"), 1),
    "uclampset": Prefix(Spec("m:M:ap:sRv", "util-min= util-max= all-tasks pid= system reset-on-fork verbose")),
    "choom": Prefix(Spec("n:p:", "adjust= pid=")),
    "chronic": Prefix(Spec("ev")),
    "ifne": Prefix(Spec("n")),
    "prlimit": Prefix(
        Spec(
            "c::d::e::f::i::l::m::n::o:p:q::r::s::t::u::v::x::y::",
            "core? data? nice? fsize? sigpending? memlock? rss? nofile? output= pid= msgqueue? rtprio? stack? cpu? "
            "nproc? as? locks? rttime? noheadings raw verbose",
        )
    ),
    "sudo": Prefix(_SUDO, 0, "s i e shell login edit"),
    "doas": Prefix(Spec("a:C:Lnsu:"), 0, "s"),
    **dict.fromkeys(("setarch", "linux32", "linux64", "i386", "x86_64", "uname26"), _SETARCH),
}
_ARCHITECTURES = late(r"(?:linux(?:32|64)|i[3-6]86|x86_64|amd64|ppc\w*|s390x?|arm\w*|aarch64|mips\w*|riscv\d*)")
_ENV = Spec(
    "i0vu:C:S:a:",
    "ignore-environment null unset= chdir= split-string= block-signal? default-signal? ignore-signal? "
    "list-signal-handling debug argv0= help version",
)
_XARGS = Spec(
    "0a:d:E:e::I:i::L:l::n:oP:prs:tx",
    "null arg-file= delimiter= eof? replace? max-lines? max-args= interactive no-run-if-empty max-chars= verbose "
    "show-limits exit max-procs= process-slot-var= open-tty help version",
)
_FLOCK = Spec(
    "sexunoFvw:E:c:",
    "shared exclusive unlock nonblock nb close no-fork verbose wait= timeout= conflict-exit-code= command= help "
    "version",
)
_EMPTIES = frozenset({"i", "ignore-environment", "u", "unset"})
"""Of env: what git was told through its environment (guard/gitenv) goes as well."""
_MOVED = "env -C starts git in a folder that can have its own settings"
_EMPTIED = "env -i takes away the settings by which git runs no hooks"
_ASSIGNMENT = late(r"([^=]+)=(.*)", re.DOTALL)


def read_wrapper(name: str, args: Words) -> tuple[Finding, ...]:
    """What the program of this (normalised) name would start; nothing for a plain program."""
    if name in BUILD_TOOLS:
        return (Finding(code=True, why=f"{name} runs what the project's own files say"),)
    if is_runner(name):
        return (Finding(code=True, words=tuple(args), why=f"{name} can run other programs"),)
    if name in PREFIXES:
        return tuple(_read_prefix(name, PREFIXES[name], args))
    if name in READERS:
        return (*READERS[name](args), *_read_remote(name, args))
    if name in ESCAPES:
        return (*read_escapes(name, ESCAPES[name], args), *_read_remote(name, args))
    return tuple(_read_remote(name, args))


def _read_remote(name: str, args: Words) -> Iterator[Finding]:
    if name in REACHES:
        from palyra.guard.remote import read_remote

        yield from read_remote(name, args)


def may_run(name: str) -> bool:
    """Some argument could make this program run another: not to be given arguments that nobody has seen. (Runners and
    build tools are code whatever they are given.)"""
    return name in PREFIXES or name in READERS or name in ESCAPES or name in REACHES


def is_wrapper(name: str) -> bool:
    """Made to start another program and do nothing else; not one that changes who or where it is."""
    return name in ("env", "xargs", "flock") or (name in PREFIXES and name not in ("sudo", "doas"))


def command_index(name: str, args: Words) -> int:
    """Where in `args` a simple wrapper's command begins; -1 when the program is none or it cannot be said."""
    if name == "env":
        scan = read_options(args, _ENV)
        at = scan.rest
        while at < len(args) and ("=" in args[at] or args[at] == "-"):
            at += 1
        split = any(option.name in ("S", "split-string") for option in scan.options)
        return -1 if scan.unknown or split or at >= len(args) else at
    if name not in PREFIXES:
        return -1
    scan = read_options(args, PREFIXES[name].spec)
    at = scan.rest + _operands(name, args[scan.rest :])
    return -1 if scan.unknown or at >= len(args) else at


def _operands(name: str, rest: Words) -> int:
    """How many words stand before the command: chrt's priority may be left out, since util-linux 2.42."""
    if name == "chrt" and rest and not (rest[0].isascii() and rest[0].isdigit()):
        return 0
    return PREFIXES[name].operands


def _unknown(name: str, scan: Scan, args: Words) -> Finding:
    option = scan.unknown.partition("=")[0]
    return Finding(code=True, words=tuple(args), why=f"what {name} {option[:40]} runs cannot be determined")


def _read_prefix(name: str, prefix: Prefix, args: Words) -> Iterator[Finding]:
    if prefix is _SETARCH and args and _ARCHITECTURES.fullmatch(args[0]):
        args = args[1:]
    scan = read_options(args, prefix.spec)
    if scan.unknown:
        if scan.unknown not in ("--help", "--version"):
            yield _unknown(name, scan, args)
        return
    if any(option.name in prefix.shell_options.split() for option in scan.options):
        yield Finding(shell=True, why=f"{name} starts a shell or an editor")
        return
    rest = args[scan.rest + _operands(name, args[scan.rest :]) :]
    if name == "sudo":
        rest = yield from _skip_assignments(name, rest)
    if name in ("sudo", "doas") and _names_git(rest):
        yield Finding(code=True, words=tuple(rest), why=f"{name} takes away the settings by which git runs no hooks")
    if rest:
        yield Finding(argv=tuple(rest))
    elif prefix is _SETARCH:
        yield Finding(shell=True, why=f"{name} without a program starts a shell")


def _skip_assignments(name: str, args: Words) -> Generator[Finding, None, Words]:
    """Steps over `KEY=value` words, and returns what follows them."""
    at = 0
    while at < len(args) and (found := _ASSIGNMENT.fullmatch(args[at])):
        if is_banned(found[1]) or found[1] in FIXED:
            yield Finding(code=True, why=f"{name} sets {found[1][:40]}, which decides what a program loads or runs")
        at += 1
    return args[at:]


def _read_env(args: Words, depth: int = 0) -> Iterator[Finding]:
    scan = read_options(args, _ENV)
    given = {option.name for option in scan.options}
    empties, moves = not given.isdisjoint(_EMPTIES), not given.isdisjoint(("C", "chdir"))
    for option in scan.options:
        if option.name in ("S", "split-string"):
            if (empties or moves) and _names_git((*(option.value or "").split(), *args[option.end :])):
                yield Finding(code=True, why=_EMPTIED if empties else _MOVED)
            yield from _read_split(option, args, depth)
            return
    if scan.unknown:
        yield _unknown("env", scan, args)
        return
    rest = args[scan.rest :]
    empties = empties or list(rest[:1]) == ["-"]
    rest = rest[1:] if rest and rest[0] == "-" else rest
    rest = yield from _skip_assignments("env", rest)
    if empties and _names_git(rest):
        yield Finding(code=True, words=tuple(rest), why=_EMPTIED)
    if moves and _names_git(rest):
        yield Finding(code=True, words=tuple(rest), why=_MOVED)
    elif rest:
        yield Finding(argv=tuple(rest))


def _names_git(words: Words) -> bool:
    """A repository below the workspace has its own config and hooks, which git would obey there."""
    return any(normalise(word) == "git" for word in words)


def _read_split(option: Option, args: Words, depth: int) -> Iterator[Finding]:
    """env -S: the string's words stand before the other arguments, and may be options of env again."""
    text = option.value or ""
    words = split_words(text)
    # To env a vertical tab is a blank: `A=1\vsh\v-c\vid` sets A and runs sh.
    if words is None or depth > 4 or "\\" in text or "$" in text or not text.isprintable():
        loose = (*text.replace("\\_", " ").split(), *args[option.end :])
        yield Finding(code=True, words=loose, why="what env -S runs cannot be determined")
        return
    yield from _read_env((*words, *args[option.end :]), depth + 1)


def _read_xargs(args: Words) -> Iterator[Finding]:
    scan = read_options(args, _XARGS)
    if scan.unknown:
        yield _unknown("xargs", scan, args)
        return
    for option in scan.options:
        if option.name == "process-slot-var" and (is_banned(option.value or "") or option.value in FIXED):
            # LD_LIBRARY_PATH=0 is the folder `0` that a call made, and what lies in it.
            yield Finding(code=True, why=f"xargs sets {(option.value or '')[:40]}, which decides what a program loads")
    rest = tuple(args[scan.rest :])
    marks = [option.value or "{}" for option in scan.options if option.name in ("I", "i", "replace")]
    if rest and any(mark in rest[0] for mark in marks):
        yield Finding(code=True, words=rest, why="xargs takes the program's name from its input")
    elif rest:
        yield Finding(argv=rest, open_ended=True)


def _read_find(args: Words, *, mixed: bool = False) -> Iterator[Finding]:
    """`mixed`: places to begin at may stand behind tests, as bfs takes them."""
    actions = sum(word.startswith(_ACTIONS) for word in args)
    for at, word in enumerate(args):
        if word in ("-exec", "-execdir", "-ok", "-okdir"):
            end = at + 1
            while end < len(args) and args[end] != ";" and not (args[end] == "+" and args[end - 1] == "{}"):
                end += 1
            inner = tuple(args[at + 1 : end])
            if _names_git(inner) and (actions > 1 or any(map(_names_output, inner))):
                # `-exec cp g .git/config ; -exec git add x ;`: nobody looked at what the first one wrote. One that runs
                # for each file obeys what it wrote for the last: `git log --format=… --output=.git/config -p {}`.
                yield Finding(code=True, words=inner, why="find starts git behind something that writes a file")
            if word.endswith("dir") and _names_git(inner):
                yield Finding(code=True, words=inner, why=f"find {word} starts git in folders with their own settings")
            elif inner:
                # Not every find puts ./ before the names in a folder, for -execdir.
                given = () if mixed or word.endswith("dir") else args
                yield _with_names(inner, given, many="+" in args[end : end + 1])


def _names_output(word: str) -> bool:
    """Of git, or of `time -o FILE git`."""
    long = word.startswith("--ou") and word != "--ours"
    return long or (word[:1] == "-" and word[1:2] != "-" and "o" in word) or normalise(word) == "time"


_ACTIONS = ("-exec", "-ok", "-fprint", "-fls", "-delete")
_TESTS = frozenset(
    "-name -iname -path -ipath -regex -iregex -type -maxdepth -mindepth -not -size -mtime -newer".split()
)
"""What a find that is given no place at all begins with; other letters are options of some find, with places behind."""
_SED = ("sed", "gsed")
_MANY = 4
"""More names than any program here has places before the one where it takes a command."""
_PLACE = late(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")


def _with_names(inner: tuple[str, ...], args: Words, *, many: bool) -> Finding:
    """A command line of find's, where a file's name becomes an argument: `find '1e id' -exec sed {} f` runs id. A name
    that begins with `./` can be no option, no program on the search path, no script of sed's and no host. `many`: as
    many as there are, and `xargs -a {} +` runs the second."""
    names = {argument for argument in inner[1:] if "{}" in argument}
    if names == {"{}"} and _begins_here(args, also=_PLACE if normalise(inner[0]) in _SED else None):
        more = ("{}",) * _MANY if many else ()
        return Finding(argv=tuple("./{}" if word == "{}" else word for word in (*inner, *more)))
    return Finding(argv=inner, open_ended=bool(names))


def _begins_here(args: Words, *, also: re.Pattern[str] | None) -> bool:
    """Whether every name that find gives out begins with `./`, or like the word it was given where `also` fits that."""
    at = 0
    while at < len(args) and args[at] in ("-H", "-L", "-P"):
        at += 1
    first = at
    while at < len(args) and args[at][:1] not in ("-", "(", "!"):
        place, at = args[at], at + 1
        if not (place == "." or place.startswith("./") or (also is not None and also.fullmatch(place))):
            return False
    return at < len(args) and "-files0-from" not in args and (at > first or args[at] in _TESTS)


def _read_fd(args: Words) -> Iterator[Finding]:
    for option in find_options(args, letters="xX", names=("exec", "exec-batch"), values="dteEcjoS"):
        tail = list(args[option.end :])
        tail = tail[: tail.index(";")] if ";" in tail else tail
        if option.value:
            yield Finding(argv=(option.value, *tail), open_ended=True)


def _read_flock(args: Words) -> Iterator[Finding]:
    scan = read_options(args, _FLOCK)
    rest = args[scan.rest + 1 :]
    if scan.unknown:
        yield _unknown("flock", scan, args)
    elif any(option.name in ("c", "command") for option in scan.options) or (rest and rest[0][:2] in ("-c", "--")):
        yield Finding(shell=True, why="flock -c hands a text to a shell")
    elif rest:
        yield Finding(argv=tuple(rest))


def _read_multi_call(args: Words) -> Iterator[Finding]:
    if args and not args[0].startswith("-"):
        yield Finding(argv=tuple(args))


def _read_sed(args: Words) -> Iterator[Finding]:
    why = read_sed(args).why
    if why:
        yield Finding(code=True, inline=True, why=why)


def _read_git(args: Words) -> Iterator[Finding]:
    why = read_git(args).why
    if why:
        yield Finding(code=True, words=tuple(args), why=why)


READERS: dict[str, Reader] = {
    "env": _read_env,
    "xargs": _read_xargs,
    "find": _read_find,
    "bfs": lambda args: _read_find(args, mixed=True),
    "fd": _read_fd,
    "fdfind": _read_fd,
    "flock": _read_flock,
    "sed": _read_sed,
    "gsed": _read_sed,
    "git": _read_git,
    "zip": read_zip,
    "openssl": read_openssl,
    "tree": read_tree,
    "busybox": _read_multi_call,
    "toybox": _read_multi_call,
    "coreutils": _read_multi_call,
    **{name: read_ssh(name) for name in ("ssh", "slogin", "scp", "sftp")},
}
