"""After a crash: calls that had started and whose owner is gone are closed as interrupted, attested like any other.

Run at every start and before the journal is verified. A call whose owner still lives is left alone, so a second
process in the same home neither waits for it nor marks it.
"""

from __future__ import annotations

from contextlib import suppress

from palyra.engine.interrupted import close_as_interrupted
from palyra.engine.ports import Ports
from palyra.errors import DuplicateCall
from palyra.model.record import StoredCall


async def close_interrupted(stored: StoredCall, ports: Ports) -> None:
    with suppress(DuplicateCall):  # another process closed it in the meantime
        await ports.journal.close_call(close_as_interrupted(stored, ports))


async def recover(ports: Ports) -> int:
    """Close every call whose owner is gone; returns how many there were."""
    closed = 0
    for stored in await ports.journal.open_calls():
        if stored.owner is None or not ports.owners.is_alive(stored.owner):
            await close_interrupted(stored, ports)
            closed += 1
    return closed
