"""Touches: the terminal of `palyra run` and `palyra call`. A person confirms their own call there, and only there.

Rules: stdin and stderr are both the terminal, never a pipe; what was typed before the question does not count as its
answer; only a whole `yes` is a yes, and only `no` or `n` is a no, which lasts: a `y` or a slip of the keys is asked
about again, and decides nothing. Whether it may be confirmed at all is the engine's to say.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.canon import Json
    from palyra.engine.trip import Confirm
    from palyra.model.approval import Approval


_ANSWERS = {"yes": True, "no": False, "n": False}
_ASKED = "Run it, once? Type yes or no: "
_AGAIN = "That is neither yes nor no. Type yes or no: "
_QUESTIONS = (_ASKED, _AGAIN, _AGAIN)


def at_terminal() -> Confirm | None:
    return ask if _is_terminal(0) and _is_terminal(2) else None


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


async def ask(approval: Approval, shown: Mapping[str, Json]) -> bool | None:
    """Yes, no, or nothing: without an answer the request goes on waiting for somebody else."""
    from palyra.cli.approval_text import env_lines, lines

    say("palyra asks before this runs:", err=True)
    for line in (*env_lines(shown), *lines(approval, shown)):  # what matters most next to the question
        say(f"  {line}", err=True)
    for question in _QUESTIONS:
        _forget_typed_ahead()  # before the question is seen, so that no answer to it is thrown away
        sys.stderr.write(question)
        sys.stderr.flush()
        word = (await _line()).strip().lower()
        if word in _ANSWERS:
            return _ANSWERS[word]
        if not word:
            say("", err=True)
            return None
    return None


def _forget_typed_ahead() -> None:
    """A paste, or a program that writes to the terminal ahead of us, must not have answered already."""
    try:
        import termios
    except ImportError:  # Windows has no such queue to empty
        return
    termios.tcflush(0, termios.TCIFLUSH)


async def _line() -> str:
    """One line, without holding up the loop: Ctrl-C and somebody else's decision must still come through."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def came() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(0, came)
    try:
        await ready
    finally:
        loop.remove_reader(0)
    return os.read(0, 4096).decode("utf-8", "replace")
