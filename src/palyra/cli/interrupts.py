"""Ctrl-C, from the first import to the last prompt.

Touches: the handling of SIGINT in Palyra's own processes, never in an embedder's. Python raises KeyboardInterrupt
wherever it stands. Within an import that can be in the middle of a library's own start, which takes it for an error of
its own, or crashes: a command that is interrupted while it still loads what it needs has nothing to tidy up, and ends
at once. At a prompt below an event loop the first Ctrl-C would only ask the loop to stop, which does not run.

Not here: what becomes of a call that is under way (cli/session), how a daemon ends (cli/serve).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

INTERRUPTED = 130
"""What a shell says of a program that Ctrl-C ended."""
_IMPORTS = "<frozen importlib._bootstrap>"


def watch() -> None:
    """Where nobody chose otherwise: a shell has its background jobs ignore it."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, signal.SIG_DFL):  # Python's own; ours (entry)
        signal.signal(signal.SIGINT, _end_or_raise)


def heard(*numbers: signal.Signals) -> list[signal.Signals]:
    """Without those that whoever started us had us ignore: `nohup` means SIGHUP, a script's own background jobs get no
    Ctrl-C. They go on being ignored."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def run(work: Coroutine[Any, Any, T]) -> T:
    """In a loop of its own, which cancels its task at the first Ctrl-C, where it finds Python's own handler."""
    from palyra import loops

    if signal.getsignal(signal.SIGINT) is _end_or_raise:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return loops.run(work)


def ask(prompt: str) -> str:
    """For a secret, on the terminal, unseen; also from below an event loop."""
    import getpass

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return getpass.getpass(prompt)
    finally:
        signal.signal(signal.SIGINT, before)


def _end_or_raise(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTS:
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt
