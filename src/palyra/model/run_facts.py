"""What a run has done so far, as policy sees it: labels that stay, and counters over the last minute.

Not here: when a label is set (engine/labels), keeping them (wiring/run_facts).
"""

from __future__ import annotations

from enum import StrEnum

from palyra.values import dataclass

WINDOW_MS = 60_000
MAX_COUNTED = 1000
"""Counters stop here: a policy that needs more counts too far."""


class RunLabel(StrEnum):
    """Once set it stays for the life of the run. The values are attributes of the context."""

    HAS_USED_SECRET = "has_used_secret"
    HAS_RECEIVED_OUTSIDE_CONTENT = "has_received_outside_content"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    labels: frozenset[RunLabel] = frozenset()
    calls_last_minute: int = 0
    """Calls that were made or refused, this one not counted."""
    denials_last_minute: int = 0
    """Of these, the refused ones."""


NO_FACTS = RunFacts()
"""Of a run that has done nothing yet."""
