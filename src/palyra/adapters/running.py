"""What every framework's adapter needs of a run: a command with its whole output, and files by their bytes.

All of it is `palyra.process.run`: decided, confined, signed and journaled like any other call; a file is read and
written by a shell inside the sandbox, never by this process, because what stands in a workspace is the agent's. Rules:
a refusal is a result with exit code 126 and the reason on stderr (127 where the program is not there), so that a model
reads why; what waits for a person is one too, with the approval's id. Lines for a shell need interpreters to be
granted: `run(grant=grant(interpreters=True))`, or posture `developer`.

Not here: the frameworks' own shapes (one file each beside this one).
"""

from __future__ import annotations

import asyncio
import base64
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palyra.api import Outcome, Status, SyncRun
from palyra.canon import Json
from palyra.errors import Reason
from palyra.protocol.shell_line import programs_of

TOOL = "palyra.process.run"
MAX_ARG_BYTES = 4096
MAX_ARGS = 128
PIECE_BYTES = 4000
READ_BYTES = 192 * 1024
WRITE_BYTES = 36 * 1024
"""Of a file, in one call: base64 in a call's stdin, which takes 64 KiB."""
DENIED, MISSING = 126, 127
PROGRAMS = "/usr/local/bin:/usr/bin:/bin"
_JOIN = 'IFS=; eval "$*"'
"""Pieces of a line that is too long for one argument, put together again inside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    truncated: bool = False
    outcome: Outcome

    @property
    def refused(self) -> bool:
        return self.outcome.status in (Status.REFUSED, Status.PENDING_APPROVAL)


class Commands:
    """Both faces: `run` for threads, `arun` for event loops; cancelling the latter ends the program."""

    def __init__(self, run: SyncRun, *, wait_s: float = 0.0) -> None:
        self._run = run
        self._wait_s = wait_s

    @property
    def workspace(self) -> str:
        return self._run.workspace

    def run(self, words: Sequence[str], **options: object) -> Ran:
        given = command_input(words, **options)  # type: ignore[arg-type]
        return read_outcome(self._run.call(TOOL, given, wait_s=self._wait_s), str(given["command"]))

    async def arun(self, words: Sequence[str], **options: object) -> Ran:
        given = command_input(words, **options)  # type: ignore[arg-type]
        future = asyncio.wrap_future(self._run.submit(TOOL, given, wait_s=self._wait_s))
        return read_outcome(await future, str(given["command"]))

    def shell(self, line: str, **options: object) -> Ran:
        return self.run(shell_words(line), **options)

    # ── files ──

    def script(self, script: str, *words: str, stdin: str | None = None) -> Ran:
        """One of ours: paths come in as `$1` …, where policy sees them as what they are."""
        return self.run(["sh", "-c", script, "sh", *words], stdin=stdin)

    def read(self, path: str) -> bytes:
        """OSErrors of their own kind for what is not there, is a folder, or may not be read."""
        found = bytearray()
        while True:
            page = decoded(self.script(_READ, path, str(len(found) + 1), str(READ_BYTES)), path)
            found += page
            if len(page) < READ_BYTES:
                return bytes(found)

    def write(self, path: str, data: bytes) -> None:
        """Folders on the way are made; an existing link is written through."""
        for start in range(0, max(1, len(data)), WRITE_BYTES):
            chunk = base64.b64encode(data[start : start + WRITE_BYTES]).decode()
            check(self.script(_WRITE if start == 0 else _APPEND, path, stdin=chunk), path)


# ── inputs ───────────────────────────────────────────────────────────────────


def plain_words(line: str) -> list[str] | None:
    """A line that is one plain program is that program: policy then decides about it, and not about a shell."""
    found = programs_of(line)
    if found is None or len(found) != 1 or ">" in line or not shutil.which(found[0].words[0], path=PROGRAMS):
        return None
    return list(found[0].words)


def without_shell(words: Sequence[str]) -> list[str]:
    """`bash --login -c LINE` as the program in the line, where it is one."""
    if len(words) >= 3 and words[0] in ("bash", "sh") and words[-2] in ("-c", "-lc") and _only_options(words[1:-2]):
        return plain_words(words[-1]) or list(words)
    return list(words)


def _only_options(words: Sequence[str]) -> bool:
    return all(word in ("--login", "-l") for word in words)


def shell_words(line: str) -> list[str]:
    return plain_words(line) or code_words(line)


def code_words(line: str) -> list[str]:
    if len(line.encode("utf-8", "surrogateescape")) <= MAX_ARG_BYTES:
        return ["sh", "-c", line]
    pieces, text = [], line
    while text:
        size = PIECE_BYTES
        while len(text[:size].encode("utf-8", "surrogateescape")) > PIECE_BYTES:
            size = size * 3 // 4
        pieces.append(text[:size])
        text = text[size:]
    return ["sh", "-c", _JOIN, "sh", *pieces]


def command_input(
    words: Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout_s: float | None = None,
) -> dict[str, Json]:
    """`env` is set by env(1) inside: what a program of the agent's sees is the agent's affair."""
    argv = [*(["env", *(f"{name}={value}" for name, value in env.items())] if env else []), *words]
    if len(argv) > MAX_ARGS + 1 or any(len(word.encode("utf-8", "surrogateescape")) > MAX_ARG_BYTES for word in argv):
        argv = code_words(shlex.join(argv))
    given: dict[str, Json] = {"command": argv[0], "args": argv[1:]}
    if cwd:
        given["cwd"] = cwd
    if stdin:
        given["stdin"] = stdin
    if timeout_s is not None:
        given["timeout_ms"] = max(1, int(timeout_s * 1000))
    return given


# ── outcomes ─────────────────────────────────────────────────────────────────


def read_outcome(outcome: Outcome, command: str = "") -> Ran:
    output = outcome.output
    stdout, stderr = str(output.get("stdout", "")), str(output.get("stderr", ""))
    code, number = output.get("exit_code"), output.get("signal")
    if outcome.status is Status.COMPLETED:
        exit_code = code if isinstance(code, int) else 128 + number if isinstance(number, int) else 1
        return Ran(exit_code=exit_code, stdout=stdout, stderr=stderr, outcome=outcome)
    return Ran(
        exit_code=_own_code(outcome, command),
        stdout=stdout,
        stderr=stderr + explain(outcome),
        timed_out=outcome.status is Status.TIMEOUT,
        truncated=outcome.status is Status.QUOTA_EXCEEDED,
        outcome=outcome,
    )


def _own_code(outcome: Outcome, command: str) -> int:
    """As `palyra run` exits; a program that is on no list and nowhere to be found is not there, as for a shell."""
    if outcome.reason is Reason.EXECUTABLE_DENIED and command and shutil.which(command, path=PROGRAMS) is None:
        return MISSING
    codes = {Status.TIMEOUT: 124, Status.QUOTA_EXCEEDED: 137, Status.PENDING_APPROVAL: DENIED, Status.REFUSED: DENIED}
    return codes.get(outcome.status, 125)


def explain(outcome: Outcome) -> str:
    """For a model: why, and what would help."""
    code = outcome.reason.value if outcome.reason else outcome.status.value
    hint = f"\nhint: {outcome.hint}" if outcome.hint else ""
    return f"palyra: {code}: {outcome.message or ''}{hint}\n"


# ── files, inside ────────────────────────────────────────────────────────────

_ERRORS: Mapping[int, type[OSError]] = {
    102: FileNotFoundError,
    113: PermissionError,
    117: FileExistsError,
    120: NotADirectoryError,
    121: IsADirectoryError,
    DENIED: PermissionError,
}
"""What our scripts exit with: 100 and the errno."""
PARENT = 'p=$(dirname -- "$1"); while ! test -e "$p"; do p=$(dirname -- "$p"); done; test -d "$p" || exit 120; '
_READ = (
    'test -e "$1" || exit 102; test -d "$1" && exit 121; test -f "$1" || exit 1; test -r "$1" || exit 113; '
    'tail -c "+$2" -- "$1" | head -c "$3" | base64'
)
_WRITE = (
    f'test -d "$1" && exit 121; test -e "$1" && ! test -f "$1" && exit 1; {PARENT}'
    'mkdir -p -- "$(dirname -- "$1")" || exit 113; test -e "$1" && ! test -w "$1" && exit 113; base64 -d > "$1"'
)
_APPEND = 'base64 -d >> "$1"'


def check(ran: Ran, path: str) -> None:
    if ran.exit_code != 0:
        said = ran.stderr.strip() or f"exit code {ran.exit_code}"
        raise _ERRORS.get(ran.exit_code, OSError)(f"{path}: {said}")


def decoded(ran: Ran, path: str) -> bytes:
    """A known secret was replaced on its way, which no longer is base64: refused, not put together wrongly."""
    check(ran, path)
    try:
        return base64.b64decode("".join(ran.stdout.split()), validate=True)
    except ValueError:
        raise PermissionError(f"{path}: it contains a secret stored here, so it is not returned") from None
