"""Plans as they go to nodes: which of them can, with what workspace, as which bytes.

A call that is asked again comes with the very plan it had, so its bytes and their digest are made once. A crossing
holds its plan, so that no other plan has that one's id meanwhile. Bounded in number and size.
Not here: what of a plan another machine can do (cluster/moving), sending it (cluster/dispatching).
"""

from __future__ import annotations

from dataclasses import dataclass

from palyra.canon import canonical, sha256_hex
from palyra.cluster import moving
from palyra.cluster.node import MOST_PLANS, PLAN_BYTES
from palyra.errors import StateError
from palyra.launch.values import to_json
from palyra.model.plan import ProcessPlan


@dataclass(frozen=True, slots=True)
class Crossing:
    plan: ProcessPlan
    workspace: str
    body: bytes
    sha256: str


class Crossings:
    def __init__(self) -> None:
        self._known: dict[int, Crossing] = {}

    def workspace_of(self, plan: ProcessPlan) -> str | None:
        """None for a plan that cannot be run on another machine."""
        known = self._find(plan)
        return moving.workspace_of(plan) if known is None else known.workspace

    def make(self, plan: ProcessPlan, workspace: str) -> Crossing:
        known = self._find(plan)
        if known is not None:
            return known
        try:
            body = canonical(to_json(plan))
        except (TypeError, ValueError) as error:
            raise StateError(f"The plan cannot be sent: {error}.") from error
        made = Crossing(plan, workspace, body, sha256_hex(body))
        if len(body) <= PLAN_BYTES:
            while len(self._known) >= MOST_PLANS:
                del self._known[next(iter(self._known))]
            self._known[id(plan)] = made
        return made

    def _find(self, plan: ProcessPlan) -> Crossing | None:
        known = self._known.get(id(plan))
        return known if known is not None and known.plan is plan else None
