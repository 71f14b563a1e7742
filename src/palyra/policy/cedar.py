"""The only door to the Cedar engine: text in, handles out; a request in, an answer out.

Rules: policies, schema and entities are parsed once into handles. For each principal, action, tool and set
of flags Cedar is asked once which policies are about them at all; a decision then evaluates what is left of these, and
only the attributes that are still looked at are sent, since building the request is what a decision costs. What was
left out Cedar would never have come to, so no answer changes and no error is hidden (slices). An answer that carries
any error is an error: Cedar skips a `forbid` that fails to evaluate, so its "allow" would mean nothing.

Not here: caps on the text (scan), what the answer means to the caller (verdict).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from itertools import groupby
from operator import itemgetter
from typing import Any, Generic, TypeVar

import cedarpy
import orjson

from palyra.canon import Json
from palyra.late import late
from palyra.policy.inputs import INPUT, check_input
from palyra.policy.request import MAX_TEXT, Request
from palyra.policy.slices import FLAGS, attributes_used, halve
from palyra.values import dataclass

MAX_CACHED = 4096
MAX_SELECTIONS = 256
_POSITION = late(r"\bpolicy\d+\b")
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


@dataclass(frozen=True, slots=True)
class _Selection:
    """Some of the policies, parsed, and the context attributes they look at."""

    policies: cedarpy.PolicySet
    attributes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Slice:
    """What one principal, action, tool and set of flags need: their policies and their entities."""

    selection: _Selection
    entities: cedarpy.Entities


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """Parsed policies, ready to be asked."""

    early: cedarpy.PolicySet
    """Of every policy the part that is asked first: which of them are about a request."""
    late: Mapping[str, Mapping[str, Json]]
    """What then remains of each, by positional name, in Cedar's JSON form."""
    ids: Mapping[str, str]
    """Cedar's positional name (policy0 …) → @id."""
    looks_at: Mapping[str, frozenset[str]]
    """@id → the context attributes that policy looks at."""
    attributes: tuple[str, ...] = field(init=False)
    """All of them together, sorted."""
    reads_input: bool = field(init=False)
    """Some policy looks at `context.input`."""
    flags: tuple[str, ...] = field(init=False)
    """The yes-or-no ones among them."""
    slices: Bounded[_Slice] = field(default_factory=Bounded)
    selections: dict[frozenset[str], _Selection] = field(default_factory=dict)
    """By the policies in it: most principals share theirs."""
    pick: Callable[[Mapping[str, Any]], Any] = field(init=False)
    pick_flags: Callable[[Mapping[str, Any]], Any] = field(init=False)

    def __post_init__(self) -> None:
        seen = frozenset().union(*self.looks_at.values())
        names = tuple(sorted(seen - {INPUT}))
        object.__setattr__(self, "attributes", names)
        object.__setattr__(self, "reads_input", INPUT in seen)
        object.__setattr__(self, "flags", tuple(name for name in names if name in FLAGS))
        object.__setattr__(self, "pick", _picker(names))
        object.__setattr__(self, "pick_flags", _picker(self.flags))

    def key(self, request: Request) -> tuple[object, ...]:
        """Equal for two requests exactly when no policy of this set can tell them apart."""
        return (
            request.principal,
            request.roles,
            request.action,
            request.tool,
            request.groups,
            self.pick(request.context),
            request.input if self.reads_input else (),
        )


def _picker(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Any]:
    return itemgetter(*names) if names else lambda _context: ()


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


def policy_set(policies: Mapping[str, Mapping[str, Json]]) -> cedarpy.PolicySet:
    """From Cedar's JSON form, each under its name. Raises ValueError."""
    document = {"templates": {}, "staticPolicies": policies, "templateLinks": []}
    with _engine():
        return cedarpy.PolicySet.from_json_str(orjson.dumps(document).decode())


def compile_policies(tree: Mapping[str, Mapping[str, Json]]) -> Compiled:
    halves = {position: halve(policy) for position, policy in tree.items()}
    return Compiled(
        early=policy_set({position: half.early for position, half in halves.items()}),
        late={position: half.late for position, half in halves.items()},
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
    """Ask about each. Never raises: what goes wrong is an answer with `error`."""
    try:
        with _engine():
            slices = [_slice(compiled, request) for request in requests]
            results: list[cedarpy.AuthzResult] = []
            for part, group in groupby(zip(slices, requests, strict=True), key=itemgetter(0)):
                asked = [_ask(part.selection.attributes, request) for _, request in group]
                results += cedarpy.is_authorized_batch(asked, part.selection.policies, part.entities)
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


def _ask(attributes: tuple[str, ...], request: Request) -> dict[str, Json]:
    context = request.context
    sent: dict[str, Json] = {name: context[name] for name in attributes if name != INPUT}
    if INPUT in attributes:
        check_input(request.input, max_text=MAX_TEXT)
        sent[INPUT] = dict(request.input)
    return {**request.uids, "context": orjson.dumps(sent).decode()}


def _slice(compiled: Compiled, request: Request) -> _Slice:
    flags = compiled.pick_flags(request.context)
    key = (request.principal, request.roles, request.action, request.tool, request.groups, flags)
    found = compiled.slices.get(key)
    if found is None:
        entities = cedarpy.Entities.from_json_str(json.dumps(_entity_list(request)))
        about = cedarpy.is_authorized_batch([_ask(compiled.flags, request)], compiled.early, entities)[0]
        if about.diagnostics.errors or about.decision is cedarpy.Decision.NoDecision:
            raise ValueError(_complaint(compiled, about))
        found = _Slice(_select(compiled, frozenset(about.diagnostics.reasons)), entities)
        compiled.slices.put(key, found)
    return found


def _select(compiled: Compiled, positions: frozenset[str]) -> _Selection:
    found = compiled.selections.get(positions)
    if found is None:
        if len(compiled.selections) >= MAX_SELECTIONS:  # a policy for each of thousands of agents: forget, do not grow
            compiled.selections.clear()
        policies = {position: compiled.late[position] for position in sorted(positions)}
        seen = frozenset().union(*(attributes_used(policy["conditions"]) for policy in policies.values()))
        found = compiled.selections[positions] = _Selection(policy_set(policies), tuple(sorted(seen)))
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
        return Answer(False, error=_complaint(compiled, result))
    names = tuple(sorted(compiled.ids[position] for position in result.diagnostics.reasons))
    return Answer(result.decision is cedarpy.Decision.Allow, names)


def _complaint(compiled: Compiled, result: cedarpy.AuthzResult) -> str:
    """Cedar's words, with the @ids in place of its positional names."""
    text = "; ".join(result.diagnostics.errors) or "no decision"
    return _POSITION.sub(lambda m: compiled.ids.get(m[0], m[0]), text)[:500]
