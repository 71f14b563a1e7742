"""A token that was revoked while its calls waited begins none of them: not when a person says yes, not in their turn,
and not after a crash."""

from __future__ import annotations

import asyncio

import pytest

from palyra.daemon import taking
from palyra.daemon.auth import Caller, Proof
from palyra.daemon.lapsing import lapse_of_calls, token_behind
from palyra.daemon.taking import begin_taken
from palyra.engine import asking
from tests.daemons import AGENT, OPERATOR, daemon
from tests.promises import promise

ASKS = '[tool_call.process_runner]\negress_enforcement_mode = "none"\n'


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("lapsing") / "home"
    root.mkdir(mode=0o700)
    (root / "palyra.toml").write_text(ASKS)
    with daemon(root) as made:
        yield made


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def touch(workspace, name: str, **more):
    given = {"command": "touch", "args": [name]}
    return {"tool": "palyra.process.run", "input": given, "workspace": str(workspace), "wait": False} | more


async def ended(served, call_id: str, secret: str = ""):
    async with asyncio.timeout(30):
        while served.state.calls.find(call_id) is not None:
            await asyncio.sleep(0.02)
    return (await served.asking("GET", f"/v1/calls/{call_id}", peer_uid=served.owner_uid)).json()


@promise("daemon.revoked-while-waiting")
def test_a_yes_to_a_call_whose_token_was_revoked_runs_nothing(served, workspace):
    async def story():
        token, secret = await served.state.tokens.create(principal=AGENT, operator=False, by=OPERATOR)
        begun = await served.asking("POST", "/v1/calls", token=secret, json=touch(workspace, "approved"))
        call_id = begun.json()["call_id"]
        while (waits := served.state.calls.find(call_id).waits_for) is None:
            await asyncio.sleep(0.02)
        await served.state.tokens.revoke(token.token_id, by=OPERATOR)
        path = f"/console/v1/approvals/{waits['approval_id']}/approve"
        said = await served.asking("POST", path, peer_uid=served.owner_uid, json={})
        assert said.status_code == 200, said.text
        return await ended(served, call_id)

    outcome = served.run(story())
    assert (outcome["status"], outcome["reason"]) == ("refused", "CAPABILITY_DENIED")
    assert outcome["message"] == "The token that made this call is no longer valid."
    assert list(workspace.iterdir()) == []


@promise("daemon.revoked-while-waiting")
def test_a_call_behind_another_of_its_run_is_not_begun_when_its_token_was_revoked(tmp_path, workspace, monkeypatch):
    monkeypatch.setattr(asking, "BLINK_US", 0)
    with daemon(tmp_path / "home") as served:

        async def story():
            token, secret = await served.state.tokens.create(principal=AGENT, operator=False, by=OPERATOR)
            made = await served.asking("POST", "/v1/runs", token=secret, json={"workspace": str(workspace)})
            run = {"run_id": made.json()["run_id"]}
            slow = touch(workspace, "x", **run) | {"input": {"command": "sleep", "args": ["30"]}}
            first = (await served.asking("POST", "/v1/calls", token=secret, json=slow)).json()["call_id"]
            then = touch(workspace, "queued", **run)
            second = (await served.asking("POST", "/v1/calls", token=secret, json=then)).json()["call_id"]
            await asyncio.sleep(0.1)
            await served.state.tokens.revoke(token.token_id, by=OPERATOR)
            assert served.state.calls.cancel(first), "one that runs goes on until somebody ends it"
            await ended(served, first)
            return await ended(served, second)

        assert served.run(story())["reason"] == "CAPABILITY_DENIED"
    assert list(workspace.iterdir()) == []


@promise("daemon.revoked-while-waiting")
def test_what_a_console_took_on_begins_after_a_crash_only_while_its_token_holds(tmp_path, workspace):
    root = tmp_path / "home"
    with daemon(root) as first:
        token = first.run(first.state.tokens.create(principal=OPERATOR, operator=True, by=OPERATOR))[0]
        cookie, session = first.run(first.state.sessions.open(OPERATOR, token.token_id))
        first.state.calls.begin = lambda request: (_ for _ in ()).throw(KeyboardInterrupt)
        body = touch(workspace, "late")
        with pytest.raises(KeyboardInterrupt):
            first.ask("POST", "/v1/calls", session=(cookie, session.csrf), csrf=session.csrf, json=body)
        first.run(first.state.tokens.revoke(token.token_id, by=OPERATOR))
    with daemon(root) as second:

        async def story():
            assert await begin_taken(second.state) == 1
            while second.state.calls.count:
                await asyncio.sleep(0.02)

        second.run(story())
    assert list(workspace.iterdir()) == []


@promise("daemon.revoked-while-waiting")
def test_a_call_of_days_ago_is_not_begun_by_the_next_start(tmp_path, workspace, monkeypatch):
    root = tmp_path / "home"
    with daemon(root) as first:
        secret = first.token()
        first.state.calls.begin = lambda request: (_ for _ in ()).throw(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            first.ask("POST", "/v1/calls", token=secret, json=touch(workspace, "late"))
    monkeypatch.setattr(taking, "LATEST_MS", -1)
    with daemon(root) as second:

        async def story():
            (taken,) = await second.state.taken.left()
            assert await begin_taken(second.state) == 1
            return await ended(second, taken.call_id)

        assert second.run(story())["reason"] == "BUSY"
    assert list(workspace.iterdir()) == []


def test_the_sockets_owner_needs_no_token(served):
    caller = Caller(principal=OPERATOR, operator=True, proof=Proof.PEER)
    assert (token_behind(caller), lapse_of_calls(served.state, caller)) == ("", None)


@promise("daemon.half-sent-request")
@pytest.mark.parametrize("operator", [False, True])
def test_a_request_that_is_held_open_half_sent_is_nothing_once_its_token_is_revoked(served, operator):
    """Many of them, opened before, would each be one act more."""

    async def story():
        kept = served.state.tokens
        token, secret = await kept.create(principal="user:mallory", operator=operator, by=OPERATOR)

        async def slowly():
            yield b'{"principal": "user:mallory", ' if operator else b'{"tool": "palyra.echo", '
            await kept.revoke(token.token_id, by=OPERATOR)
            await asyncio.sleep(asking.BLINK_US / 1e6)
            yield b'"operator": true}' if operator else b'"input": {}}'

        path = "/console/v1/tokens" if operator else "/v1/calls"
        headers = {"Content-Type": "application/json"}
        before = len(kept.list())
        answer = await served.asking("POST", path, token=secret, content=slowly(), headers=headers)
        return answer.status_code, len(kept.list()) - before

    assert served.run(story()) == (401, 0)
