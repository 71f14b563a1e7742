"""One call as a Cedar request: who, which action, which tool, and a flat context of scalars.

Rules: the context holds facts that were computed here, each typed by `ATTRIBUTES` (the bundles' schema says the same),
and a record of scalar arguments (inputs). Arguments never enter it as they are, because Cedar reads `__entity` and
`__extn` keys in JSON objects as values of other types. A `Request` that exists has exactly these attributes, of exactly
these types, within the caps.

Not here: entities and evaluation (cedar), what the answer means (verdict, decide).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from operator import attrgetter
from types import MappingProxyType

from palyra.canon import MAX_INT, Json
from palyra.errors import Reason, Rejected
from palyra.model.call import Principal, PrincipalKind, Tier, ToolCall, parse_principal
from palyra.model.job import Facts
from palyra.model.outcome import BudgetView
from palyra.model.run_facts import NO_FACTS, RunFacts, RunLabel
from palyra.model.tool import Capability, ToolKind, ToolSpec
from palyra.policy.inputs import INPUT, Input, Scalar, read_input
from palyra.values import dataclass, names_of

EXECUTE = "tool::execute"
EXECUTE_UNSANDBOXED = "tool::execute-unsandboxed"
"""An action of its own, so that no policy about ordinary calls can ever permit running without a sandbox."""
INLINE = "plugin::inline"
"""A module in a call's input: foreign code that nobody signed or audited."""
LIST = "tool::list"
CONFIRM = "approval::confirm"
"""A person at the terminal of their own call says yes to what policy asks about."""
ELICIT = "approval::elicit"
"""The person in front of an agent's own client answers there; only where that client is the operator's process."""
ACTIONS = (EXECUTE, EXECUTE_UNSANDBOXED, INLINE, LIST, CONFIRM, ELICIT)

_FACTS = tuple(
    "tier egress program effective_program programs interpreter runs_code inline_code listed own_list found "
    "agent_writable outside_workspace writes_obeyed background network egress_raw hosts_named hosts_denied "
    "granted granted_interpreters granted_egress".split()
)
"""Taken from `Facts` under the same name. `details` is for people and never enters."""
_CAPABILITIES = tuple((f"cap_{capability}", capability) for capability in Capability)
_STRINGS = frozenset(
    "door device channel skill run input_sha256 tier egress program effective_program programs".split()
)
_NUMBERS = frozenset("hosts_named hosts_denied calls_used calls_max calls_last_minute denials_last_minute hour".split())
_OTHERS = tuple(
    "door device channel skill run input_sha256 granted_tier sensitive calls_used calls_max calls_last_minute "
    "denials_last_minute approved hour".split()
)

_LABELS = tuple(label.value for label in RunLabel)

ATTRIBUTES: Mapping[str, type] = MappingProxyType(
    {
        name: str if name in _STRINGS else int if name in _NUMBERS else bool
        for name in (*_FACTS, *_OTHERS, *_LABELS, *(name for name, _ in _CAPABILITIES))
    }
)
"""Every attribute of the context, always all of them, with its type."""

MAX_TEXT = 1024
"""Characters of one string: Cedar is slow with huge contexts, and no fact needs more."""

_read_facts = attrgetter(*_FACTS)
_ROLES = {PrincipalKind.AGENT: ("agent",), PrincipalKind.USER: ("developer",)}
_TYPES = {PrincipalKind.AGENT: "Agent", PrincipalKind.USER: "User"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    principal: Principal
    roles: tuple[str, ...]
    """Empty for a principal nobody knows, which is refused."""
    action: str
    tool: str
    groups: tuple[str, ...]
    context: Mapping[str, Scalar]
    input: Input = ()
    """The record `context.input`; kept beside a record's request as the call's own input, redacted."""
    first: Request | None = field(default=None, init=False, compare=False, repr=False)
    """Which one this asks again: the same in all but `CHANGING`."""

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise _unsound(f"there is no action {self.action[:40]!r}")
        if len(self.context) != len(ATTRIBUTES):
            raise _unsound("the context has too many or too few attributes")
        for name in ATTRIBUTES:
            _check_value(name, self.context.get(name))

    @property
    def principal_uid(self) -> dict[str, str]:
        return {"type": _TYPES[self.principal.kind], "id": self.principal.name}

    @property
    def uids(self) -> dict[str, Json]:
        """As cedarpy takes them: objects, which it reads faster than text and without any escaping."""
        return {
            "principal": self.principal_uid,
            "action": {"type": "Action", "id": self.action},
            "resource": {"type": "Tool", "id": self.tool},
        }

    @property
    def cedar(self) -> dict[str, Json]:
        return {**self.uids, "context": {**self.context, INPUT: dict(self.input)}}

    def with_context(self, **changes: Scalar) -> Request:
        return replace(self, context={**self.context, **changes})

    def as_json(self) -> dict[str, Json]:
        """For records: everything the decision depends on, so that it can be made again."""
        return {
            "principal": str(self.principal),
            "roles": list(self.roles),
            "action": self.action,
            "tool": self.tool,
            "groups": list(self.groups),
            "context": dict(self.context),
        }


def _check_value(name: str, value: Scalar | None) -> None:
    kind = ATTRIBUTES[name]
    # `type() is`, not isinstance: True is an int to Python, and a Bool to Cedar.
    if type(value) is not kind:
        raise _unsound(f"attribute {name} is missing or not of type {kind.__name__}")
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise _unsound(f"attribute {name} is too long")
    elif value is None or abs(value) > MAX_INT:
        raise _unsound(f"attribute {name} is out of range")


def _unsound(why: str) -> Rejected:
    return Rejected(Reason.POLICY_ERROR, f"The call could not be presented to policy: {why}.")


def roles_of(principal: Principal) -> tuple[str, ...]:
    """Embedded use: whoever the home's owner starts is known, agents as `agent` and people as `developer`."""
    return _ROLES[principal.kind]


def groups_of(spec: ToolSpec) -> tuple[str, ...]:
    """`palyra` or `skill` by where the tool comes from, and `builtin`, `process` or `inside` by how its calls run.

    A skill's tool never counts as the engine's own, whatever its spec says; it is a guest of tier A, or nothing.
    """
    if spec.provenance != "builtin":
        return ("skill", spec.kind.value) if spec.kind is ToolKind.PLUGIN else ("skill",)
    return ("palyra", spec.kind.value)


def known_context(spec: ToolSpec) -> dict[str, Scalar]:
    """What is known of every call of a tool before there is one; the rest as if nothing were known."""
    values: dict[str, Scalar] = {name: kind() for name, kind in ATTRIBUTES.items()}
    values |= {name: capability in spec.capabilities for name, capability in _CAPABILITIES}
    return values | {"sensitive": spec.sensitive}


def build_request(
    call: ToolCall,
    spec: ToolSpec,
    facts: Facts,
    *,
    budget: BudgetView,
    approved: bool,
    hour: int,
    run: RunFacts = NO_FACTS,
    roles: tuple[str, ...] | None = None,
) -> Request:
    """What policy is asked about this call. `hour` is 0 to 23, UTC; `roles` are the configuration's, if it has any."""
    if call.tool != spec.name:
        raise _unsound(f"the call names {call.tool[:80]!r} and the specification {spec.name!r}")
    context = call.context
    values: dict[str, Scalar] = dict(zip(_FACTS, _read_facts(facts), strict=True))
    values |= {
        "door": context.door.value,
        "device": context.device,
        "channel": context.channel,
        "skill": context.skill,
        "run": call.run_id,
        "input_sha256": call.input_sha256,
        "granted_tier": call.grant.tier is not None,
        "sensitive": spec.sensitive,
        "calls_used": budget.calls_used,
        "calls_max": budget.calls_max,
        "calls_last_minute": run.calls_last_minute,
        "denials_last_minute": run.denials_last_minute,
        "approved": approved,
        "hour": hour,
    }
    for label in RunLabel:
        values[label.value] = label in run.labels
    for name, capability in _CAPABILITIES:
        values[name] = capability in spec.capabilities
    return Request(
        principal=context.principal,
        roles=roles_of(context.principal) if roles is None else roles,
        action=_action(facts),
        tool=spec.name,
        groups=groups_of(spec),
        context=values,
        # A skill names its arguments as it likes: its `command` or `path` is none that a policy has in mind.
        input=read_input(call.input if spec.provenance == "builtin" else {"tool_id": spec.name}, call.workspace),
    )


_SAME = tuple(name for name in names_of(Request) if name not in ("context", "first"))
CHANGING = tuple(
    sorted(("run", "calls_used", "calls_max", "calls_last_minute", "denials_last_minute", "hour", *_LABELS))
)
"""What can be another each time the same call is made on the same terms, in the same run or another."""
_INT = frozenset({int})


def ask_again(request: Request, *, run_id: str, calls_used: int, calls_max: int, hour: int, run: RunFacts) -> Request:
    """What policy is asked about the same call on the same terms, made later: all that can have changed since then. The
    rest was checked when `request` was made."""
    changed: dict[str, int | bool] = {
        "calls_used": calls_used,
        "calls_max": calls_max,
        "calls_last_minute": run.calls_last_minute,
        "denials_last_minute": run.denials_last_minute,
        "hour": hour,
    }
    numbers = changed.values()
    if not (_INT.issuperset(map(type, numbers)) and min(numbers) >= -MAX_INT and max(numbers) <= MAX_INT):
        for name, value in changed.items():
            _check_value(name, value)
    _check_value("run", run_id)
    for name in _LABELS:
        changed[name] = name in run.labels  # a label equals its name
    again = object.__new__(Request)
    object.__setattr__(again, "first", request.first or request)
    for name in _SAME:
        object.__setattr__(again, name, getattr(request, name))
    object.__setattr__(again, "context", {**request.context, **changed, "run": run_id})
    return again


def _action(facts: Facts) -> str:
    if facts.tier == Tier.UNSANDBOXED:
        return EXECUTE_UNSANDBOXED
    return INLINE if facts.tier == Tier.A and facts.inline_code else EXECUTE


def parse_request(value: Json) -> Request:
    """A recorded request, read back. Raises Rejected(POLICY_ERROR) for anything that `as_json` does not write."""
    if not isinstance(value, Mapping) or set(value) != {"principal", "roles", "action", "tool", "groups", "context"}:
        raise _unsound("the record is not a request")
    if not isinstance(value["context"], Mapping) or not all(
        isinstance(value[k], str) for k in ("principal", "action", "tool")
    ):
        raise _unsound("the record is not a request")
    return Request(
        principal=parse_principal(value["principal"]),
        roles=_names(value["roles"]),
        action=value["action"],
        tool=value["tool"],
        groups=_names(value["groups"]),
        # What a record does not hold was not known when it was made: no policy of then looked at it.
        context={name: kind() for name, kind in ATTRIBUTES.items()} | dict(value["context"]),
    )


def _names(value: Json) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise _unsound("roles and groups are lists of names")
    return tuple(value)
