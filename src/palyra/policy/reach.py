"""Which tools a principal could ever be allowed to call: what is never possible is not worth showing or asking about.

Rules: some parts of a policy can be judged before there is a call (who, which tool, its capabilities; everything for a
built-in tool, whose facts are always the same), the others may turn out either way. A tool is out of reach when every
permit has a part that fails for certain, or some forbid holds for certain. Cedar judges the parts; one that cannot be
judged yet never hides a tool. Not here: deciding a call (decide), which does not rest on this.
"""

from __future__ import annotations

from dataclasses import fields

from palyra.canon import Json
from palyra.model.call import Principal
from palyra.model.job import Facts
from palyra.model.tool import ToolKind, ToolSpec
from palyra.policy.bundle import PolicyBundle
from palyra.policy.cedar import Compiled, compile_policies, evaluate
from palyra.policy.clauses import parts_of, trees_of
from palyra.policy.request import ATTRIBUTES, EXECUTE, LIST, Request, groups_of, known_context, roles_of
from palyra.policy.slices import attributes_used
from palyra.values import dataclass

_OF_THE_TOOL = frozenset(name for name in ATTRIBUTES if name.startswith("cap_")) | {"sensitive"}
_OF_A_BUILTIN = _OF_THE_TOOL | {field.name for field in fields(Facts)} - {"details"}


@dataclass(frozen=True, slots=True)
class _Known:
    """The parts that can be judged, and whose they are."""

    compiled: Compiled
    policies: tuple[tuple[bool, frozenset[str], bool], ...]
    """(is a permit, its judgeable parts, whether these are all of it)."""


class Reach:
    """Of one bundle; made once for a list of tools."""

    def __init__(self, bundle: PolicyBundle) -> None:
        trees = tuple(trees_of(bundle))
        self._known = {
            ToolKind.BUILTIN: _judgeable(trees, _OF_A_BUILTIN),
            ToolKind.PROCESS: _judgeable(trees, _OF_THE_TOOL),
        }

    def could(self, principal: Principal, spec: ToolSpec, *, roles: tuple[str, ...] | None = None) -> bool:
        """Whether some call of this tool might be allowed, perhaps after an approval."""
        known = self._known[ToolKind.BUILTIN if spec.kind is ToolKind.BUILTIN else ToolKind.PROCESS]
        names = roles_of(principal) if roles is None else roles
        if not names:
            return False
        permitted, forbidden = _judge(known, _request(principal, spec, names, EXECUTE))
        return permitted and not forbidden and not _judge(known, _request(principal, spec, names, LIST))[1]


def _request(principal: Principal, spec: ToolSpec, roles: tuple[str, ...], action: str) -> Request:
    context = known_context(spec)
    return Request(
        principal=principal, roles=roles, action=action, tool=spec.name, groups=groups_of(spec), context=context
    )


def _judgeable(trees: tuple[Json, ...], names: frozenset[str]) -> _Known:
    parts: dict[str, Json] = {}
    policies: list[tuple[bool, frozenset[str], bool]] = []
    for tree in trees:
        whole, own = True, set[str]()
        for part in parts_of(tree):
            if attributes_used(part["conditions"]) <= names:
                key = str(len(parts))
                parts[key] = {**part, "annotations": {"id": key}}
                own.add(key)
            else:
                whole = False
        policies.append((tree["effect"] == "permit", frozenset(own), whole))
    return _Known(compile_policies(parts), tuple(policies))


def _judge(known: _Known, request: Request) -> tuple[bool, bool]:
    """(some permit might apply, some forbid certainly does). What cannot be evaluated is not certain of anything."""
    answer = evaluate(known.compiled, [request])[0]
    if answer.error:
        return True, False
    held = frozenset(answer.policies)
    permitted = any(is_permit and parts <= held for is_permit, parts, _ in known.policies)
    forbidden = any(not is_permit and whole and parts <= held for is_permit, parts, whole in known.policies)
    return permitted, forbidden
