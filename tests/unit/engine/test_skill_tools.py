"""A skill's tool under its own name: the same walk, the same gates, the same payload from gate to run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from palyra.config.schema import Config, parse_config
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.engine.watch import EVERY_S
from palyra.errors import Reason, Rejected
from palyra.model.grant import Ask
from palyra.model.outcome import Execution, Outcome, Status
from palyra.model.skill import SkillTool
from palyra.model.tool import Parallelism, Projection, ToolKind, ToolSpec
from palyra.model.wasm import CapabilityGrants, GuestKind, WasmLimits, WasmPlan
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import RegisteredTool, make_registry
from palyra.testing import fake_ports, fake_run
from palyra.testing_guests import FakeGuests, FakeSkills
from tests.promises import promise

INPUT = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
TOOL = SkillTool(
    skill_id="acme.count",
    version="1.0.0",
    tool_id="acme.count",
    payload_sha256="ab" * 32,
    module_sha256="cd" * 32,
    guest=GuestKind.CORE,
    memories=1,
    grants=CapabilityGrants(),
    limits=WasmLimits(fuel=5, wall_ms=7),
    capabilities=frozenset(),
    input_schema=INPUT,
    output_schema={"type": "object", "required": ["n"]},
)
SPEC = ToolSpec(
    name="acme.count",
    version="1.0.0",
    description="Counts.",
    kind=ToolKind.PLUGIN,
    input_schema=INPUT,
    output_schema={},
    capabilities=frozenset(),
    parallelism=Parallelism.READ_ONLY,
    projection=Projection.INLINE_UNLESS_LARGE,
    max_input_bytes=1000,
    provenance="ab" * 32,
)


class Source:
    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec
        self.out_of_use = False

    def knows(self, name: str) -> bool:
        return name == self.spec.name

    def tool(self, name: str) -> RegisteredTool | None:
        if self.out_of_use:
            raise Rejected(Reason.SKILL_NOT_ACTIVE, "It is disabled.")
        return RegisteredTool(self.spec) if self.knows(name) else None

    def specs(self) -> list[ToolSpec]:
        return [self.spec]


def engine_of(
    *,
    tool: SkillTool = TOOL,
    spec: ToolSpec = SPEC,
    guests: Any = None,
    skills: Any = None,
    config: Config | None = None,
) -> Engine:
    skills = skills or FakeSkills({"acme.count": (tool, b"")})
    guests = guests or FakeGuests(output=b'{"n": 1}')
    ports = fake_ports(config=config or Config(), skills=skills, guests=guests)
    return Engine(ports, make_registry(BUILTIN_TOOLS).with_source(Source(spec)))


def call(engine: Engine, given: Any = None, *, tool: str = "acme.count") -> Outcome:
    request = CallRequest(tool=tool, input={"n": 2} if given is None else given, run=fake_run(engine.ports.config))
    return asyncio.run(engine.call(request))


def test_a_skills_tool_is_called_by_its_own_name_with_its_own_input() -> None:
    guests = FakeGuests(output=b'{"n": 3}')
    outcome = call(engine_of(guests=guests))
    assert (outcome.status, outcome.tool, outcome.output["result"]) == (Status.COMPLETED, "acme.count", {"n": 3})
    assert outcome.attestation["skill_sha256"] == "ab" * 32
    (plan,) = guests.plans
    assert (plan.input, plan.skill_id, plan.tool_id) == (b'{"n":2}', "acme.count", "acme.count")
    assert (plan.wasm.fuel, plan.wasm.wall_ms) == (5, 7)


def test_quotas_of_a_manifest_are_narrowed_by_what_the_host_gives() -> None:
    guests = FakeGuests(output=b'{"n": 3}')
    greedy = replace(TOOL, limits=WasmLimits(fuel=10**12, memory_bytes=1 << 40, wall_ms=10**9))
    call(engine_of(tool=greedy, guests=guests))
    wasm = guests.plans[0].wasm
    assert (wasm.fuel, wasm.memory_bytes, wasm.wall_ms) == (10_000_000, 64 << 20, 900_000)


def test_its_input_and_its_result_are_held_against_its_schemas() -> None:
    assert call(engine_of(), {"n": "two"}).reason is Reason.BAD_ARGUMENTS
    assert call(engine_of(), {"m": 2}).reason is Reason.BAD_ARGUMENTS
    outcome = call(engine_of(guests=FakeGuests(output=b'{"m": 1}')))
    assert (outcome.status, outcome.reason) == (Status.TRAPPED, Reason.TRAPPED)


def test_policies_see_a_guest_and_never_its_arguments_as_if_they_were_palyras() -> None:
    open_schema: dict[str, Any] = {"type": "object"}
    engine = engine_of(spec=replace(SPEC, input_schema=open_schema), tool=replace(TOOL, input_schema=open_schema))
    request = CallRequest(tool="acme.count", input={"command": "ls", "path": "x"}, run=fake_run(Config()))
    trip, _ = asyncio.run(engine.assess(request))
    assert trip.cedar is not None
    assert trip.cedar.groups == ("skill", "plugin")
    assert dict(trip.cedar.input) == {"tool_id": "acme.count"}


@promise("skills.required-approval")
def test_a_tool_whose_manifest_wants_a_person_asks_one_by_either_name() -> None:
    wanted = replace(TOOL, sensitive=True)
    engine = engine_of(tool=wanted, spec=replace(SPEC, sensitive=True))
    by_plugin = {"skill_id": "acme.count", "input": {"n": 1}}
    for name, given in (("acme.count", {"n": 1}), ("palyra.plugin.run", by_plugin)):
        trip, _ = asyncio.run(engine.assess(CallRequest(tool=name, input=given, run=fake_run(Config()))))
        assert isinstance(trip.decision, Ask), name


@pytest.mark.parametrize(
    ("allowed", "reason"),
    [
        (["palyra.*"], None),
        (["acme.count"], None),
        (["palyra.plugin.run"], None),
        (["palyra.fs.*"], Reason.POLICY_DENIED),
        (["evil.*"], Reason.POLICY_DENIED),
    ],
)
def test_the_list_of_tools_names_it_or_what_runs_it(allowed: list[str], reason: Reason | None) -> None:
    config = parse_config({"tool_call": {"allowed_tools": allowed}})
    assert call(engine_of(config=config)).reason is reason


def test_another_payload_than_the_one_that_was_described_is_refused() -> None:
    outcome = call(engine_of(tool=replace(TOOL, payload_sha256="ef" * 32)))
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.SKILL_NOT_ACTIVE)


@pytest.mark.parametrize("given", [{"n": 2}, b' {"n" : 2}'])
def test_a_retry_is_the_same_call_whatever_became_of_the_skill_since(given: Any) -> None:
    """Disabled after the first call: its retry gets the first outcome. Refused first and enabled since: the refusal."""
    source, call_id = Source(SPEC), "01J" + "0" * 23
    ports = fake_ports(skills=FakeSkills({"acme.count": (TOOL, b"")}), guests=FakeGuests(output=b'{"n": 1}'))
    engine = Engine(ports, make_registry(BUILTIN_TOOLS).with_source(source))
    run = fake_run(Config())

    def again(name: str) -> Outcome:
        return asyncio.run(engine.call(CallRequest(tool="acme.count", input=given, run=run, call_id=name)))

    first = again(call_id)
    source.out_of_use = True
    assert again(call_id).output == first.output
    refused = again("01K" + "0" * 23)
    assert refused.reason is Reason.SKILL_NOT_ACTIVE
    source.out_of_use = False
    assert again("01K" + "0" * 23).reason is Reason.SKILL_NOT_ACTIVE


class Fleeting(FakeSkills):
    """Enabled when it is looked up, and no longer after so many looks."""

    def __init__(self, looks: int) -> None:
        super().__init__({"acme.count": (TOOL, b"")})
        self.looks = looks

    def is_active(self, tool: SkillTool) -> bool:
        self.looks -= 1
        return self.looks >= 0


def test_a_skill_that_is_taken_back_between_decision_and_run_does_not_run() -> None:
    guests = FakeGuests()
    outcome = call(engine_of(skills=Fleeting(0), guests=guests))
    assert (outcome.status, outcome.reason, guests.plans) == (Status.REFUSED, Reason.SKILL_NOT_ACTIVE, [])


def test_a_skill_that_no_longer_compiles_is_taken_out_of_use() -> None:
    skills = FakeSkills({"acme.count": (TOOL, b"")})
    refused = Rejected(Reason.BAD_ARGUMENTS, "wasmtime refuses the module.")
    outcome = call(engine_of(skills=skills, guests=FakeGuests(failure=refused)))
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.BAD_ARGUMENTS)
    assert skills.failed == [("acme.count", "wasmtime refuses the module.")]
    unjailed = Rejected(Reason.UNENFORCEABLE, "There is no tier C here.")
    call(engine_of(skills=skills, guests=FakeGuests(failure=unjailed)))
    assert len(skills.failed) == 1, "the host's fault, not the skill's"


class Endless:
    """A guest that never ends by itself."""

    def __init__(self) -> None:
        self.ended = ""

    async def run(self, plan: WasmPlan, module: bytes, answer: Any) -> tuple[Execution, bytes | None]:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.ended = "killed"
            raise
        raise AssertionError


def test_quarantine_stops_a_running_execution() -> None:
    guests = Endless()
    outcome = call(engine_of(skills=Fleeting(3), guests=guests))
    assert (outcome.status, outcome.reason, guests.ended) == (Status.CANCELLED, Reason.CANCELLED, "killed")
    assert "taken out of use" in (outcome.message or "")
    assert outcome.attestation["executor"] == "sandbox_tier_a"


def test_a_caller_who_cancels_still_cancels() -> None:
    async def cancelled() -> Outcome:
        engine = engine_of(guests=Endless())
        request = CallRequest(tool="acme.count", input={"n": 1}, run=fake_run(Config()), call_id="01J" + "0" * 23)
        task = asyncio.ensure_future(engine.call(request))
        await asyncio.sleep(EVERY_S / 2)
        assert engine.cancel("01J" + "0" * 23)
        return await task

    outcome = asyncio.run(cancelled())
    assert (outcome.status, outcome.message) == (Status.CANCELLED, "The call was cancelled.")


def test_tools_of_skills_are_listed_with_palyras_own() -> None:
    registry = make_registry(BUILTIN_TOOLS).with_source(Source(SPEC))
    assert next(spec.name for spec in registry.specs()) == "acme.count"
    assert registry.has("acme.count")
    assert not registry.has("acme.other")
