"""Approvals from Python: the operator's code decides, by name, and never as who asked."""

from __future__ import annotations

import asyncio

import pytest

from palyra.api import AsyncPalyra, Palyra, Rejected, Status


@pytest.fixture
def palyra(home):
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text('[tool_call.process_runner]\negress_enforcement_mode = "none"\n')
    with Palyra.open(str(home)) as opened:
        yield opened


def test_an_operators_code_lists_shows_decides_and_revokes(palyra, workspace):
    run = palyra.run("agent:demo", str(workspace))
    first = run.call("palyra.process.run", {"command": "ls"})
    assert first.status is Status.PENDING_APPROVAL
    ((approval_id,),) = [[item["approval_id"]] for item in palyra.approvals.list()]
    assert palyra.approvals.show(approval_id)["call"]["argv"] == ["ls"]
    for by in ("agent:demo", "agent:operator"):
        with pytest.raises(Rejected, match="An agent can never decide"):
            palyra.approvals.approve(approval_id, by=by)
    assert palyra.approvals.approve(approval_id, by="user:operator", scope="run")["decided_by"] == "user:operator"
    assert [run.call("palyra.process.run", {"command": "ls"}).status for _ in range(2)] == [Status.COMPLETED] * 2
    assert [grant["uses"] for grant in palyra.approvals.grants()] == [2]
    assert palyra.approvals.revoke(approval_id)["state"] == "revoked"
    again = run.call("palyra.process.run", {"command": "ls"})
    assert palyra.approvals.deny(again.approval["approval_id"], reason="no")["state"] == "denied"
    assert run.call("palyra.process.run", {"command": "ls"}).message.endswith("did not approve this call: no")


def test_the_async_face_has_the_same_names_with_await(home, workspace):
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text('[tool_call.process_runner]\negress_enforcement_mode = "none"\n')

    async def main() -> None:
        async with AsyncPalyra.open(home) as palyra:
            await palyra.run("agent:demo", workspace).call("palyra.process.run", {"command": "ls"})
            (waits,) = await palyra.approvals.list()
            assert [waits] == palyra.approvals.list()  # as it came before
            await palyra.approvals.approve(waits["approval_id"], by="user:operator", scope="run")
            assert [grant["approval_id"] for grant in await palyra.approvals.grants()] == [waits["approval_id"]]
            assert await palyra.tools() == palyra.tools() != []

    asyncio.run(main())


def test_a_person_who_asked_does_not_decide(palyra, workspace):
    palyra.run("user:alice", str(workspace)).call("palyra.process.run", {"command": "ls"})
    approval_id = palyra.approvals.list()[0]["approval_id"]
    with pytest.raises(Rejected, match="their own call"):
        palyra.approvals.approve(approval_id, by="user:alice")
    assert palyra.approvals.approve(approval_id, by="user:bob")["state"] == "approved"
