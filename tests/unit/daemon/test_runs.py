"""Runs over HTTP narrow, are kept, belong to who made them, and end."""

from __future__ import annotations

import asyncio

import pytest

from tests.daemons import AGENT, OPERATOR, OTHER, daemon
from tests.promises import promise

ECHO = {"tool": "palyra.echo", "input": {}}


@pytest.fixture(scope="module")
def one(served):
    return served.token(AGENT)


def make(served, token, **body):
    return served.ask("POST", "/v1/runs", token=token, json=body)


def test_a_run_narrows_and_says_what_holds(served, one, workspace):
    response = make(
        served, one, workspace=str(workspace), limits={"wall_ms": 1000, "memory_bytes": 1 << 44}, calls_max=2
    )
    run = response.json()
    assert response.status_code == 201
    assert (run["limits"]["wall_ms"], run["limits"]["memory_bytes"]) == (1000, 4 << 30), "never more than configured"
    assert run["budget"]["calls_max"] == 2
    outcomes = [served.ask("POST", "/v1/calls", token=one, json=ECHO | {"run_id": run["run_id"]}).json() for _ in "123"]
    assert [outcome["reason"] for outcome in outcomes] == [None, None, "BUDGET_SPENT"]
    assert outcomes[0]["attestation"]["limits"]["wall_ms"] == 1000


@pytest.mark.parametrize("asked", [{"egress": "none"}, {"egress": "preflight"}, {"egress": "allow_all"}, {"tier": "b"}])
def test_a_run_never_widens(served, one, asked):
    response = make(served, one, **asked)
    assert (response.status_code, response.json()["error"]["code"]) == (403, "CAPABILITY_DENIED")


def test_a_run_may_narrow_any_of_it_for_its_session(served, one, workspace):
    fewer = {"allowed_tools": ["palyra.process.*"], "allowed_executables": ["ls"], "allowed_egress_hosts": []}
    run = make(served, one, workspace=str(workspace), **fewer).json()
    assert run["narrowing"] == fewer

    def reason(tool, **given):
        body = {"tool": tool, "input": given, "run_id": run["run_id"]}
        return served.ask("POST", "/v1/calls", token=one, json=body).json()["reason"]

    assert reason("palyra.echo") == "POLICY_DENIED"
    assert reason("palyra.process.run", command="cat") == "EXECUTABLE_DENIED"
    assert reason("palyra.process.run", command="ls") is None
    assert make(served, one, allowed_egress_hosts=["*"]).status_code in (400, 409, 422)


def test_a_run_belongs_to_who_made_it(served, one):
    run_id = make(served, one).json()["run_id"]
    other, operator = served.token(OTHER), served.token(OPERATOR, operator=True)
    assert served.ask("GET", f"/v1/runs/{run_id}", token=other).status_code == 404
    assert served.ask("POST", f"/v1/runs/{run_id}/end", token=other).status_code == 404
    refused = served.ask("POST", "/v1/calls", token=other, json=ECHO | {"run_id": run_id}).json()
    assert refused["reason"] == "BAD_ARGUMENTS"
    assert served.ask("GET", f"/v1/runs/{run_id}", token=operator).status_code == 200
    assert make(served, other, principal=AGENT).status_code == 403


def test_the_same_calls_against_a_daemon_an_agent_may_name_itself(served, one, workspace):
    """`palyra.run(principal="agent:demo", workspace=".")` is "the same calls against a daemon"."""
    made = make(served, one, workspace=str(workspace), principal=AGENT)
    assert (made.status_code, made.json()["principal"]) == (201, AGENT)
    said = {"run_id": made.json()["run_id"], "principal": AGENT}
    assert served.ask("POST", "/v1/calls", token=one, json=ECHO | said).json()["status"] == "completed"
    refused = served.ask("POST", "/v1/calls", token=one, json=ECHO | {"principal": OTHER}).json()
    assert (refused["reason"], "principal" in refused["message"]) == ("CAPABILITY_DENIED", True)


def test_a_run_that_nobody_made_is_none_for_an_agent(served, one):
    refused = served.ask("POST", "/v1/calls", token=one, json=ECHO | {"run_id": "01J00000000000000000000000"}).json()
    assert refused["reason"] == "BAD_ARGUMENTS"


def test_an_ended_run_takes_no_calls(served, one):
    run_id = make(served, one).json()["run_id"]
    ended = served.ask("POST", f"/v1/runs/{run_id}/end", token=one).json()
    assert ended["ended_at_unix_ms"] is not None
    assert served.ask("POST", f"/v1/runs/{run_id}/end", token=one).json() == ended
    refused = served.ask("POST", "/v1/calls", token=one, json=ECHO | {"run_id": run_id}).json()
    assert (refused["reason"], refused["message"]) == ("BAD_ARGUMENTS", "This run has ended.")


def test_a_run_is_as_narrow_after_a_restart(tmp_path):
    root = tmp_path / "home"
    with daemon(root) as first:
        token = first.token()
        made = make(first, token, limits={"wall_ms": 7}, allowed_tools=["palyra.fs.*"]).json()
    with daemon(root) as second:
        assert second.ask("GET", f"/v1/runs/{made['run_id']}", token=token).json() == made


def test_a_large_result_of_a_single_call_can_be_read_by_who_made_it(served, one, workspace):
    """palyra.artifact.read pages through what was too large to show: of a call without a run of its own too."""
    body = {"tool": "palyra.process.run", "input": {"command": "seq", "args": ["20000"]}, "workspace": str(workspace)}
    outcome = served.ask("POST", "/v1/calls", token=one, json=body).json()
    (artifact,) = outcome["artifacts"]
    read = {"tool": "palyra.artifact.read", "input": {"artifact_id": artifact["artifact_id"], "max_bytes": 8}}
    page = served.ask("POST", "/v1/calls", token=one, json=read | {"run_id": outcome["run_id"]}).json()
    assert (page["status"], page["output"].get("text")) == ("completed", "1\n2\n3\n4\n")
    assert page["budget"]["calls_used"] == 2, "it is the same run, with the same budget"
    stranger = served.ask("POST", "/v1/calls", token=served.token(OTHER), json=read | {"run_id": outcome["run_id"]})
    assert (stranger.json()["reason"], stranger.json()["message"]) == ("BAD_ARGUMENTS", "There is no such run.")
    owning = body | {"run_id": outcome["run_id"], "input": {"command": "sleep", "args": ["9"], "background": True}}
    assert served.ask("POST", "/v1/calls", token=one, json=owning).json()["reason"] == "BAD_ARGUMENTS"
    elsewhere = read | {"run_id": outcome["run_id"], "workspace": str(workspace.parent)}
    assert served.ask("POST", "/v1/calls", token=one, json=elsewhere).json()["message"] == "A run has one workspace."


@promise("daemon.ended-run")
@pytest.mark.parametrize("wait", [True, False])
def test_a_call_that_was_on_its_way_when_its_run_was_ended_does_not_begin(served, one, workspace, wait):
    """At whichever step of its way in: who ended the run was told that nothing of it goes on."""
    made = []

    async def once(steps: int) -> None:
        run = (await served.asking("POST", "/v1/runs", token=one, json={"workspace": str(workspace)})).json()["run_id"]
        name = f"late-{wait}-{steps}"
        given = {"command": "touch", "args": [name]}
        body = {"tool": "palyra.process.run", "input": given, "run_id": run, "wait": wait}
        call = body | {"call_id": served.state.ids.ulid()}
        asking = asyncio.ensure_future(served.asking("POST", "/v1/calls", token=one, json=call))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert (await served.asking("POST", f"/v1/runs/{run}/end", token=one)).status_code == 200
        before = (workspace / name).exists()
        await asking
        while served.state.calls.count:
            await asyncio.sleep(0.005)
        if (workspace / name).exists() and not before:
            made.append(name)

    async def story():
        for steps in range(14):
            await once(steps)

    served.run(story())
    assert made == []
