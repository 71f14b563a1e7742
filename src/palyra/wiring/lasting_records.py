"""The records of a keeper, which outlives a disk that is full for a while: the state is opened again for them.

A writer that could not write stops for good, for nobody knows what its disk holds: whoever uses it starts again. A
command does, at its next start. A keeper cannot: it has processes in its hands, and until the last of them had ended it
would start no other, and an end that it could not record would be shown as running, which no stop could end.

Rules: after a failure the state is opened anew before it is used again, and what that finds is checked as at any start;
the record of a start is tried once more, or nothing begins; that of an end is tried again until it is there, for as
long as a process may live at most, or until the keeper itself has to end. Not here: what is recorded (processes).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from palyra.errors import PalyraError, StateError
from palyra.launch.store import find_process
from palyra.model.outcome import Connection
from palyra.model.process import BackgroundProcess
from palyra.state.writer import Writer
from palyra.wiring.processes import ProcessRecords

log = logging.getLogger("palyra.keeper")

AGAIN_AFTER_S = 2.0
PATIENCE_S = 1800.0


class LastingRecords:
    """Fits `launch.background.Records`."""

    def __init__(self, writer: Writer, reopen: Callable[[], Writer]) -> None:
        self._writer = writer
        self._reopen = reopen
        self._failed: Writer | None = None
        self._ending = asyncio.Event()

    async def started(self, process: BackgroundProcess) -> None:
        writer = self._sound()
        try:
            await ProcessRecords(writer).started(process)
        except StateError:
            self._failed = writer
            writer = self._sound()
            if find_process(writer, process.process_id) is None:  # it may have been written after all
                await ProcessRecords(writer).started(process)

    async def ended(
        self, process: BackgroundProcess, redactions: Mapping[str, int], connections: Sequence[Connection] = ()
    ) -> None:
        clock = asyncio.get_running_loop().time
        until, told = clock() + PATIENCE_S, False
        while True:
            writer = self._writer
            try:
                writer = self._sound()
                await ProcessRecords(writer).ended(process, redactions, connections)
                return
            except StateError as error:
                self._failed = writer
                if self._ending.is_set() or clock() >= until:
                    raise
                if not told:
                    log.error("the end of process %s is not recorded yet: %s", process.process_id, error.detail)
                told = True
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), AGAIN_AFTER_S)

    def hurry(self) -> None:
        """The keeper has to end: what cannot be recorded at the next try is left to whoever opens the home."""
        self._ending.set()

    def close(self) -> None:
        self._writer.close()

    def _sound(self) -> Writer:
        if self._failed is self._writer:
            self._writer.close()
            self._writer = self._opened()
        return self._writer

    def _opened(self) -> Writer:
        try:
            return self._reopen()
        except StateError:
            raise
        except (PalyraError, OSError) as error:
            raise StateError(f"The state cannot be opened again: {error}.") from error
