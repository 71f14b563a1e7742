"""What an approval covers and who may give it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palyra.approvals.rules import MAX_UNTIL_MS, Verdict, bind, covers, decide, difference, revoke
from palyra.errors import Reason, Rejected
from palyra.model.approval import Approval, ApprovalState, Scope
from tests.approving import NO, OPERATOR, PLAN, YES, question
from tests.journaling import NOW, ulid
from tests.promises import promise

ASKED = question()
REQUEST = Approval(
    approval_id=ulid(5),
    principal=ASKED.principal,
    run_id=ASKED.run_id,
    call_id=ASKED.call_id,
    tool=ASKED.tool,
    program=ASKED.program,
    binding=ASKED.binding,
    frame=ASKED.frame,
    likeness=ASKED.likeness,
    shown=b"",
    asked_unix_ms=NOW,
    expires_unix_ms=NOW + 60_000,
)


def decided(verdict=YES, request=REQUEST, *, now=NOW):
    return decide(request, verdict, now_unix_ms=now, grant_ms=30_000)


@promise("approvals.bound-to-call")
def test_a_yes_covers_exactly_the_call_that_asked():
    assert covers(decided(), ASKED, now_unix_ms=NOW)


@promise("approvals.bound-to-call")
@pytest.mark.parametrize(
    "other",
    [
        question(argv=["git", "fetch", "upstream"]),
        question(cwd="/workspace/deeper"),
        question(env=[["PATH", "/usr/bin"], ["GIT_SSH", "x"]]),
        question(net={"mode": "strict", "allowed_hosts": ["example.org", "evil.example"]}),
        question(net={"mode": "none", "allowed_hosts": []}),
        question(program="/opt/git"),
        question(program_sha256="5" * 64),
        question(launcher=["bwrap", "--bind", "/", "/"]),
        question(policy="1" * 64),
        question(asked_by="guard.70-secrets"),
        question(principal="agent:other"),
    ],
    ids="argv cwd env host mode program digest mounts bundle policy principal".split(),
)
def test_a_change_in_anything_needs_a_new_approval(other):
    assert not covers(decided(), other, now_unix_ms=NOW)


def test_a_tool_without_a_program_is_bound_by_its_input():
    def of(text):
        return bind(principal="agent:demo", tool="palyra.echo", input_sha256=text, plan={"tool": "palyra.echo"},
                    policy_sha256=None, policies=())  # fmt: skip

    assert of("a").binding != of("b").binding
    assert of("a").frame == ""


@promise("approvals.bound-to-call")
def test_once_is_one_call():
    assert not covers(replace(decided(), uses=1), ASKED, now_unix_ms=NOW)


def test_a_grant_of_a_run_is_for_that_run_and_again_and_again():
    grant = decided(replace(YES, scope=Scope.RUN))
    assert covers(replace(grant, uses=7), ASKED, now_unix_ms=NOW)
    assert not covers(grant, question(run_id=ulid(78)), now_unix_ms=NOW)


def test_a_grant_until_a_time_goes_beyond_the_run_and_ends():
    grant = decided(replace(YES, scope=Scope.UNTIL, until_unix_ms=NOW + 1000))
    assert covers(replace(grant, uses=7), question(run_id=ulid(78)), now_unix_ms=NOW + 999)
    assert not covers(grant, ASKED, now_unix_ms=NOW + 1000)


@promise("approvals.bound-to-call")
def test_a_yes_that_is_not_used_is_over_after_its_time():
    assert not covers(decided(), ASKED, now_unix_ms=NOW + 30_000)


@pytest.mark.parametrize("until", [None, NOW, NOW - 1, NOW + MAX_UNTIL_MS + 1])
def test_a_grant_ends_ahead_and_within_thirty_days(until):
    with pytest.raises(Rejected, match="within 30 days"):
        decided(replace(YES, scope=Scope.UNTIL, until_unix_ms=until))


def test_a_pattern_opens_the_arguments_and_nothing_else():
    grant = decided(replace(YES, scope=Scope.RUN, pattern=("git", "fetch", "*")))
    assert covers(grant, question(argv=["git", "fetch", "upstream"]), now_unix_ms=NOW)
    assert not covers(grant, question(argv=["git", "push", "upstream"]), now_unix_ms=NOW)
    assert not covers(grant, question(argv=["git", "fetch", "upstream"], cwd="/elsewhere"), now_unix_ms=NOW)
    assert not covers(grant, question(argv=["git", "fetch", "upstream"], asked_by="guard.70"), now_unix_ms=NOW)


def test_a_tool_without_arguments_takes_no_pattern():
    with pytest.raises(Rejected, match="no arguments"):
        decided(replace(YES, pattern=("git", "x")), replace(REQUEST, frame=""))


@promise("approvals.who-decides")
@pytest.mark.parametrize("verdict", [YES, NO])
@pytest.mark.parametrize("agent", ["agent:demo", "agent:other"])
def test_an_agent_never_decides(verdict, agent):
    with pytest.raises(Rejected, match="An agent can never decide") as caught:
        decided(replace(verdict, by=agent))
    assert caught.value.reason is Reason.CAPABILITY_DENIED


@promise("approvals.who-decides")
@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(approved=True, by="user:alice"),
        Verdict(approved=False, by="user:alice"),
        Verdict(approved=True, by="user:bob", logins=("user:alice",)),
    ],
    ids=["yes", "no", "under another name"],
)
def test_nobody_decides_on_a_call_of_their_own(verdict):
    with pytest.raises(Rejected, match="their own call"):
        decided(verdict, replace(REQUEST, principal="user:alice"))


def test_a_person_confirms_their_own_call_at_its_terminal_and_it_says_so():
    own = replace(REQUEST, principal="user:alice")
    done = decided(Verdict(approved=True, by="user:alice", at_terminal=True), own)
    assert (done.state, done.decided_by, done.self_approved) == (ApprovalState.APPROVED, "user:alice", 1)


@promise("approvals.who-decides")
def test_at_a_terminal_only_who_made_the_call_confirms_it():
    with pytest.raises(Rejected, match="only the person who made the call"):
        decided(Verdict(approved=True, by="user:bob", at_terminal=True), replace(REQUEST, principal="user:alice"))


@pytest.mark.parametrize("state", [s for s in ApprovalState if s is not ApprovalState.PENDING])
def test_what_is_decided_stays_decided(state):
    with pytest.raises(Rejected, match="decided only once"):
        decided(YES, replace(REQUEST, state=state))


def test_a_request_is_decided_in_time_or_not_at_all():
    with pytest.raises(Rejected) as caught:
        decided(now=NOW + 60_000)
    assert caught.value.reason is Reason.APPROVAL_TIMEOUT


def test_only_a_decision_is_revoked_and_only_by_a_person():
    for verdict in (YES, NO):
        revoked = revoke(decided(verdict), by=OPERATOR, now_unix_ms=NOW)
        assert revoked.state is ApprovalState.REVOKED
        assert not covers(revoked, ASKED, now_unix_ms=NOW)
        assert revoked.terms_bytes() == decided(verdict).terms_bytes()
    for approval, by in ((REQUEST, OPERATOR), (decided(), "agent:demo"), (decided(NO), "agent:demo")):
        with pytest.raises(Rejected):
            revoke(approval, by=by, now_unix_ms=NOW)
    with pytest.raises(Rejected, match="only a decision"):
        revoke(revoke(decided(), by=OPERATOR, now_unix_ms=NOW), by=OPERATOR, now_unix_ms=NOW)


def test_a_no_that_is_over_is_not_taken_back():
    with pytest.raises(Rejected, match="over"):
        revoke(decided(NO), by=OPERATOR, now_unix_ms=REQUEST.expires_unix_ms)


def test_who_asked_takes_back_no_no_but_their_own():
    own = replace(REQUEST, principal="user:alice")
    for by, logins in (("user:alice", ()), ("user:bob", ("user:alice",))):
        with pytest.raises(Rejected) as caught:
            revoke(decided(NO, own), by=by, logins=logins, now_unix_ms=NOW)
        assert caught.value.reason is Reason.CAPABILITY_DENIED
    at_terminal = decided(replace(NO, by="user:alice", logins=(), at_terminal=True), own)
    assert revoke(at_terminal, by="user:alice", now_unix_ms=NOW).state is ApprovalState.REVOKED


def test_a_difference_names_what_changed_with_both_values():
    before = {"argv": ["git"], "cwd": "/a", "call_id": "1", "run_id": "1"}
    now = {"argv": ["git", "push"], "cwd": "/a", "call_id": "2", "run_id": "2"}
    assert difference(before, now) == [{"field": "argv", "before": ["git"], "now": ["git", "push"]}]


@promise("approvals.bound-to-call")
def test_every_part_of_a_plan_is_bound_whatever_a_backend_adds():
    for name in PLAN:
        assert question(**{name: ["other"]}).binding != ASKED.binding
    assert question(something_new=1).binding != ASKED.binding
