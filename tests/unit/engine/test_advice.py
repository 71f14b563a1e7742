"""Fourteen different denials: every proposed change, when applied, allows exactly that call and not its neighbour."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from palyra.config.schema import Config, parse_config
from palyra.egress.hosts import parse_pattern
from palyra.engine.advice import advise
from palyra.engine.builtin import HANDLERS
from palyra.engine.runs import Run
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.model.approval import ApprovalState
from palyra.model.call import OperatorGrant, TierChoice
from palyra.model.grant import Allow
from palyra.model.net import EgressMode
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.model.tool import Capability
from palyra.policy.bundle import PolicyBundle, with_local
from palyra.policy.exceptions import write_exception
from palyra.policy.explain import Change, Explanation, explain
from palyra.policy.request import Request
from palyra.policy.store import POSTURES, load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import LINUX, FakeApprover, FakeExecutor, FakeLook, FakePolicies, fake_ports, fake_run
from palyra.testing_runs import FakeRunFacts

ECHO = next(spec for spec in BUILTIN_TOOLS if spec.name == "palyra.echo")
SECRET_TOOL = replace(ECHO, name="palyra.secret", capabilities=frozenset({Capability.SECRETS_READ}))
SENSITIVE_TOOL = replace(ECHO, name="palyra.delicate", sensitive=True)
NETWORK_TOOL = replace(ECHO, name="palyra.reach", capabilities=frozenset({Capability.NETWORK}))
REGISTRY = make_registry((*BUILTIN_TOOLS, SECRET_TOOL, SENSITIVE_TOOL, NETWORK_TOOL))
PAIR = RunFacts(labels=frozenset(RunLabel))


@dataclass(frozen=True)
class Case:
    """A call that is refused (or asked about), and a neighbour that must stay refused whatever is done for it."""

    input: dict[str, Any]
    neighbour: dict[str, Any]
    tool: str = "palyra.process.run"
    posture: str = "standard"
    local: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    run: dict[str, Any] = field(default_factory=dict)
    facts: RunFacts = field(default_factory=RunFacts)
    kinds: tuple[str, ...] = ()
    """The kinds of change that must be among those proposed."""


def process(command: str, *args: str) -> dict[str, Any]:
    return {"command": command, "args": list(args)}


NO_RM = '@id("local.no-rm") @reason("No.") forbid (principal, action, resource) when { context.program == "rm" };'
NIGHT = '@id("local.night") @reason("No.") forbid (principal, action, resource) when { context.hour < 24 };'
CASES = {
    "an interpreter": Case(process("bash", "-c", "true"), process("bash", "-c", "rm x"), kinds=("flag", "setting")),
    "a build tool": Case(process("make", "all"), process("make", "clean"), kinds=("flag", "setting", "posture")),
    "a program that is not listed": Case(process("strings", "x"), process("strings", "y"), kinds=("flag", "setting")),
    "a wrapper around one": Case(process("env", "strings", "x"), process("env", "strings", "y"), kinds=("flag",)),
    "a path outside": Case(process("cat", "/opt/a"), process("cat", "/srv/b"), kinds=("flag", "setting")),
    "a tier without isolation": Case(
        process("ls"), process("ls", "-l"), run={"tier": TierChoice.B}, kinds=("approval", "tier")
    ),
    "an open network": Case(
        process("ls"), process("ls", "-l"), config={"egress_enforcement_mode": "none"}, kinds=("approval", "egress")
    ),
    "nothing permits": Case(process("ls"), process("ls", "-l"), posture="locked", kinds=("posture",)),
    "nothing permits a built-in tool": Case({"a": 1}, {"a": 2}, tool="palyra.echo", posture="locked"),
    "a local forbid": Case(process("rm", "x"), process("rm", "y"), local=NO_RM),
    "a forbid by the hour": Case(process("ls"), process("ls", "-l"), local=NIGHT),
    "a secret": Case({"a": 1}, {"a": 2}, tool="palyra.secret", kinds=("approval",)),
    "a sensitive tool": Case({"a": 1}, {"a": 2}, tool="palyra.delicate", kinds=("approval",)),
    "a secret and outside content": Case({"a": 1}, {"a": 2}, tool="palyra.reach", facts=PAIR, kinds=("approval",)),
}


@dataclass(frozen=True)
class World:
    config: Config
    bundle: PolicyBundle
    run: Run
    facts: RunFacts
    approval: ApprovalState = ApprovalState.DENIED

    def engine(self) -> Engine:
        ports = fake_ports(
            config=self.config,
            host=replace(LINUX, landlock_abi=6),
            policies=FakePolicies(self.bundle),
            run_facts=FakeRunFacts(self.facts),
            approver=FakeApprover(state=self.approval),
            executor=FakeExecutor(),
            look=FakeLook(),
        )
        return Engine(ports, REGISTRY)

    def allows(self, tool: str, arguments: dict[str, Any]) -> bool:
        """The whole walk, approval included: did it run?"""
        request = CallRequest(tool=tool, input=arguments, run=self.run)
        return asyncio.run(self.engine().call(request)).success


def world_of(case: Case) -> World:
    config = parse_config({"posture": case.posture, "tool_call": {"process_runner": case.config}})
    bundle = load_posture(case.posture, {"a.cedar": case.local} if case.local else None)
    run = fake_run(config)
    return World(config, bundle, replace(run, **case.run), case.facts)


def explained(case: Case, world: World) -> Explanation:
    async def work() -> Explanation:
        request = CallRequest(tool=case.tool, input=case.input, run=world.run)
        engine = world.engine()
        trip, refusal = await engine.assess(request)
        tried = await advise(engine, request, trip, refusal)
        assert trip.cedar is not None
        assert trip.decision is not None
        others = {name: load_posture(name) for name in POSTURES if name != case.posture}
        postures, call_id = others, "CALL"
        return explain(world.bundle, trip.cedar, trip.decision, postures=postures, tried=tried, call_id=call_id)

    return asyncio.run(work())


def applied(world: World, change: Change, request: Request) -> World:
    match change.kind:
        case "approval":
            return replace(world, approval=ApprovalState.APPROVED)
        case "exception":
            assert change.scope
            made = write_exception(world.bundle, request, change.scope)  # type: ignore[arg-type]
            return replace(world, bundle=with_local(world.bundle, {"made.cedar": made.text}))
        case "posture":
            (name,) = re.findall(r'"(\w+)"', change.text)
            return replace(world, bundle=load_posture(name), config=replace(world.config, posture=name))
        case "tier":
            return replace(world, run=replace(world.run, tier=TierChoice.AUTO))
        case "egress":
            return replace(world, run=replace(world.run, egress=EgressMode.STRICT))
        case "flag":
            return replace(world, run=flagged(world.run, shlex.split(change.text)))
        case _:
            return replace(world, config=configured(world.config, change.text))


def flagged(run: Run, words: list[str]) -> Run:
    """As cli/run reads them."""
    grant = OperatorGrant()
    rest = iter(words)
    for word in rest:
        match word:
            case "--allow":
                grant = replace(grant, executables=(*grant.executables, next(rest)))
            case "--allow-interpreters":
                grant = replace(grant, interpreters=True)
            case "--allow-host":
                grant = replace(grant, hosts=(*grant.hosts, parse_pattern(next(rest))))
            case "--read":
                grant = replace(grant, read_roots=(*grant.read_roots, next(rest)))
            case "--egress":
                grant = replace(grant, egress=EgressMode(next(rest)))
            case "--tier":
                grant = replace(grant, tier=TierChoice(next(rest)))
            case _:
                raise AssertionError(word)
    return replace(run, grant=grant, tier=grant.tier or run.tier, egress=grant.egress or run.egress)


def configured(config: Config, text: str) -> Config:
    runner = config.tool_call.process_runner
    for piece in text.split(", add "):
        if "allow_interpreters = true" in piece:
            runner = replace(runner, allow_interpreters=True)
        else:
            names, key = re.fullmatch(r'(?:add )?((?:"[^"]+"(?:, )?)+) to (\w+) in \[\S+\]', piece).groups()  # type: ignore[union-attr]
            runner = replace(runner, **{key: (*getattr(runner, key), *re.findall(r'"([^"]+)"', names))})
    return replace(config, tool_call=replace(config.tool_call, process_runner=runner))


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in (SECRET_TOOL, SENSITIVE_TOOL, NETWORK_TOOL):
        monkeypatch.setitem(HANDLERS, spec.name, HANDLERS["palyra.echo"])


@pytest.mark.parametrize("name", CASES)
def test_every_proposed_change_allows_exactly_the_call_it_was_asked_for(name: str):
    case = CASES[name]
    world = world_of(case)
    assert not world.allows(case.tool, case.input), "it is refused to begin with"
    assert not world.allows(case.tool, case.neighbour)
    explanation = explained(case, world)
    changes = explanation.changes
    assert set(case.kinds) | {"exception"} <= {change.kind for change in changes}, changes
    assert explanation.determining or explanation.nearest or case.posture == "locked"
    for change in changes:
        if change.effect == "allow":
            assert applied(world, change, explanation.request).allows(case.tool, case.input), change
    exact = next(change for change in changes if change.scope == "call")
    assert not applied(world, exact, explanation.request).allows(case.tool, case.neighbour), (
        "the neighbour stays refused"
    )
    other = replace(world, run=fake_run(world.config, principal="agent:other"))
    other = replace(other, run=replace(other.run, **case.run))
    assert not replace(other, bundle=applied(world, exact, explanation.request).bundle).allows(case.tool, case.input), (
        "and so do others"
    )


@pytest.mark.parametrize(
    ("case", "texts"),
    [
        (CASES["an interpreter"], ["--allow-interpreters", "allow_interpreters = true in [tool_call.process_runner]"]),
        (CASES["a path outside"], ["--read /opt", 'add "/opt" to read_roots in [tool_call.process_runner]']),
        (CASES["a tier without isolation"], ['tier C (leave out --tier, or set tier = "auto")', "--tier b"]),
    ],
)
def test_flags_and_settings_are_named_as_they_are_written(case: Case, texts: list[str]):
    changes = explained(case, world_of(case)).changes
    assert [c.text for c in changes if c.kind in ("flag", "setting", "tier", "egress")] == texts


def test_what_the_configurations_lists_leave_out_is_named():
    config = parse_config({"tool_call": {"allowed_tools": ["palyra.process.*"], "allowed_capabilities": []}})
    ports = fake_ports(config=config)
    engine = Engine(ports, REGISTRY)
    request = CallRequest(tool="palyra.reach", input={}, run=fake_run(config))

    async def work() -> tuple[Change, ...]:
        trip, refusal = await engine.assess(request)
        return await advise(engine, request, trip, refusal)

    assert [change.text for change in asyncio.run(work())] == [
        'add "palyra.reach" to allowed_tools in [tool_call], add "network" to allowed_capabilities in [tool_call]'
    ]


def test_a_wall_is_not_argued_with():
    """A program that the agent can write is final: no flag, no setting, no policy."""
    case = Case(process("ls"), process("ls", "-l"))
    world = world_of(case)
    engine = Engine(fake_ports(look=FakeLook(writable=frozenset({"ls"}))), REGISTRY)
    request = CallRequest(tool=case.tool, input=case.input, run=world.run)

    async def work() -> Explanation:
        trip, refusal = await engine.assess(request)
        tried = await advise(engine, request, trip, refusal)
        assert trip.cedar is not None
        assert trip.decision is not None
        assert not isinstance(trip.decision, Allow)
        return explain(world.bundle, trip.cedar, trip.decision, tried=tried)

    assert asyncio.run(work()).changes == ()
