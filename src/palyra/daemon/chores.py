"""What the daemon does now and then, beside answering: requests nobody decided are ended, enabled skills audited anew.

Rules: one at a time and in turn; one that fails is told in the log and tried again at its next time, and never ends the
daemon. Not here: what the chores themselves do (wiring).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from palyra.daemon.sessions import Sessions
from palyra.errors import StateError
from palyra.state.trouble import NoRoom
from palyra.state.writer import Writer
from palyra.values import dataclass
from palyra.wiring.daemon_note import Stamp
from palyra.wiring.embedded import Installation

log = logging.getLogger("palyra.daemon")
LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    name: str
    every_s: float
    work: Callable[[], Awaitable[object]]


def chores_of(installation: Installation) -> tuple[Chore, ...]:
    return (
        Chore(name="approvals nobody decided", every_s=30.0, work=installation.approvals.expire_overdue),
        Chore(name="background processes whose keeper is gone", every_s=60.0, work=installation.background.recover),
        Chore(name="skills to audit again", every_s=600.0, work=installation.skills.audit_due),
    )


def note_sessions(sessions: Sessions) -> Chore:
    return Chore(name="when sessions were used", every_s=30.0, work=sessions.note_used)


def watch_journal(writer: Writer, fail: Callable[[StateError], None]) -> Chore:
    """A full disk is waited out. After any other failure only a new start can record, so the daemon ends for one."""

    async def look() -> None:
        failure = writer.failure()
        if failure is not None and not isinstance(failure, NoRoom):
            fail(failure)

    return Chore(name="whether the journal can be written", every_s=1.0, work=look)


def watch_config(read: Stamp, stamp: Callable[[], Stamp]) -> Chore:
    """It is read at the start alone: whoever changes it is told that this daemon goes on by the older one."""
    told = read

    async def look() -> None:
        nonlocal told
        now = stamp()
        if now != told and now != read:
            log.warning("the configuration changed: this daemon uses the old one until it is restarted")
        told = now

    return Chore(name="whether the configuration changed", every_s=5.0, work=look)


async def do_chores(chores: Sequence[Chore], *, monotonic_us: Callable[[], int]) -> None:
    """Until it is cancelled. The first time of each comes after its own pause."""
    due = {chore.name: monotonic_us() + int(chore.every_s * 1e6) for chore in chores}
    while True:
        await asyncio.sleep(LOOK_S)
        for chore in chores:
            if monotonic_us() < due[chore.name]:
                continue
            try:
                await chore.work()
            except Exception:
                log.exception("chore failed: %s", chore.name)
            due[chore.name] = monotonic_us() + int(chore.every_s * 1e6)
