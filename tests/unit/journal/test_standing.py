"""What entries say of approvals is held together: who decided, who took it back, in which order."""

from __future__ import annotations

import pytest

from palyra.canon import Json
from palyra.journal.entry import EntryView
from palyra.journal.standing import Standing

ASKER, OTHER = "user:alice", "user:bob"


def act(name: str, actor: str, **details: Json) -> tuple[str, str, dict[str, Json]]:
    return name, actor, {"approval_id": "A", "principal": ASKER, "tool": "t", **details}


REQUESTED = act("requested", ASKER)
DENIED = act("decided", OTHER, decision="denied", self_approved=False)
APPROVED = act("decided", OTHER, decision="approved", self_approved=False, scope="run")
OWN_NO = act("decided", ASKER, decision="denied", self_approved=True)


def found(*acts: tuple[str, str, dict[str, Json]]) -> list[str]:
    standing = Standing()
    said: list[str] = []
    for index, (name, actor, details) in enumerate(acts):
        predicate = {"act": f"approval.{name}", "actor": actor, "details": details}
        said += standing.read(EntryView("urn:palyra:act:v1", index, None, 1, "approval/A", predicate))
    return said


@pytest.mark.parametrize(
    "acts",
    [
        (REQUESTED, APPROVED, act("revoked", OTHER)),
        (REQUESTED, DENIED, act("revoked", OTHER)),
        (REQUESTED, DENIED, act("revoked", "user:carol")),
        (REQUESTED, OWN_NO, act("revoked", ASKER)),
        (REQUESTED, APPROVED, act("revoked", ASKER)),
        (REQUESTED, act("expired", "palyra")),
    ],
)
def test_decisions_that_were_taken_back_by_who_may_are_in_order(acts):
    assert found(*acts) == []


@pytest.mark.parametrize(
    ("acts", "sentence"),
    [
        ((REQUESTED, DENIED, act("revoked", ASKER)), "Entry 2 has who asked for approval A take back another's no."),
        ((REQUESTED, act("revoked", OTHER)), "Entry 1 ends approval A, which was pending."),
        ((REQUESTED, DENIED, act("expired", "palyra")), "Entry 2 ends approval A, which was denied."),
        ((REQUESTED, DENIED, act("revoked", OTHER), APPROVED), "Entry 3 decides approval A, which was revoked."),
        ((REQUESTED, act("decided", "agent:x")), "Entry 1 has approval A decided by agent:x, who is not a person."),
        ((REQUESTED, act("decided", ASKER)), "Entry 1 has approval A decided by the principal who asked for it."),
        ((APPROVED,), "Entry 0 is about approval A, which nobody asked for."),
    ],
)  # fmt: skip
def test_entries_that_contradict_each_other_are_named(acts, sentence):
    assert found(*acts) == [sentence]
