"""`palyra journal verify --replay`: every recorded decision made again from its recorded facts.

Rules: read only, from one snapshot, of the home or of the cluster's server; by the very bundle that decided, which is
kept under its digest. Where that is no longer kept the call is named; where retention has removed a call's own record
there is nothing to replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palyra.cli.journal_home import reading
from palyra.cli.options import Settings
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.canon import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """How many decisions were made again, and which calls' do not follow from their facts, with why."""

    decisions: int
    wrong: tuple[tuple[str, str], ...]

    @property
    def holds(self) -> bool:
        return not self.wrong

    def as_json(self) -> dict[str, Json]:
        items: list[Json] = [{"call_id": call_id, "detail": detail} for call_id, detail in self.wrong]
        return {"decisions": self.decisions, "items": items, "next": None}

    def tell_people(self) -> None:
        from palyra.cli.render import visible_line
        from palyra.cli.say import say

        for call_id, detail in self.wrong:
            say(visible_line(f"REPLAY: call {call_id}: {detail}"))
        say(f"{self.decisions} decisions were made again; {len(self.wrong)} differ or cannot be repeated.")


def check_again(settings: Settings) -> Again:
    from palyra.wiring.history import check_decisions

    with reading(settings) as journal:
        decisions, wrong = check_decisions(journal.query, journal.lookup)
    return Again(decisions=decisions, wrong=tuple(wrong))
