"""What one bundle decides that another does not: over policies by @id, over examples, over any requests.

Rules: nothing is guessed from the texts; every request is put before both bundles, and what they say is compared.
Requests that neither bundle can tell apart count as one. Not here: where the requests come from (examples beside the
bundles, the journal), deciding (decide).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from palyra.canon import Json
from palyra.policy.bundle import PolicyBundle
from palyra.policy.decide import verdict_of
from palyra.policy.request import Request
from palyra.policy.verdict import Verdict
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChanges:
    """By @id."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Flip:
    """Requests that the two bundles decide differently and cannot tell apart: the first of them, and how many."""

    name: str
    request: Request
    was: Verdict
    now: Verdict
    count: int = 1

    def as_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "count": self.count,
            "principal": str(self.request.principal),
            "tool": self.request.tool,
            "program": self.request.context["effective_program"],
            "was": _said(self.was),
            "now": _said(self.now),
        }


def compare_texts(old: PolicyBundle, new: PolicyBundle) -> TextChanges:
    both = old.index.keys() & new.index.keys()
    return TextChanges(
        added=tuple(sorted(new.index.keys() - both)),
        removed=tuple(sorted(old.index.keys() - both)),
        changed=tuple(sorted(name for name in both if old.text_of(name) != new.text_of(name))),
    )


def compare_requests(
    old: PolicyBundle, new: PolicyBundle, requests: Iterable[tuple[str, Request]]
) -> tuple[int, tuple[Flip, ...]]:
    """How many requests there were, and those whose effect differs, in the order they came."""
    flips: dict[object, Flip | None] = {}
    count = 0
    for name, request in requests:
        count += 1
        key = (old.cedar.key(request), new.cedar.key(request))
        if key in flips:
            known = flips[key]
            if known is not None:
                known.count += 1
            continue
        was, now = verdict_of(old, request), verdict_of(new, request)
        differs = effect_of(was) != effect_of(now)
        flips[key] = Flip(name=name, request=request, was=was, now=now) if differs else None
    return count, tuple(flip for flip in flips.values() if flip is not None)


def effect_of(verdict: Verdict) -> str:
    """An error is a denial to whoever called."""
    return "deny" if verdict.effect == "error" else verdict.effect


def counts_of(flips: Iterable[Flip]) -> Mapping[str, int]:
    """How many requests would newly be allowed, asked about, denied."""
    counts = {"newly_allowed": 0, "newly_asked": 0, "newly_denied": 0}
    names = {"allow": "newly_allowed", "ask": "newly_asked", "deny": "newly_denied"}
    for flip in flips:
        counts[names[effect_of(flip.now)]] += flip.count
    return counts


def _said(verdict: Verdict) -> dict[str, Json]:
    return {
        "effect": effect_of(verdict),
        "reason": verdict.code.value if verdict.code else None,
        "policies": list(verdict.policies),
    }
