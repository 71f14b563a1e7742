"""After a crash: calls that had started and whose owner is gone are closed as interrupted, attested like any other.

Run at every start and before the journal is verified. A call whose owner still lives is left alone, so a second
process in the same home neither waits for it nor marks it. A row that cannot be closed (somebody edited it) is left as
it is and named in the log: it must not keep anybody from starting, and `palyra journal verify` finds it.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from palyra.engine.ports import Ports
from palyra.errors import DuplicateCall
from palyra.model.record import Intent, StoredCall

log = logging.getLogger("palyra.engine")


async def close_interrupted(stored: StoredCall, ports: Ports) -> None:
    """`StateError` when nothing proves that this call ever started."""
    intents = await ports.journal.find_intents((stored,))
    await _close(stored, intents.get(stored.call_id), ports)


async def _close(stored: StoredCall, intent: Intent | None, ports: Ports) -> None:
    from palyra.engine.interrupted import close_as_interrupted  # seldom needed, and every start comes by here

    with suppress(DuplicateCall):  # another process closed it in the meantime
        await ports.journal.close_call(close_as_interrupted(stored, intent, ports))


async def recover(ports: Ports) -> int:
    """Close every call whose owner is gone; returns how many there were."""
    left = [call for call in await ports.journal.open_calls() if not _is_held(call, ports)]
    intents = await ports.journal.find_intents(left) if left else {}
    closed = 0
    for stored in left:
        try:
            await _close(stored, intents.get(stored.call_id), ports)
            closed += 1
        except Exception as error:  # noqa: BLE001  # one bad row must not stop the others, nor every command
            log.warning("call %.40s was left open: %s", stored.call_id, error)
    return closed


def _is_held(call: StoredCall, ports: Ports) -> bool:
    return call.owner is not None and not ports.owners.is_gone(call.owner)
