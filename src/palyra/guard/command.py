"""What a command line would really run: its program, the program behind wrappers, and whether that runs code.

Rules:
1. A command is one name, found on the operator's fixed PATH: no folder, no blanks, no NUL (`check_shape`).
2. Names are compared normalised: `python3.12.exe` is python.
3. Wrappers count as what they run, through any chain of them; a script counts as the interpreter in its first line.
4. What a wrapper runs is looked up like the command itself (`also`); named by a path it could be anything, also
   something planted in the workspace under an honest name, and counts as code.
5. Where it cannot be told, it counts as code.

A program on no table is plain: it must be on the executable allowlist to run at all. The sandbox is the wall.
Not here: the allowlist and the decision (guard/facts, policy), the disk (guard/look).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from palyra.errors import Reason, Rejected
from palyra.guard.escapes import Finding
from palyra.guard.programs import (
    AWKS,
    BROAD_KILLS,
    BUILD_TOOLS,
    INLINE_LETTERS,
    INLINE_WORDS,
    MULTI_CALL,
    PLAIN_SCRIPTS,
    is_interpreter,
    is_runner,
    normalise,
)
from palyra.guard.wrappers import is_wrapper, may_run, read_wrapper
from palyra.late import late
from palyra.values import dataclass

__all__ = [
    "Classification",
    "check_shape",
    "classify",
    "is_broad_kill",
    "is_interpreter",
    "normalise",
    "shebang_program",
]

ANY_PROGRAM = "sh"
"""What has to be listed where a program that cannot be named would run: a shell runs any."""
MAX_DEPTH = 8
MAX_STEPS = 256
"""Command lines within one: `find -exec find -exec find …` is one at each -exec, and in each of them again."""
_ANSWERS = frozenset({"--version", "-V", "-v", "--help", "-h"})
_BLANK_OR_FOLDER = late(r"[\s/\\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Classification:
    program: str
    effective_program: str
    """The most telling thing that would run: an interpreter, else what runs code, else what a wrapper starts."""
    interpreter: bool = False
    runs_code: bool = False
    inline_code: bool = False
    also: tuple[str, ...] = ()
    """Names, as written, of further programs that would be started: each must be found and listed too."""
    starts: tuple[str, ...] = ()
    """Programs that a plain program would start by itself: `sh` for any that cannot be named. They must be listed."""
    ends: tuple[str, ...] = ()
    """Normalised: what stands at the end of each chain of wrappers, or does work of its own on the way there. `find
    -exec ls ; -exec rm ;` has two, and `env find -delete -exec true ;` too."""
    why: str = ""
    """One clause for a refusal's sentence."""


@dataclass(slots=True)
class _Trail:
    """What is gathered on the way through a chain of wrappers. The highest rank names the effective program: an
    interpreter, then what runs code, then the innermost program."""

    effective: str
    rank: int = 0
    interpreter: bool = False
    code: bool = False
    inline: bool = False
    also: list[str] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    """What stands at the end of each chain of wrappers, or does work of its own on the way there."""
    why: str = ""
    steps: int = 0

    def note(self, name: str, rank: int, why: str = "") -> None:
        if rank > self.rank:
            self.effective, self.rank, self.why = name, rank, why or self.why

    def note_interpreter(self, name: str, why: str) -> None:
        self.interpreter = self.code = True
        self.note(name, 200, why)

    def note_code(self, name: str, why: str, starts: str = ANY_PROGRAM) -> None:
        """`starts`: what it would run; nothing for a program that is made to run code and is listed itself."""
        self.code = True
        self.note(name, 100, why)
        self.starts += [starts] if starts else []


def check_shape(command: str, args: Sequence[str]) -> None:
    """1 — refuse what is no single name, before anything is looked up."""
    if not command or _BLANK_OR_FOLDER.search(command) or command in (".", ".."):
        words = command.split() or [""]
        base = words[0].replace("\\", "/").rpartition("/")[2]
        split = ", ".join(f'"{word}"' for word in words[1:4])
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "The command is not the name of one program: it is empty, or holds blanks or a path separator.",
            f'Split it: "command": "{base[:60]}", "args": [{split[:120]}]; folders belong to `path` in '
            "[tool_call.process_runner].",
            fields=(("command", "must be one program name"),),
        )
    for at, text in enumerate((command, *args)):
        if "\0" in text:
            where = "command" if at == 0 else f"args.{at - 1}"
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                f"The {where} contains a NUL byte, which no program can be given.",
                "Put binary data into a file, or into stdin.",
                fields=((where, "holds a NUL byte"),),
            )


def is_broad_kill(command: str, args: Sequence[str]) -> bool:
    """Picks processes by name, user or everything, and so hits strangers."""
    name = normalise(command)
    words = [word.lower() for word in args]
    if name == "fuser":
        return any(word[:1] == "-" and "k" in word for word in words)  # -k, in a bundle too, and --kill
    if name == "taskkill":
        return any(word[:1] in ("/", "-") and word[1:].startswith(("im", "fi")) for word in words)
    if name == "kill":
        # `kill -1 PID` is a hang-up for one process; `kill -9 -1` and `kill -- -1` are for all of them.
        return "-1" in words[1:]
    return name in BROAD_KILLS


def shebang_program(first: bytes) -> str:
    """The interpreter a script's first line names, as written there; empty when there is none."""
    if first[:2] != b"#!":
        return ""
    words = first[2:].partition(b"\n")[0].decode("utf-8", "replace").split()
    if not words:
        return "sh"
    name = words[0].rpartition("/")[2]
    if normalise(name) == "env":
        # The kernel hands the rest of the line over as one word, which only env's -S takes apart again.
        splits = len(words) > 1 and words[1][:1] == "-" and ("S" in words[1] or words[1].startswith("--s"))
        found = classify("env", [" ".join(words[1:])] if splits else words[1:])
        return found.also[0] if found.also else found.effective_program
    return name


def classify(command: str, args: Sequence[str], shebang: str = "", *, resolved: str = "") -> Classification:
    """2 to 5 — `shebang` and `resolved` (the real file behind a link) are what the disk says, once it was asked."""
    program = normalise(command)
    trail = _Trail(effective=program)
    _walk(command, args, trail, depth=0)
    name, why, interprets = behind(command, shebang, resolved)
    if why and interprets:
        trail.note_interpreter(name, why)
    elif why:
        trail.note_code(name, why, "")
    return Classification(
        program=program,
        effective_program=trail.effective,
        interpreter=trail.interpreter,
        runs_code=trail.code,
        inline_code=trail.inline,
        also=tuple(dict.fromkeys(trail.also)),
        starts=tuple(dict.fromkeys(trail.starts)),
        ends=tuple(dict.fromkeys(trail.ends)),
        why=trail.why,
    )


def behind(command: str, shebang: str, resolved: str) -> tuple[str, str, bool]:
    """(program, why it matters, whether it is an interpreter) of what a script or a link really is; empty for none."""
    program, real, script = normalise(command), normalise(resolved), normalise(shebang)
    if shebang and program not in PLAIN_SCRIPTS:
        return script, f"{program} is a script for {script}", True
    if real != program and real not in MULTI_CALL:
        if is_interpreter(real):
            return real, f"{program} is another name for {real}", True
        if is_runner(real) or real in BUILD_TOOLS:
            return real, f"{program} is another name for {real}, which can run other programs", False
    return "", "", False


def _walk(command: str, args: Sequence[str], trail: _Trail, *, depth: int, by: str = "") -> None:
    name = normalise(command)
    trail.steps += 1
    if depth > MAX_DEPTH or trail.steps > MAX_STEPS:
        trail.note_code(name, "wrappers are nested too deeply to follow")
        return
    if is_interpreter(name):
        trail.inline = trail.inline or _is_inline(name, args)
        said = command.rpartition("/")[2]  # `python3`, as the caller wrote it, though `python` is what is judged
        # busybox is a shell and a hundred programs: it counts as an interpreter whichever is asked for.
        what = f"{name} is a shell and other programs in one" if name in MULTI_CALL else f"{said} is an interpreter"
        shown = normalise(args[0]) if name in MULTI_CALL and args else name
        trail.note_interpreter(shown, f"{by} would run {name}" if by else what)
    findings = read_wrapper(name, args)
    for finding in findings:
        _follow(name, finding, trail, depth)
    if depth and not (is_wrapper(name) and any(finding.argv for finding in findings)):
        trail.ends.append(name)


def _follow(name: str, finding: Finding, trail: _Trail, depth: int) -> None:
    trail.inline = trail.inline or finding.inline or finding.shell
    for word in finding.words:
        if len(word) > 1 and is_interpreter(word):
            trail.note_interpreter(normalise(word), f"{name} would run {normalise(word)}")
            trail.starts.append(word.rpartition("/")[2])
    if finding.shell:
        trail.note_interpreter("sh", finding.why)
        trail.starts.append("sh")
    elif finding.code:
        trail.note_code(name, finding.why, "" if is_runner(name) or name in BUILD_TOOLS else ANY_PROGRAM)
    elif finding.argv:
        _enter(name, finding, trail, depth)


def _enter(name: str, finding: Finding, trail: _Trail, depth: int) -> None:
    inner, known = finding.argv[0], normalise(finding.argv[0])
    if _BLANK_OR_FOLDER.search(inner) or "{" in inner or inner in ("", ".", ".."):
        why = f"{name} names a program by a path or a placeholder, so it could be any"
        trail.note_code(known, why, inner or ANY_PROGRAM)
    elif name not in MULTI_CALL:
        trail.also.append(inner)
    if finding.open_ended and may_run(known):
        trail.note_code(known, f"{name} gives {known} arguments that cannot be seen here")
    trail.note(known, 1 + depth)
    _walk(inner, finding.argv[1:], trail, depth=depth + 1, by=name)


def _is_inline(name: str, args: Sequence[str]) -> bool:
    """The code itself is handed over: as an option's value, as awk's first operand, or on stdin."""
    if name in AWKS:
        return not any(word.startswith(("-f", "--file")) for word in args)
    letters = INLINE_LETTERS.get(name, "ce")
    for word in args:
        if word.lower() in INLINE_WORDS or word.partition("=")[0] in ("--eval", "--print", "--command", "--execute"):
            return True
        if word == "-" or (word[:1] == "-" and word[1:2] != "-" and any(letter in word for letter in letters)):
            return True
        if word[:1] != "-":
            return False
    return not args or not set(args) <= _ANSWERS
