"""Exceptions in Cedar: a permit with `@lifts("ID ID …")` is an exception of the forbids that it names.

Cedar lets a forbid win over every permit. So at load each named forbid gets one more clause, `unless { what the permit
says }`, in its parsed form; its text stays as it is.

- Exceptions add up: each is a clause of its own, and none replaces a policy.
- A forbid marked @final is never lifted. A name that no policy bears lifts nothing: an upgrade may remove a guard.
- The permit's principal, action and resource are `==` or open, so that they can be written as a condition.

Not here: writing exceptions (exceptions), which files hold them (load, store).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palyra.canon import Json

_VARIABLES = ("principal", "action", "resource")


def check_lifting(tree: Mapping[str, Json]) -> str:
    """Return why this policy cannot have @lifts; empty when it can, or has none."""
    if "lifts" not in tree["annotations"]:
        return ""
    if tree["effect"] != "permit":
        return "Only a permit lifts forbids."
    if any(tree[name]["op"] not in ("==", "All") for name in _VARIABLES):
        return "A permit with @lifts names its principal, action and resource with ==, or leaves them open."
    return ""


def apply_exceptions(trees: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """Return the policies with an `unless` in each forbid for every permit that lifts it."""
    clauses: dict[str, list[Json]] = {}
    for tree in trees:
        for name in (tree["annotations"].get("lifts") or "").split():
            clauses.setdefault(name, []).append({"kind": "unless", "body": _as_condition(tree)})
    return [_with_clauses(tree, clauses) for tree in trees] if clauses else list(trees)


def _with_clauses(tree: Mapping[str, Json], clauses: Mapping[str, list[Json]]) -> Mapping[str, Json]:
    notes = tree["annotations"]
    more = clauses.get(str(notes["id"]))
    if more is None or tree["effect"] != "forbid" or notes.get("final"):
        return tree
    return {**tree, "conditions": [*tree["conditions"], *more]}


def _as_condition(tree: Mapping[str, Json]) -> Json:
    parts: list[Json] = [_scope(name, tree[name]["entity"]) for name in _VARIABLES if tree[name]["op"] == "=="]
    for condition in tree["conditions"]:
        body = condition["body"]
        parts.append(body if condition["kind"] == "when" else {"!": {"arg": body}})
    whole = parts[0] if parts else {"Value": True}
    for part in parts[1:]:
        whole = {"&&": {"left": whole, "right": part}}
    return whole


def _scope(name: str, entity: Json) -> Json:
    return {"==": {"left": {"Var": name}, "right": {"Value": {"__entity": entity}}}}
