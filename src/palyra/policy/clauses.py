"""Why a permit did not apply: each part of its scope and each clause of its conditions, evaluated one by one.

Every part becomes a little policy of its own, and Cedar is asked which of them hold; nothing here interprets
Cedar's language. `a && b` is taken apart, so the answer names `b` and not the whole condition.

Not here: what to do about it (explain).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import cedarpy
import orjson

from palyra.canon import Json
from palyra.late import late
from palyra.policy.bundle import PolicyBundle
from palyra.policy.cedar import compile_policies, evaluate, parse_tree
from palyra.policy.lifting import apply_exceptions
from palyra.policy.request import Request
from palyra.policy.slices import conjuncts
from palyra.policy.verdict import PolicyInfo
from palyra.values import dataclass

MAX_NEAREST = 3
_ANY = {"op": "All"}
_BODY = late(r"\b(?:when|unless)\s*\{(.*)\}\s*;\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearPermit:
    """A permit that did not apply, and the parts of it that failed, as Cedar text."""

    policy: PolicyInfo
    failed: tuple[str, ...]


def nearest_permits(bundle: PolicyBundle, request: Request) -> tuple[NearPermit, ...]:
    """The permits with the fewest failing parts, best first. None that is about another action."""
    found: list[NearPermit] = []
    for policy in trees_of(bundle):
        if policy["effect"] != "permit":
            continue
        parts = list(parts_of(policy))
        held = _which_hold(parts, request)
        failed = tuple(_reads(part) for at, part in enumerate(parts) if at not in held)
        about_this = not any(name.startswith("action ") for name in failed)
        if failed and about_this:
            found.append(NearPermit(policy=bundle.index[policy["annotations"]["id"]], failed=failed))
    found.sort(key=lambda near: (_about_others(near), len(near.failed), near.policy.id))
    return tuple(found[:MAX_NEAREST])


def _about_others(near: NearPermit) -> int:
    """A permit for someone else or another tool is farther away than one whose conditions fail."""
    return sum(name.startswith(("principal ", "resource ")) for name in near.failed)


def trees_of(bundle: PolicyBundle) -> Iterator[Mapping[str, Json]]:
    """Every policy in Cedar's JSON form, exceptions applied."""
    yield from apply_exceptions([*parse_tree("\n".join(bundle.policies.values())).values()])


def parts_of(policy: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
    """Policies that hold exactly when the parts of this one do."""
    for slot in ("principal", "action", "resource"):
        if policy[slot]["op"] != "All":
            yield _policy(**{slot: policy[slot]})
    for piece in conjuncts(policy["conditions"]):
        yield _policy(conditions=[piece])


def _reads(part: Mapping[str, Json]) -> str:
    if not part["conditions"]:
        return _scope_text(next(slot for slot in ("principal", "action", "resource") if part[slot] != _ANY), part)
    text = _condition_text(part)
    return text if part["conditions"][0]["kind"] == "when" else f"!({text})"


def _policy(**parts: Json) -> dict[str, Json]:
    base = {
        "effect": "permit",
        "principal": _ANY,
        "action": _ANY,
        "resource": _ANY,
        "conditions": [],
        "annotations": {},
    }
    return base | parts


def _document(policies: list[Json]) -> str:
    named = {str(at): policy for at, policy in enumerate(policies)}
    return orjson.dumps({"templates": {}, "staticPolicies": named, "templateLinks": []}).decode()


def _which_hold(parts: list[Json], request: Request) -> frozenset[int]:
    """Indices of the parts that hold. One that cannot be evaluated does not."""
    numbered = {str(at): {**part, "annotations": {"id": str(at)}} for at, part in enumerate(parts)}
    compiled = compile_policies(numbered)
    answer = evaluate(compiled, [request])[0]
    if not answer.error:
        return frozenset(map(int, answer.policies))
    if len(parts) == 1:
        return frozenset()
    return frozenset(at for at, part in enumerate(parts) if _which_hold([part], request))


def _text(part: Json) -> str:
    return cedarpy.policies_from_json_str(_document([part])).strip()


def _condition_text(part: Json) -> str:
    found = _BODY.search(_text(part))
    return " ".join(found[1].split()) if found else _text(part)


def _scope_text(slot: str, part: Json) -> str:
    inside = _text(part).removeprefix("permit(").split(")", 1)[0]
    return next(
        piece.strip()
        for piece in re.split(r", (?=principal|action|resource)", inside)
        if piece.strip().startswith(slot)
    )
