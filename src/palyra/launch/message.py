"""What is said to a held shell: one message that makes it become the program. Pure.

A held shell is a `/bin/sh` that waits inside a finished sandbox, reading from descriptor 9. The message closes 9,
sets a trap, changes folder, lowers limits, sets the environment and execs; quoting carries every byte but NUL.
If any step fails the trap writes a nonce to stderr that the program could not know: that, and nothing else, means
"the program was never started". The second line ends a shell whose `cd` failed.

Not here: starting the shell (held), looking for the nonce (capture).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from palyra.late import late
from palyra.launch.limits import Step

CONTROL, READY = 9, 8
# when the machine runs out of memory the kernel should end the call, not the engine
_FIRST_TO_GO = "{ echo 500 2>/dev/null >/proc/self/oom_score_adj || :; }"
HELD_SCRIPT = f"{_FIRST_TO_GO}; echo r >&{READY}; exec {READY}>&-; . /dev/fd/{CONTROL}"
"""What needs no call is done ahead of it."""
NONCE_START = b"\x1f"
"""A byte that programs do not end their stderr with, so that nothing is held back while looking for a nonce."""

MAX_REMEMBERED_CHARS = 4096
"""Of arguments; what may be large is not kept."""
_KEY = late(r"[A-Za-z_][A-Za-z0-9_]*")
# dash exports PWD and OLDPWD by itself, busybox PATH; bash counts SHLVL and leaves without the trap when exec fails
_CLEAN = b'unset PWD OLDPWD SHLVL PATH && { [ -z "$BASH_VERSION" ] || shopt -s execfail; }'


def launch_message(
    *,
    program: str,
    arguments: Sequence[str],
    env: Sequence[tuple[str, str]],
    cwd: str,
    limits: Sequence[Step],
    nonce: bytes,
    limit_first: bool = False,
    busybox: bool = False,
) -> bytes:
    """Raises ValueError for what no exec can carry: a NUL, a relative program or folder, a key that is no name."""
    known = sum(map(len, arguments)) <= MAX_REMEMBERED_CHARS
    steps = (_steps if known else _steps.__wrapped__)(
        program, tuple(arguments), tuple(env), cwd, tuple(limits), limit_first=limit_first, busybox=busybox
    )
    return b"exec %d<&- && trap %b EXIT && %b" % (CONTROL, quote(b"echo " + quote(nonce) + b" >&2"), steps)


@lru_cache(maxsize=64)
def _steps(
    program: str,
    arguments: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    cwd: str,
    limits: tuple[Step, ...],
    *,
    limit_first: bool,
    busybox: bool,
) -> bytes:
    """Remembered: the same few commands are run over and over."""
    if not program.startswith("/") or not cwd.startswith("/"):
        raise ValueError("the program and its folder must be absolute paths")
    steps = [
        b"cd -P -- " + quote(_bytes(cwd)),
        _CLEAN,
        *([_limit_first(limits)] if limit_first else []),
        *(_ulimit(step, busybox=busybox) for step in limits),
    ]
    for key, value in env:
        if not _KEY.fullmatch(key):
            raise ValueError(f"{key!r} cannot be the name of an environment variable")
        steps.append(b"export " + key.encode() + b"=" + quote(_bytes(value)))
    steps.append(b"exec " + b" ".join(quote(_bytes(word)) for word in (program, *arguments)))
    return b" && ".join(steps) + b"\nexit 125\n"


_NAMES = {"t": b"cpu", "d": b"data", "s": b"stack", "n": b"nofile", "f": b"fsize", "c": b"core", "processes": b"nproc",
          "rtprio": b"rtprio", "nice": b"nice"}  # fmt: skip
_IN_NO_SHELL = ("rtprio", "nice")


def _limit_first(limits: Sequence[Step]) -> bytes:
    """From inside, where it is allowed: the sandbox's first process has our own credentials."""
    given = (b"--%b=%d:%d" % (_NAMES[step.flag], *step.exact) for step in limits)
    return b"/usr/bin/prlimit --pid 1 " + b" ".join(given)


def _ulimit(step: Step, *, busybox: bool) -> bytes:
    soft, hard = (b"ulimit -%c -%%b %d" % (which, value) for which, value in ((b"S", step.soft), (b"H", step.hard)))
    both = soft + b" && " + hard
    if step.flag in _IN_NO_SHELL:
        return b"/usr/bin/prlimit --pid $$ --%b=%d:%d" % (_NAMES[step.flag], *step.exact)
    if step.flag != "processes":
        return both % (step.flag.encode(), step.flag.encode())
    if busybox:
        return both % (b"u", b"u")
    # -p in dash, where -u is unknown; -u in bash, where -p is the size of a pipe
    return b'if [ -z "$BASH_VERSION" ]; then ' + both % (b"p", b"p") + b"; else " + both % (b"u", b"u") + b"; fi"


def quote(text: bytes) -> bytes:
    return b"'" + text.replace(b"'", b"'\\''") + b"'"


def nonce_from(random: bytes) -> bytes:
    return NONCE_START + random.hex().encode()


def _bytes(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise ValueError("an argument, variable or folder holds a NUL")
    return raw
