"""Approvals as rows: decided once, used once, bound, expiring, revocable, and found when somebody edits them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.errors import Reason, Rejected, StateError
from palyra.model.approval import ApprovalState, Fatigue, Scope
from palyra.state.rotation import rotate_key
from tests.approving import NO, OPERATOR, YES, Desk, question
from tests.journaling import NOW, audit_home, closing, run_spec, ulid
from tests.promises import promise
from tests.stores import tampering


@pytest.fixture
def desk(home: Path) -> Iterator[Desk]:
    opened = Desk(home)
    yield opened
    opened.writer.close()


def test_a_request_waits_and_is_one_entry_in_the_same_transaction(desk):
    request = asyncio.run(desk.store.ask(question()))
    assert (request.state, request.requested_index, desk.acts()) == (ApprovalState.PENDING, 0, ["approval.requested"])
    assert desk.announced == [request]
    assert desk.store.find(request.approval_id) == request


def test_the_same_call_asks_once_and_is_counted(desk):
    async def scenario():
        first = await desk.store.ask(question())
        return first, await desk.store.ask(question()), await desk.store.ask(question(argv=["git", "push"]))

    first, second, other = asyncio.run(scenario())
    assert (second.approval_id, second.asks) == (first.approval_id, 2)
    assert other.approval_id != first.approval_id
    assert len(desk.announced) == 2


def test_a_grant_is_found_by_the_same_call_and_by_no_other(desk):
    async def scenario():
        grant = await desk.granted(question())
        return grant, await desk.store.ask(question()), await desk.store.ask(question(argv=["git", "push"]))

    grant, same, other = asyncio.run(scenario())
    assert same == grant
    assert other.state is ApprovalState.PENDING


def test_once_is_used_in_the_transaction_of_the_intent_and_only_once(desk):
    async def scenario():
        grant = await desk.granted(question())
        many = (desk.run(question(), grant) for _ in range(8))
        return grant, await asyncio.gather(*many, return_exceptions=True)

    grant, answers = asyncio.run(scenario())
    refused = [answer for answer in answers if isinstance(answer, Rejected)]
    assert (len(answers) - len(refused), {refusal.reason for refusal in refused}) == (1, {Reason.NOT_APPROVED})
    assert desk.store.find(grant.approval_id).uses == 1
    # A call that lost spent nothing of its run either.
    assert asyncio.run(desk.journal.budget(question().run_id)).calls_used == 1


@pytest.mark.parametrize("part", [{"argv": ["git", "push"]}, {"cwd": "/x"}, {"env": []}, {"net": {"mode": "none"}}])
def test_an_approval_cannot_be_used_for_something_else(desk, part):
    async def scenario():
        grant = await desk.granted(question(), replace(YES, scope=Scope.RUN))
        await desk.run(question(**part), grant)

    with pytest.raises(Rejected) as caught:
        asyncio.run(scenario())
    assert caught.value.reason is Reason.NOT_APPROVED


def test_an_expired_grant_and_a_revoked_one_cannot_be_used(desk):
    async def scenario():
        old = await desk.granted(question())
        desk.now += 30_000
        with pytest.raises(Rejected, match="has expired"):
            await desk.run(question(), old)
        fresh = await desk.granted(question(), replace(YES, scope=Scope.RUN))
        await desk.run(question(), fresh)
        await desk.store.revoke(fresh.approval_id, by=OPERATOR)
        with pytest.raises(Rejected, match="revoked"):
            await desk.run(question(), fresh)
        return await desk.store.ask(question())

    assert asyncio.run(scenario()).state is ApprovalState.PENDING
    assert desk.acts()[-2:] == ["approval.revoked", "approval.requested"]


def test_after_a_no_that_was_taken_back_the_same_call_asks_again(desk):
    async def scenario():
        first = await desk.store.ask(question())
        await desk.store.decide(first.approval_id, NO)
        assert (await desk.store.ask(question())).state is ApprovalState.DENIED
        revoked = await desk.store.revoke(first.approval_id, by=OPERATOR)
        again = await desk.store.ask(question())
        await desk.store.decide(again.approval_id, YES)
        await desk.run(question(), await desk.store.ask(question()))
        return first, revoked, again

    first, revoked, again = asyncio.run(scenario())
    assert (revoked.state, revoked.approval_id == first.approval_id) == (ApprovalState.REVOKED, True)
    assert (again.state, again.approval_id == first.approval_id) == (ApprovalState.PENDING, False)
    acts = ["requested", "decided", "revoked", "requested", "decided"]
    assert desk.acts() == [f"approval.{act}" for act in acts]
    assert desk.store.fatigue(again)["same_call"] == Fatigue(asked=2, approved=1, denied=1, expired=0)
    assert desk.store.earlier(again) is None, "a no that was taken back is no yes"
    assert [found.code for found in audit_home(desk.writer.home).findings] == ["DANGLING"], "its call goes on"


def test_of_two_who_take_a_no_back_one_does(desk):
    async def scenario():
        request = await desk.store.ask(question())
        await desk.store.decide(request.approval_id, NO)
        both = (desk.store.revoke(request.approval_id, by=by) for by in (OPERATOR, "user:carol"))
        return await asyncio.gather(*both, return_exceptions=True)

    answers = asyncio.run(scenario())
    assert sorted(type(answer).__name__ for answer in answers) == ["Approval", "Rejected"]
    assert desk.acts().count("approval.revoked") == 1


def test_a_request_is_decided_once(desk):
    async def scenario():
        request = await desk.store.ask(question())
        both = (desk.store.decide(request.approval_id, verdict) for verdict in (YES, NO))
        return await asyncio.gather(*both, return_exceptions=True)

    answers = asyncio.run(scenario())
    assert sorted(isinstance(answer, Rejected) for answer in answers) == [False, True]
    assert desk.acts() == ["approval.requested", "approval.decided"]


def test_a_no_holds_as_long_as_the_question_would_have(desk):
    async def scenario():
        await desk.granted(question(), NO)
        again = await desk.store.ask(question())
        desk.now += 60_000
        return again, await desk.store.ask(question())

    again, later = asyncio.run(scenario())
    assert (again.state, again.note, later.state) == (ApprovalState.DENIED, "not today", ApprovalState.PENDING)


def test_who_was_not_answered_in_time_is_told_once_and_then_asks_again(desk):
    async def scenario():
        await desk.store.ask(question())
        desk.now += 60_000
        assert await desk.store.expire_overdue() == 1
        return [(await desk.store.ask(question())).state for _ in range(3)]

    assert asyncio.run(scenario()) == [ApprovalState.EXPIRED, ApprovalState.PENDING, ApprovalState.PENDING]
    assert desk.acts() == ["approval.requested", "approval.expired", "approval.requested"]


def test_an_expired_request_cannot_be_decided(desk):
    async def scenario():
        request = await desk.store.ask(question())
        desk.now += 60_000
        await desk.store.decide(request.approval_id, YES)

    with pytest.raises(Rejected):
        asyncio.run(scenario())
    assert desk.acts() == ["approval.requested", "approval.expired"]


@promise("approvals.request-flood")
def test_a_principal_that_floods_people_is_stopped(home):
    desk = Desk(home, max_pending=2)

    async def scenario():
        for number in range(3):
            await desk.store.ask(question(argv=["git", str(number)]))

    with pytest.raises(Rejected, match="agent:demo has 2 requests waiting") as caught:
        asyncio.run(scenario())
    assert caught.value.reason is Reason.BUSY
    desk.writer.close()


def test_pending_and_granted_survive_the_process(home):
    first = Desk(home)
    waiting = asyncio.run(first.store.ask(question()))
    grant = asyncio.run(first.granted(question(argv=["git", "push"])))
    first.writer.close()
    second = Desk(home)
    assert second.store.list(states=[ApprovalState.PENDING]) == (waiting,)
    assert second.store.grants() == (grant,)
    assert asyncio.run(second.store.ask(question(argv=["git", "push"]))) == grant
    second.writer.close()


def test_a_rotated_key_leaves_what_waits_decidable_and_what_was_granted_granted(desk):
    """The request was asked and the grant given under the old key."""
    granted, waits = question(), question(argv=["git", "push"])

    async def story():
        given = await desk.granted(granted)
        asked = await desk.store.ask(waits)
        rotate_key(desk.writer, actor=OPERATOR, at_unix_ms=desk.now)
        assert (await desk.store.ask(granted)).approval_id == given.approval_id
        await desk.run(granted, given)
        decided = await desk.store.decide(asked.approval_id, YES)
        await desk.run(waits, decided)

    asyncio.run(story())


def test_a_terminal_confirms_unless_another_was_quicker(desk):
    own = question(principal="user:alice")

    async def scenario():
        request = await desk.store.ask(own)
        await desk.store.decide(request.approval_id, NO)
        return await desk.store.confirm(request.approval_id, by="user:alice", approved=True)

    assert asyncio.run(scenario()).state is ApprovalState.DENIED


def test_views_are_journaled_and_figures_counted(desk):
    async def scenario():
        await desk.granted(question(), NO)
        await desk.granted(question(argv=["git", "push"]))
        request = await desk.store.ask(question(argv=["git", "push"], cwd="/x"))
        return await desk.store.view(request.approval_id, by=OPERATOR)

    request = asyncio.run(scenario())
    assert desk.acts()[-1] == "approval.viewed"
    assert desk.store.fatigue(request) == {
        "same_call": Fatigue(asked=2, approved=1),
        "same_program": Fatigue(asked=3, approved=1, denied=1),
    }
    assert desk.store.earlier(request).state is ApprovalState.APPROVED
    assert desk.store.shown(request) == {"argv": ["git", "fetch", "origin"]}


EDITS = {
    "given": "UPDATE approvals SET state = 'approved', scope = 'until', valid_until_unix_ms = 9e15, note = 'x'",
    "widened": "UPDATE approvals SET scope = 'run'",
    "prolonged": "UPDATE approvals SET valid_until_unix_ms = valid_until_unix_ms + 1",
    "rebound": "UPDATE approvals SET binding = 'other'",
    "patterned": """UPDATE approvals SET pattern = '["git","**"]'""",
    "another's": "UPDATE approvals SET principal = 'agent:evil'",
    "revived": "UPDATE approvals SET uses = 0",
    "deleted": "DELETE FROM approvals",
    "shown otherwise": "UPDATE approvals SET shown = (SELECT sha256 FROM blobs WHERE sha256 != shown LIMIT 1)",
    "unreadable": "UPDATE approvals SET state = 'maybe'",
    "signed by another": "UPDATE approvals SET decided_by = 'user:boss'",
}


@promise("approvals.reset-decision")
def test_a_decision_that_somebody_set_back_to_a_question_is_not_signed_as_expired(home):
    """The next start said so in an entry that contradicts the one before: the journal never verified again, though the
    row was put right."""
    desk = Desk(home)
    grant = asyncio.run(desk.granted(question()))
    with tampering(desk.writer.home) as other:
        other.execute("UPDATE approvals SET state = 'pending'")
    desk.now = NOW + 10**9
    assert asyncio.run(desk.store.expire_overdue()) == 1
    with pytest.raises(StateError, match="is not what was asked"):
        asyncio.run(desk.store.look(grant.approval_id))
    assert desk.acts() == ["approval.requested", "approval.decided"]
    with tampering(desk.writer.home) as other:
        other.execute("UPDATE approvals SET state = 'approved'")
    assert audit_home(desk.writer.home).findings == ()
    desk.writer.close()


def test_a_decision_that_somebody_brought_back_is_not_signed_as_revoked_once_more(home):
    """The operator who saw it among the grants and took it back signed what the journal never verified with again."""
    desk = Desk(home)
    grant = asyncio.run(desk.granted(question()))
    asyncio.run(desk.store.revoke(grant.approval_id, by="user:operator"))
    with tampering(desk.writer.home) as other:
        other.execute("UPDATE approvals SET state = 'approved', ended_index = NULL")
    with pytest.raises(StateError, match="is not what was decided"):
        asyncio.run(desk.store.revoke(grant.approval_id, by="user:operator"))
    assert desk.acts() == ["approval.requested", "approval.decided", "approval.revoked"]
    desk.writer.close()


@promise("approvals.edited-row")
@pytest.mark.parametrize("edit", EDITS, ids=list(EDITS))
def test_an_edited_row_is_found_by_verify(home, edit):
    desk = Desk(home)

    async def scenario():
        grant = await desk.granted(question())
        call_id = await desk.run(question(), grant)
        await desk.journal.close_call(closing(call_id, run_spec(question().run_id)))

    asyncio.run(scenario())
    home_of = desk.writer.home
    desk.writer.close()
    said = [finding.detail for finding in audit_home(home_of).findings if "approval" in finding.detail]
    assert said == []
    with tampering(home_of) as other:
        other.execute(EDITS[edit])
    said = [finding.detail for finding in audit_home(home_of).findings if "approval" in finding.detail]
    assert len(said) == 1


@promise("approvals.edited-row")
@pytest.mark.parametrize("edit", ["given", "widened", "prolonged", "rebound", "patterned", "another's"])
def test_an_edited_row_grants_nothing(home, edit):
    desk = Desk(home)
    request = asyncio.run(desk.store.ask(question(principal="agent:evil") if edit == "another's" else question()))
    if edit != "given":
        asyncio.run(desk.store.decide(request.approval_id, YES))
    with tampering(desk.writer.home) as other:
        other.execute(EDITS[edit].replace("agent:evil", "agent:demo"))
    asked = replace(question(), binding="other") if edit == "rebound" else question()
    grant = desk.store.find(request.approval_id)
    with pytest.raises(Rejected):
        asyncio.run(desk.run(asked, grant))
    assert asyncio.run(desk.store.ask(asked)).state is not ApprovalState.APPROVED
    desk.writer.close()


def test_a_row_that_nobody_can_read_is_no_answer_to_who_asks_again(desk):
    first = asyncio.run(desk.store.ask(question()))
    with tampering(desk.writer.home) as other:
        other.execute("UPDATE approvals SET scope = 'everything'")
    again = asyncio.run(desk.store.ask(question()))
    assert again.approval_id != first.approval_id
    assert again.state is ApprovalState.PENDING


@pytest.mark.parametrize(
    "edit",
    [
        "binding = 'rm -rf'",
        "shown = (SELECT sha256 FROM blobs ORDER BY length(data) DESC LIMIT 1)",
        "principal = 'agent:evil'",
        "expires_unix_ms = expires_unix_ms + 1",
    ],
    ids=["bound", "shown", "who", "until when"],
)
def test_nobody_is_led_to_sign_for_something_else(desk, edit):
    """What a person sees and what the yes would bind are swapped apart in the row."""
    asyncio.run(desk.store.ask(replace(question(argv=["rm"]), shown=b'{"argv":["rm","-rf","a long one"]}')))
    request = asyncio.run(desk.store.ask(question()))
    with tampering(desk.writer.home) as other:
        other.execute(f"UPDATE approvals SET {edit} WHERE approval_id = ?", (request.approval_id,))
    for look in (desk.store.view(request.approval_id, by=OPERATOR), desk.store.decide(request.approval_id, YES)):
        with pytest.raises(StateError, match="not what was asked"):
            asyncio.run(look)


def test_a_revoked_grant_cannot_be_revived_by_its_state_alone(desk):
    grant = asyncio.run(desk.granted(question(), replace(YES, scope=Scope.RUN)))
    asyncio.run(desk.store.revoke(grant.approval_id, by=OPERATOR))
    with tampering(desk.writer.home) as other:
        other.execute("UPDATE approvals SET state = 'approved'")
    with pytest.raises(Rejected):
        asyncio.run(desk.run(question(), grant))


def test_a_copied_row_grants_nothing(desk):
    grant = asyncio.run(desk.granted(question()))
    asyncio.run(desk.run(question(), grant))
    copy = replace(grant, approval_id=ulid())
    with tampering(desk.writer.home) as other:
        marks = ", ".join("?" * len(copy.as_row()))
        other.execute(f"INSERT INTO approvals VALUES ({marks})", copy.as_row())
    with pytest.raises(Rejected):
        asyncio.run(desk.run(question(), copy))
