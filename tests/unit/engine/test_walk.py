"""The walk: every way out is attested and journaled, and nothing runs before its intent is durable."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from palyra.attest import check_outcome
from palyra.config.schema import parse_config
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason, StateError
from palyra.model.call import OperatorGrant, TierChoice
from palyra.model.net import EgressMode
from palyra.model.outcome import Connection, Execution, Outcome, Status, Usage
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.protocol.wire import outcome_json
from palyra.signing import SigningKey
from palyra.testing import FakeExecutor, FakeJournal, FakeLook, FakeSecrets, fake_ports, fake_run
from tests.promises import promise

LS = {"command": "ls", "args": ["-la"]}
ULID = "01HF7YAT00000000000000CA11"


def call(ports, tool="palyra.process.run", arguments=LS, *, run=None, **options) -> Outcome:
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    return asyncio.run(engine.call(CallRequest(tool=tool, input=arguments, run=run or fake_run(), **options)))


def assert_attested(ports, outcome: Outcome) -> None:
    findings = check_outcome(outcome_json(outcome), ports.key.public)
    assert [f for f in findings if f.code != "RECEIPT"] == [], "the fake journal's checkpoints are not real"
    assert ports.journal.closings[-1].entry.predicate["execution_sha256"] == outcome.attestation["execution_sha256"]


def test_an_allowed_call_leaves_an_intent_and_a_result():
    ports = fake_ports(executor=FakeExecutor(stdout=b"total 0\n"))
    outcome = call(ports)
    assert (outcome.status, outcome.success, outcome.reason) == (Status.COMPLETED, True, None)
    assert outcome.output["stdout"] == "total 0\n"
    assert outcome.attestation["executor"] == "sandbox_tier_c_linux_bubblewrap"
    assert (
        [o.call_id for o in ports.journal.openings] == [c.call_id for c in ports.journal.closings] == [outcome.call_id]
    )
    assert (outcome.budget.calls_used, outcome.budget.calls_max) == (1, 200)
    assert_attested(ports, outcome)


def test_the_intent_is_durable_before_anything_runs():
    journal = FakeJournal()
    seen = []

    async def look_at_journal():
        seen.append(len(journal.openings))

    call(fake_ports(journal=journal, executor=FakeExecutor(during=look_at_journal)))
    assert seen == [1]


def test_when_the_journal_is_down_nothing_runs():
    journal, executor = FakeJournal(), FakeExecutor()
    journal.down = StateError("disk full")
    outcome = call(fake_ports(journal=journal, executor=executor))
    assert (outcome.status, outcome.reason, outcome.receipt) == (Status.REFUSED, Reason.JOURNAL_DOWN, None)
    assert executor.plans == []


def test_a_result_that_cannot_be_recorded_is_not_reported_as_done():
    journal = FakeJournal()

    async def break_journal():
        journal.down = StateError("disk full")

    outcome = call(fake_ports(journal=journal, executor=FakeExecutor(during=break_journal)))
    assert (outcome.status, outcome.success, outcome.reason) == (Status.FAILED, False, Reason.INTERNAL)
    assert check_outcome(outcome_json(outcome), SigningKey.from_seed(bytes(32)).public) == ()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"command": "bash", "args": ["-c", "id"]}, Reason.INTERPRETER_DENIED),
        ({"command": "env", "args": ["python3", "-c", "1"]}, Reason.INTERPRETER_DENIED),
        ({"command": "xeyes"}, Reason.EXECUTABLE_DENIED),
        ({"command": "cat", "args": ["/etc/shadow"]}, Reason.OUTSIDE_WORKSPACE),
        ({"command": "cat", "args": ["../../etc/passwd"]}, Reason.OUTSIDE_WORKSPACE),
        ({"command": "pkill", "args": ["python"]}, Reason.EXECUTABLE_DENIED),
        ({"command": "ls -la"}, Reason.BAD_ARGUMENTS),
        ({"command": "ls", "surprise": 1}, Reason.BAD_ARGUMENTS),
        ({"command": "ls", "env": {"LD_PRELOAD": "x.so"}}, Reason.BAD_ARGUMENTS),
        ({"command": "git", "args": ["clone", "https://evil.example/x"]}, Reason.EGRESS_DENIED),
        (b"{", Reason.MALFORMED),
        (b'{"command": "ls", "command": "id"}', Reason.MALFORMED),
        (b"\xff", Reason.MALFORMED),
        (b" " * (449 << 10), Reason.TOO_LARGE),
    ],
)
def test_a_refusal_is_attested_journaled_and_runs_nothing(arguments, reason):
    ports = fake_ports(executor=FakeExecutor())
    outcome = call(ports, arguments=arguments)
    assert (outcome.status, outcome.reason, outcome.success) == (Status.REFUSED, reason, False)
    assert outcome.message
    assert outcome.attestation["executor"] == "policy"
    assert ports.executor.plans == []
    assert ports.journal.openings == []
    assert_attested(ports, outcome)


def test_an_unknown_tool_is_refused_and_journaled():
    ports = fake_ports()
    outcome = call(ports, tool="palyra.nope", arguments={})
    assert outcome.reason is Reason.UNKNOWN_TOOL
    assert_attested(ports, outcome)


def test_a_program_that_is_listed_but_missing_is_told_apart_by_its_policy():
    from palyra.cli.render import run_exit_code

    missing = call(fake_ports(look=FakeLook(missing=frozenset({"ls"}))))
    assert (missing.reason, run_exit_code(missing)) == (Reason.EXECUTABLE_DENIED, 127)
    neither = call(fake_ports(look=FakeLook(missing=frozenset({"xeyes"}))), arguments={"command": "xeyes"})
    assert (neither.reason, run_exit_code(neither)) == (Reason.EXECUTABLE_DENIED, 126)


@promise("commands.planted-program")
def test_a_program_the_agent_can_write_is_refused_even_when_listed():
    outcome = call(fake_ports(look=FakeLook(writable=frozenset({"ls"}))))
    assert outcome.reason is Reason.EXECUTABLE_DENIED


def test_the_operators_flags_allow_what_they_name():
    grant = OperatorGrant(interpreters=True)
    outcome = call(fake_ports(), arguments={"command": "python3", "args": ["-c", "1"]}, run=fake_run(grant=grant))
    assert outcome.status is Status.COMPLETED


def test_a_budget_of_two_runs_exactly_two_of_eight_parallel_calls():
    config = parse_config({"tool_call": {"max_calls_per_run": 2}})
    ports = fake_ports(config=config)
    engine, run = Engine(ports, make_registry(BUILTIN_TOOLS)), fake_run(config)

    async def all_at_once():
        return await asyncio.gather(
            *(engine.call(CallRequest(tool="palyra.echo", input={"n": n}, run=run)) for n in range(8))
        )

    outcomes = asyncio.run(all_at_once())
    assert sorted(str(o.reason) for o in outcomes) == ["BUDGET_SPENT"] * 6 + ["None"] * 2


def test_cancelling_kills_the_call_and_still_closes_its_record():
    ports = fake_ports(executor=FakeExecutor(stdout=b"so far", during=lambda: asyncio.sleep(60)))
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))

    async def cancelled_midway():
        task = asyncio.ensure_future(
            engine.call(CallRequest(tool="palyra.process.run", input=LS, run=fake_run(), call_id=ULID))
        )
        while not ports.executor.plans:
            await asyncio.sleep(0)
        assert engine.cancel(ULID)
        return await task

    outcome = asyncio.run(cancelled_midway())
    assert (outcome.status, outcome.reason, outcome.output["stdout"]) == (Status.CANCELLED, Reason.CANCELLED, "so far")
    assert_attested(ports, outcome)


def test_a_caller_that_goes_away_leaves_a_closed_record():
    ports = fake_ports(executor=FakeExecutor(during=lambda: asyncio.sleep(60)))
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))

    async def gone():
        task = asyncio.ensure_future(engine.call(CallRequest(tool="palyra.process.run", input=LS, run=fake_run())))
        while not ports.executor.plans:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(gone())
    assert [c.status for c in ports.journal.closings] == ["cancelled"]


def test_an_error_of_our_own_is_internal_and_journaled():
    class Broken(FakeExecutor):
        async def run(self, plan, sink, source=None):
            raise ZeroDivisionError

    ports = fake_ports(executor=Broken())
    outcome = call(ports)
    assert (outcome.status, outcome.reason) == (Status.FAILED, Reason.INTERNAL)
    assert "ZeroDivision" not in (outcome.message or "")
    assert_attested(ports, outcome)


def test_the_same_call_id_and_input_returns_the_first_outcome_and_runs_once():
    ports = fake_ports()
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))

    async def twice():
        request = CallRequest(tool="palyra.process.run", input=LS, run=fake_run(), call_id=ULID)
        return [await engine.call(request) for _ in range(2)]

    first, second = asyncio.run(twice())
    assert first.attestation == second.attestation
    assert len(ports.executor.plans) == 1


@promise("calls.reused-id")
@pytest.mark.parametrize("other", [{"arguments": {"command": "pwd"}}, {"run": fake_run(principal="agent:other")}])
def test_a_call_id_used_for_another_call_tells_nothing_of_the_first(other):
    ports = fake_ports(executor=FakeExecutor(stdout=b"secret listing"))
    call(ports, call_id=ULID)
    outcome = call(ports, **{"arguments": LS, **other}, call_id=ULID)
    assert (outcome.reason, dict(outcome.output)) == (Reason.CALL_ID_REUSED, {})
    assert outcome.call_id != ULID


def test_output_is_redacted_before_anyone_sees_it():
    streamed = []
    ports = fake_ports(
        executor=FakeExecutor(stdout=b"key=hunter2-hunter2 done"), secrets=FakeSecrets((("db", b"hunter2-hunter2"),))
    )
    outcome = call(ports, on_output=lambda stream, chunk: streamed.append(chunk))
    assert "hunter2" not in outcome.output["stdout"]
    assert b"hunter2" not in b"".join(streamed)
    assert sum(outcome.attestation["redactions"].values()) == 1


def test_a_secret_in_a_name_that_the_program_chose_is_redacted_too():
    """A file it makes under a guarded name, a host it looks up: both are told in the outcome."""
    secret, key = "hunter2-hunter2", "ghp_" + "a1B2" * 9
    look = FakeLook()
    look.new_names = (f".env.{secret}", f".env.{key}")
    tried = Connection(host=f"{secret}.example", port=443, verdict="denied")
    done = Execution(status=Status.COMPLETED, exit_code=1, usage=Usage(wall_us=1), connections=(tried,))
    ports = fake_ports(
        look=look, executor=FakeExecutor(execution=done), secrets=FakeSecrets((("db", secret.encode()),))
    )
    told = outcome_json(call(ports))
    assert told["output"]["protected_created"] == [".env.[redacted:db:1]", ".env.[redacted:github:2]"]
    assert told["output"]["egress"]["connections"][0]["host"] == "[redacted:db:1].example"
    assert secret not in repr(told)


def test_a_secret_that_a_caller_gives_for_a_name_stays_in_no_entry():
    secret = "hunter2-hunter2"
    ports = fake_ports(secrets=FakeSecrets((("db", secret.encode()),)))
    run = fake_run()
    context = replace(run.context, device=f"phone {secret}", channel=secret)
    for request in ({"tool": secret, "arguments": {}}, {"run": replace(run, context=context)}):
        call(ports, **request)
    entries = [one.entry.predicate for one in (*ports.journal.openings, *ports.journal.closings)]
    assert len(entries) == 3
    assert secret not in repr(entries)
    assert entries[-1]["context"]["device"] == "phone [redacted:db:1]"
    assert entries[-2]["tool"] == "[redacted:db:1]"


def test_large_output_becomes_an_artifact_for_agents_doors_and_both_digests_hold():
    ports = fake_ports(executor=FakeExecutor(stdout=b"x" * 100_000))
    outcome = call(ports, project=True)
    assert len(outcome.output["stdout"]) < 10_000
    assert [a.size_bytes for a in outcome.artifacts] == [100_000]
    assert outcome.attestation["projected_output_sha256"] is not None
    assert_attested(ports, outcome)


def test_tier_b_and_a_looser_egress_are_the_operators_to_give():
    asked = fake_run(tier=TierChoice.B, egress=EgressMode.NONE)
    assert (asked.tier, asked.egress) == (TierChoice.AUTO, EgressMode.STRICT)
    given = fake_run(grant=OperatorGrant(tier=TierChoice.B, egress=EgressMode.NONE))
    assert (given.tier, given.egress) == (TierChoice.B, EgressMode.NONE)


def test_a_timeout_is_an_outcome_with_what_was_captured():
    timed_out = Execution(status=Status.TIMEOUT, reason=Reason.TIMEOUT, usage=Usage(wall_us=5))
    ports = fake_ports(executor=FakeExecutor(stdout=b"partial", execution=timed_out))
    outcome = call(ports)
    assert (outcome.status, outcome.success, outcome.output["stdout"]) == (Status.TIMEOUT, False, "partial")
    assert outcome.attestation["timed_out"] is True
    assert_attested(ports, outcome)


def test_guarded_names_that_a_program_made_are_told_in_the_outcome():
    look = FakeLook()
    look.new_names = (".git/hooks/pre-commit",)
    ports = fake_ports(look=look)
    outcome = call(ports)
    assert outcome.output["protected_created"] == [".git/hooks/pre-commit"]
    assert_attested(ports, outcome)


def test_a_token_cut_by_the_quota_is_not_shown_in_part():
    over = Execution(status=Status.QUOTA_EXCEEDED, reason=Reason.QUOTA_EXCEEDED, truncated=True)
    ports = fake_ports(executor=FakeExecutor(stdout=b"token ghp_" + b"a1B2" * 8, execution=over))
    outcome = call(ports)
    assert outcome.output["stdout"] == "token [redacted:cut]"
    assert outcome.attestation["redactions"] == {"cut": 1}
