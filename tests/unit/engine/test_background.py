"""Background starts in the walk: decided, planned, journaled and attested like any call; then handles, never pids."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palyra.attest import check_outcome
from palyra.config.schema import parse_config
from palyra.engine.live import finish_whatever_comes
from palyra.engine.runs import RunScope
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.outcome import Outcome, Status
from palyra.model.plan import plan_digest
from palyra.model.process import Lifetime, NotStarted, ProcessOwner, ProcessStatus
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.protocol.schema import check_arguments, compile_schema
from palyra.protocol.wire import outcome_json
from palyra.testing import EPOCH_MS, FakeBackground, FakePolicies, FakeSecrets, fake_ports, fake_run

SLEEP = {"command": "sleep", "args": ["9"], "background": True}
RUN = "palyra.process.run"


def call(ports: Any, arguments: Any = SLEEP, *, tool: str = RUN, run: Any = None) -> Outcome:
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    return asyncio.run(engine.call(CallRequest(tool=tool, input=arguments, run=run or fake_run())))


def test_a_start_is_completed_with_a_handle_and_its_plan_says_how_long_it_lives():
    ports = fake_ports(secrets=FakeSecrets((("token", b"s3cret"),)))
    outcome = call(ports)
    (order,) = ports.background.orders
    assert (outcome.status, outcome.success, outcome.output) == (
        Status.COMPLETED,
        True,
        {
            "process_id": order.process_id,
            "pid": 4000,
            "lifetime": "run_owned",
            "expires_at_unix_ms": EPOCH_MS + 600_000,
        },
    )
    assert (order.owner, order.call_id, order.max_running) == (
        ProcessOwner(outcome.run_id, "agent:demo"), outcome.call_id, 16,
    )  # fmt: skip
    assert (order.plan.lifetime, order.plan.limits.wall_ms, order.secrets) == (
        "run_owned", 600_000, (("token", b"s3cret"),),
    )  # fmt: skip
    assert order.plan_sha256 == plan_digest(order.plan) == outcome.attestation["plan_sha256"]
    assert order.holder == ports.owners.me()
    assert outcome.attestation["executor"] == "sandbox_tier_c_linux_bubblewrap"
    assert [f for f in check_outcome(outcome_json(outcome), ports.key.public) if f.code != "RECEIPT"] == []
    assert len(ports.journal.openings) == len(ports.journal.closings) == 1
    assert ports.executor.plans == []


def test_the_lifetime_is_independent_of_the_calls_time_limit():
    ports = fake_ports(config=parse_config({"tool_call": {"process_runner": {"background_lifetime_ms": 1500}}}))
    call(ports, SLEEP | {"timeout_ms": 10})
    assert ports.background.orders[0].plan.limits.wall_ms == 1500


def test_a_plan_in_the_background_is_another_plan():
    """An approval of one must not pass for the other."""
    digests = set()
    for more in ({"background": False}, {}, {"lifetime": "detached"}):
        ports = fake_ports()
        digests.add(call(ports, SLEEP | more).attestation["plan_sha256"])
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("scope", "lifetime", "held"),
    [
        (RunScope.SESSION, "run_owned", True),
        (RunScope.SESSION, "detached", False),
        (RunScope.OPEN, "run_owned", False),
        (RunScope.CALL, "detached", False),
    ],
)
def test_only_a_run_that_this_process_holds_ends_with_it(scope, lifetime, held):
    ports = fake_ports()
    call(ports, SLEEP | {"lifetime": lifetime}, run=fake_run(scope=scope))
    assert (ports.background.orders[0].holder is not None) is held


def test_a_run_of_one_call_cannot_own_a_process():
    ports = fake_ports()
    outcome = call(ports, run=fake_run(scope=RunScope.CALL))
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.BAD_ARGUMENTS)
    assert '"lifetime": "detached"' in (outcome.hint or "")
    assert "--run" in (outcome.hint or "")
    assert ports.background.orders == []


def test_policy_sees_that_a_process_would_outlive_its_call():
    ports = fake_ports()
    call(ports)
    call(ports, SLEEP | {"background": False})
    contexts = [b'"background":true' in opening.details for opening in ports.journal.openings]
    assert contexts == [True, False]


def test_a_policy_can_refuse_what_would_outlive_its_call():
    text = """@id("local.no-background")
    forbid (principal, action == Action::"tool::execute", resource) when { context.background };"""
    ports = fake_ports(policies=FakePolicies(load_posture("standard", {"local.cedar": text})))
    assert [call(ports, SLEEP | more).reason for more in ({}, {"background": False})] == [Reason.POLICY_DENIED, None]
    assert ports.background.orders == []


def test_nothing_started_is_a_failed_call_with_the_keepers_hint():
    ports = fake_ports(background=FakeBackground(failure=NotStarted("No keeper.", "Look there.")))
    outcome = call(ports)
    assert (outcome.status, outcome.reason, outcome.message, outcome.hint) == (
        Status.FAILED, Reason.SPAWN_FAILED, "No keeper.", "Look there.",
    )  # fmt: skip


def test_background_can_be_switched_off():
    config = parse_config({"tool_call": {"process_runner": {"max_background_per_run": 0}}})
    ports = fake_ports(config=config)
    assert call(ports).reason is Reason.CAPABILITY_DENIED


def test_the_number_of_a_run_is_bounded():
    config = parse_config({"tool_call": {"process_runner": {"max_background_per_run": 1}}})
    ports = fake_ports(config=config)
    assert [call(ports).reason for _ in range(2)] == [None, Reason.BUSY]


def test_the_tools_answer_by_handle_and_within_their_schemas():
    ports = fake_ports(background=FakeBackground(text="häppy".encode()))
    handle = call(ports).output["process_id"]
    found = call(ports, {"process_id": handle}, tool="palyra.process.status")
    assert (found.output["status"], found.attestation["executor"]) == ("running", "builtin")
    page = call(ports, {"process_id": handle, "max_bytes": 3}, tool="palyra.process.output").output
    assert (page["text"], page["encoding"], page["next_offset_bytes"], page["complete"]) == ("hä", "utf-8", 3, False)
    cut = call(ports, {"process_id": handle, "max_bytes": 2}, tool="palyra.process.output").output
    assert (cut["text"], cut["encoding"]) == ("h\ufffd", "utf-8-replaced")
    stopped = call(ports, {"process_id": handle}, tool="palyra.process.stop").output
    assert (stopped["status"], stopped["stopped_by"]) == ("stopped", "agent:demo")
    listed = call(ports, {}, tool="palyra.process.list").output
    assert [item["status"] for item in listed["items"]] == ["stopped"]


@pytest.mark.parametrize("tool", ["status", "output", "stop"])
def test_a_handle_of_another_run_is_refused(tool):
    ports = fake_ports()
    handle = call(ports).output["process_id"]
    other = fake_run(run_id="01HF7YAT0000000000000000AA")
    outcome = call(ports, {"process_id": handle}, tool=f"palyra.process.{tool}", run=other)
    assert (outcome.status, outcome.reason, outcome.output) == (Status.REFUSED, Reason.BAD_ARGUMENTS, {})
    assert ports.background.processes[handle].is_running


@pytest.mark.parametrize("given", [{"process_id": 4000}, {"process_id": "4000"}, {"pid": 4000}, {}])
def test_a_pid_is_no_handle(given):
    assert call(fake_ports(), given, tool="palyra.process.stop").reason is Reason.BAD_ARGUMENTS


def test_ending_a_run_ends_what_it_owns():
    ports = fake_ports()
    engine, run = Engine(ports, make_registry(BUILTIN_TOOLS)), fake_run()

    async def story() -> None:
        for lifetime in Lifetime:
            await engine.call(CallRequest(tool=RUN, input=SLEEP | {"lifetime": lifetime.value}, run=run))
        await engine.close()

    asyncio.run(story())
    ended = {process.lifetime: process.status for process in ports.background.processes.values()}
    assert ended == {Lifetime.RUN_OWNED: ProcessStatus.STOPPED, Lifetime.DETACHED: ProcessStatus.RUNNING}


def test_ending_a_run_cancels_what_is_under_way_in_it():
    blocked = asyncio.Event()

    class Slow(FakeBackground):
        async def status(self, owner: Any, process_id: str) -> Any:
            blocked.set()
            await asyncio.sleep(60)

    ports = fake_ports(background=Slow())
    engine, run = Engine(ports, make_registry(BUILTIN_TOOLS)), fake_run()

    async def story() -> Outcome:
        request = CallRequest(tool="palyra.process.status", input={"process_id": "0" * 26}, run=run)
        calling = asyncio.create_task(engine.call(request))
        await blocked.wait()
        await engine.end_run(run)
        return await calling

    outcome = asyncio.run(story())
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, Reason.CANCELLED)


def test_a_caller_that_is_cancelled_while_its_start_is_recorded_leaves_no_process():
    ports = fake_ports()
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    closing, close_call = asyncio.Event(), ports.journal.close_call

    async def slowly(record: Any) -> Any:
        closing.set()
        await finish_whatever_comes(asyncio.sleep(0.02))  # as the journal promises
        return await close_call(record)

    ports.journal.close_call = slowly

    async def story() -> None:
        calling = asyncio.create_task(engine.call(CallRequest(tool=RUN, input=SLEEP, run=fake_run())))
        await closing.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)

    asyncio.run(story())
    assert [process.status for process in ports.background.processes.values()] == [ProcessStatus.STOPPED]


def test_both_kinds_of_result_fit_the_output_schema_of_process_run():
    (spec,) = (spec for spec in BUILTIN_TOOLS if spec.name == RUN)
    schema = compile_schema(spec.output_schema)
    ports = fake_ports()
    for arguments in (SLEEP, SLEEP | {"background": False}):
        check_arguments(schema, dict(call(ports, arguments).output))
