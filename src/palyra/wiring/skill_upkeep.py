"""Looks after installed skills while a daemon runs: whatever is due for another audit gets one, now and then.

An audit that fails quarantines its skill by itself (wiring/skill_acts); here only the log is told.
"""

from __future__ import annotations

import asyncio
import logging

from palyra.errors import PalyraError
from palyra.wiring.skill_acts import SkillDesk

log = logging.getLogger("palyra.skills")

EVERY_S = 600.0
FIRST_S = 30.0
"""Not at once: a start has enough to do."""


async def audit_now_and_then(desk: SkillDesk, *, first_s: float = FIRST_S, every_s: float = EVERY_S) -> None:
    """Until it is cancelled. What goes wrong with one round is tried again in the next."""
    await asyncio.sleep(first_s)
    while True:
        try:
            for done in await desk.audit_due():
                if done.changed:
                    log.warning("%s is %s: %s", done.standing.skill_id, done.standing.status, done.standing.reason)
        except (PalyraError, OSError) as error:
            log.warning("skills could not be audited: %s", error)
        await asyncio.sleep(every_s)
