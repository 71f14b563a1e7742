"""The only door to the Cedar engine: text in, handles out; a request in, an answer out.

Rules: policies, schema and entities are parsed once into handles; per request only the attributes that some policy
looks at are sent, since building the request is what a decision costs. An answer that carries any error is an
error: Cedar skips a `forbid` that fails to evaluate, so its "allow" would mean nothing.

Not here: caps on the text (scan), what the answer means to the caller (verdict).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Generic, TypeVar

import cedarpy
import orjson

from palyra.canon import Json
from palyra.policy.request import ATTRIBUTES, Request

MAX_CACHED = 4096
_POSITION = re.compile(r"\bpolicy\d+\b")
V = TypeVar("V")


class Bounded(Generic[V]):
    """A mapping that forgets: when the young half is full the old half goes. Safe between threads without a lock,
    because each step is one assignment or one dict operation."""

    __slots__ = ("_half", "_old", "_young")

    def __init__(self, size: int = MAX_CACHED) -> None:
        self._half = max(1, size // 2)
        self._young: dict[Any, V] = {}
        self._old: dict[Any, V] = {}

    def get(self, key: object) -> V | None:
        value = self._young.get(key)
        return value if value is not None else self._old.get(key)

    def put(self, key: object, value: V) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


@dataclass(frozen=True, slots=True)
class Answer:
    """What Cedar said of one request. `error` is empty unless the answer cannot be trusted."""

    allowed: bool
    policies: tuple[str, ...] = ()
    """@ids of the determining policies, sorted."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Parsed policies, ready to be asked."""

    policies: cedarpy.PolicySet
    ids: Mapping[str, str]
    """Cedar's positional name (policy0 …) → @id."""
    looks_at: Mapping[str, frozenset[str]]
    """@id → the context attributes that policy looks at."""
    attributes: tuple[str, ...] = field(init=False)
    """All of them together, sorted: what is sent."""
    entities: Bounded[cedarpy.Entities] = field(default_factory=Bounded)
    pick: Callable[[Mapping[str, Any]], Any] = field(init=False)

    def __post_init__(self) -> None:
        names = tuple(sorted(frozenset().union(*self.looks_at.values())))
        object.__setattr__(self, "attributes", names)
        object.__setattr__(self, "pick", itemgetter(*names) if names else lambda _context: ())

    def key(self, request: Request) -> tuple[object, ...]:
        """Equal for two requests exactly when no policy of this set can tell them apart."""
        return (
            request.principal,
            request.roles,
            request.action,
            request.tool,
            request.groups,
            self.pick(request.context),
        )


@contextmanager
def _engine() -> Iterator[None]:
    """Whatever goes wrong inside the engine becomes a ValueError. A panic of Rust code arrives as a BaseException
    that no `except Exception` catches, and would leave the walk with a call that nobody decided."""
    try:
        yield
    except ValueError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise ValueError(f"{type(error).__name__}: {error}"[:500]) from error
        raise


def parse_schema(text: str) -> cedarpy.Schema:
    """Raises ValueError with Cedar's own words."""
    with _engine():
        return cedarpy.Schema.from_str(text)


def parse_tree(text: str) -> dict[str, dict[str, Json]]:
    """Cedar's JSON form of each policy by positional name. Raises ValueError for bad text and for templates."""
    with _engine():
        tree = orjson.loads(cedarpy.policies_to_json_str(text))
    if tree["templates"] or tree["templateLinks"]:
        raise ValueError("templates (?principal, ?resource) are not used here: write the policy out")
    policies: dict[str, dict[str, Json]] = tree["staticPolicies"]
    return {position: {"annotations": {}} | policy for position, policy in policies.items()}


def compile_policies(text: str, tree: Mapping[str, Mapping[str, Json]]) -> Compiled:
    with _engine():
        policies = cedarpy.PolicySet.from_str(text)
    return Compiled(
        policies=policies,
        ids={position: policy["annotations"]["id"] for position, policy in tree.items()},
        looks_at={policy["annotations"]["id"]: attributes_used(policy["conditions"]) for policy in tree.values()},
    )


def validate(text: str, schema: cedarpy.Schema) -> tuple[tuple[str, str], ...]:
    """(positional name, sentence) for each thing that strict validation finds wrong."""
    with _engine():
        result = cedarpy.validate_policies(text, schema)
    if result.validation_passed:
        return ()
    return tuple((error.policy_id, error.error) for error in result.errors) or (("", "validation failed"),)


def evaluate(compiled: Compiled, requests: Sequence[Request]) -> list[Answer]:
    """Ask about requests that share principal and tool. Never raises: what goes wrong is an answer with `error`."""
    try:
        with _engine():
            entities = _entities(compiled, requests[0])
            asked = [_ask(compiled, request) for request in requests]
            results = cedarpy.is_authorized_batch(asked, compiled.policies, entities)
            return [_read(compiled, result) for result in results]
    except ValueError as error:
        return [Answer(False, error=str(error)[:500])] * len(requests)


def conforms(request: Request, schema: cedarpy.Schema) -> str:
    """Empty when this schema describes what Palyra sends, else Cedar's complaint."""
    with _engine():
        entities = cedarpy.Entities.from_json_str(json.dumps(_entity_list(request)), schema)
        result = cedarpy.is_authorized(request.cedar, cedarpy.PolicySet.from_str(""), entities, schema)
    if result.decision is cedarpy.Decision.NoDecision or result.diagnostics.errors:
        return "; ".join(result.diagnostics.errors) or "no decision"
    return ""


def _ask(compiled: Compiled, request: Request) -> dict[str, Json]:
    context = {name: request.context[name] for name in compiled.attributes}
    return request.cedar | {"context": orjson.dumps(context).decode()}


def _entities(compiled: Compiled, request: Request) -> cedarpy.Entities:
    key = (request.principal, request.roles, request.tool, request.groups)
    found = compiled.entities.get(key)
    if found is None:
        found = cedarpy.Entities.from_json_str(json.dumps(_entity_list(request)))
        compiled.entities.put(key, found)
    return found


def _entity_list(request: Request) -> list[Json]:
    roles = [{"type": "Role", "id": role} for role in request.roles]
    groups = [{"type": "ToolGroup", "id": group} for group in request.groups]
    tool = {"type": "Tool", "id": request.tool}
    return [
        {"uid": request.principal_uid, "attrs": {}, "parents": roles},
        {"uid": tool, "attrs": {}, "parents": groups},
        *({"uid": uid, "attrs": {}, "parents": []} for uid in (*roles, *groups)),
    ]


def _read(compiled: Compiled, result: cedarpy.AuthzResult) -> Answer:
    errors = result.diagnostics.errors
    if errors or result.decision is cedarpy.Decision.NoDecision:
        text = "; ".join(errors) or "no decision"
        return Answer(False, error=_POSITION.sub(lambda m: compiled.ids.get(m[0], m[0]), text)[:500])
    names = tuple(sorted(compiled.ids[position] for position in result.diagnostics.reasons))
    return Answer(result.decision is cedarpy.Decision.Allow, names)


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
                return frozenset(ATTRIBUTES)
            for operator, operand in node.items():
                if operator in (".", "has") and isinstance(operand, dict) and operand.get("left") == {"Var": "context"}:
                    found.add(operand["attr"])
                else:
                    stack.append(operand)
    return frozenset(found & ATTRIBUTES.keys())
