"""One process that a supervisor keeps: its order, its sandbox, its log's writing end, and how its end reads.

Rules: raw output is seen by nobody: the executor feeds the redactor, the redactor the log; a signal goes by pidfd, or
to the group of a leader that is not reaped yet, so it can never reach a process that has the number by now.

Not here: starting and stopping (background).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

from palyra.errors import Reason
from palyra.launch import _os
from palyra.launch.ending import ask_to_end
from palyra.launch.held import Held
from palyra.launch.ringlog import RingLog
from palyra.model.outcome import Connection, Execution, Status, StreamName
from palyra.model.process import BackgroundProcess, ProcessStatus, StartOrder
from palyra.redact.both import BothStreams


class LogSink:
    """Takes raw bytes; writes what the redactor lets pass."""

    def __init__(self, ring: RingLog, secrets: tuple[tuple[str, bytes], ...]) -> None:
        self._ring = ring
        self._redacting = BothStreams(secrets, lagging=True)
        self.connections: tuple[Connection, ...] = ()

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        self._ring.write(stream, self._redacting.feed(stream, chunk))

    def reached(self, connections: Sequence[Connection]) -> None:
        self.connections = tuple(connections)

    def finish(self, *, is_whole: bool = True) -> None:
        """Not whole: a program that was ended midway may have been writing a secret, and what is undecided is lost."""
        for stream, clean in self._redacting.finish() if is_whole else self._redacting.cut():
            self._ring.write(stream, clean)
        self._ring.close()

    @property
    def redactions(self) -> Mapping[str, int]:
        return self._redacting.counts


class Kept:
    """One process from the moment its place was taken until its end is recorded."""

    def __init__(self, order: StartOrder) -> None:
        self.order = order
        self.held: Held | None = None
        self.process: BackgroundProcess | None = None
        self.failure = ""
        self.stopped_by: str | None = None
        self.ready = asyncio.Event()
        """It runs, or it never will."""
        self.over = asyncio.Event()

    def signal(self, number: int) -> None:
        """Once its descriptors are closed it is over, and there is nothing to signal."""
        if self.held is not None and self.held.program_fd >= 0:
            if number == signal.SIGTERM:
                ask_to_end(self.held)
            else:
                _os.send_signal(self.held.program_fd, number)


def ended_by_itself(execution: Execution, *, stopped_by: str | None) -> bool:
    """Whether what it wrote is all that it was about to write."""
    return execution.status is Status.COMPLETED and (stopped_by is None or execution.signal is None)


def ended_process(
    process: BackgroundProcess, execution: Execution, *, stopped_by: str | None, at: int
) -> BackgroundProcess:
    """How an execution reads as the end of a background process."""
    if stopped_by is not None:
        status = ProcessStatus.STOPPED
    elif execution.status is Status.TIMEOUT:
        status = ProcessStatus.EXPIRED
    else:
        status = ProcessStatus.EXITED
    return replace(
        process,
        status=status,
        ended_unix_ms=at,
        exit_code=execution.exit_code,
        signal=execution.signal,
        reason=None if execution.reason is Reason.TIMEOUT else execution.reason,
        stopped_by=stopped_by,
        usage=execution.usage,
        stdout_bytes=execution.stdout_bytes,
        stderr_bytes=execution.stderr_bytes,
    )
