"""Which plans a proof speaks for: those of the very profile it was made in, and no other sandbox of the same launcher.

A call whose network is shared, that is shown more folders, runs under another uid or with another filter is held by
other walls than those that were attacked; an attestation of it must not refer to the proof. Where the workspace is and
how large the private folders may grow are no part of a profile. Pure. Not here: making and keeping proofs (proof).
"""

from __future__ import annotations

from functools import lru_cache

from palyra.model.plan import Plan, ProcessPlan, Word
from palyra.sandbox.mounts import workspace_of
from palyra.values import dataclass

WORKSPACE = "/srv/palyra-proof"
"""A made-up workspace: what is compared is the same for every call's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    proof_id: str
    backend: str
    launcher: tuple[Word, ...]
    data: tuple[bytes, ...]
    """Of the plan that was attacked: the words of its launcher, and what they refer to, the filter among it."""

    def id_for(self, plan: Plan) -> str | None:
        """What an attestation of this plan may refer to."""
        if not isinstance(plan, ProcessPlan) or plan.backend != self.backend or plan.face is not None:
            return None
        same = plan.data == self.data and without_place(plan.launcher) == without_place(self.launcher)
        return self.proof_id if same else None


@lru_cache(maxsize=64)
def without_place(launcher: tuple[Word, ...]) -> tuple[Word, ...]:
    """The words of a bubblewrap launcher, for any workspace and any size of its private folders."""
    workspace = workspace_of(launcher)
    words = [WORKSPACE if word == workspace else word for word in launcher]
    for at, word in enumerate(launcher):
        if word == "--size":
            words[at + 1] = ""
    return tuple(words)
