"""Taking a policy's conditions apart, so that what is known early is asked early.

Cedar evaluates `when a && b unless c || d` from left to right and stops at the first part that fails. The leading parts
that look at nothing but yes-or-no facts are asked once for each combination of these; where one of them fails, Cedar
would never have come to the rest, neither to its answer nor to its errors. Nothing here interprets Cedar's language:
parts are moved whole, in their order, and Cedar itself is asked about them (cedar).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from palyra.canon import Json
from palyra.policy.inputs import INPUT
from palyra.policy.request import ATTRIBUTES
from palyra.values import dataclass

_ALL = frozenset({*ATTRIBUTES, INPUT})
FLAGS = frozenset(name for name, kind in ATTRIBUTES.items() if kind is bool)


@dataclass(frozen=True, slots=True)
class Halves:
    """One policy as two that hold together exactly when it does."""

    early: Mapping[str, Json]
    """Its scope and its leading parts about flags, as a permit."""
    late: Mapping[str, Json]
    """The policy without these parts."""


def halve(policy: Mapping[str, Json]) -> Halves:
    parts = conjuncts(policy["conditions"])
    count = next((at for at, part in enumerate(parts) if not attributes_used([part]) <= FLAGS), len(parts))
    return Halves(
        early={**policy, "effect": "permit", "conditions": parts[:count], "annotations": {}},
        late={**policy, "conditions": parts[count:]},
    )


def conjuncts(conditions: Iterable[Json]) -> list[Json]:
    """The same conditions in smaller pieces, in the order of evaluation: `when a && b` holds when both do, and
    `unless a || b` when neither does."""
    pieces: list[Json] = []
    for condition in conditions:
        kind = condition["kind"]
        joint = "&&" if kind == "when" else "||"
        stack = [condition["body"]]
        while stack:
            node = stack.pop()
            if isinstance(node, dict) and joint in node:
                stack += [node[joint]["right"], node[joint]["left"]]
            else:
                pieces.append({"kind": kind, "body": node})
    return pieces


def attributes_used(conditions: Iterable[Json]) -> frozenset[str]:
    """Which context attributes these expressions look at; all of them if one takes the context whole."""
    found: set[str] = set()
    stack: list[Json] = list(conditions)
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(node)
        elif isinstance(node, dict):
            if node.get("Var") == "context":
                return _ALL
            for operator, operand in node.items():
                if operator in (".", "has") and isinstance(operand, dict) and operand.get("left") == {"Var": "context"}:
                    found.add(operand["attr"])
                else:
                    stack.append(operand)
    return frozenset(found & _ALL)
