"""The agent API: outcomes and their statuses, batches, idempotency, and that nobody sees another's calls."""

from __future__ import annotations

import asyncio
import json

import pytest

from palyra.daemon.taking import begin_taken
from palyra.errors import Reason, Rejected
from palyra.protocol.wire import KEYS
from tests.daemons import AGENT, OPERATOR, OTHER, daemon
from tests.promises import promise

ECHO = {"tool": "palyra.echo", "input": {"hello": "world"}}
ID = "01J0000000000000000000000A"


@pytest.fixture(scope="module")
def one(served):
    return served.token(AGENT)


@pytest.fixture(scope="module")
def two(served):
    return served.token(OTHER)


@pytest.fixture(scope="module")
def operator(served):
    return served.token(OPERATOR, operator=True)


def test_a_call_returns_a_whole_outcome(served, one):
    response = served.ask("POST", "/v1/calls", token=one, json=ECHO)
    outcome = response.json()
    assert response.status_code == 200
    assert tuple(outcome) == KEYS
    assert (outcome["status"], outcome["output"]) == ("completed", {"hello": "world"})
    assert served.ask("GET", f"/v1/calls/{outcome['call_id']}", token=one).json() == outcome
    served.state.calls._ended.clear()
    assert served.ask("GET", f"/v1/calls/{outcome['call_id']}", token=one).json() == outcome, "from the journal too"


def test_the_principal_is_the_tokens_and_the_door_is_http(served, one):
    outcome = served.ask("POST", "/v1/calls", token=one, json=ECHO).json()
    stored = served.run(served.state.installation.journal.find_call(outcome["call_id"]))
    assert stored.principal == AGENT
    assert b'"door":"http"' in stored.details.replace(b" ", b"")


def test_a_refusal_is_an_outcome(served, one):
    response = served.ask("POST", "/v1/calls", token=one, json={"tool": "no.such.tool"})
    outcome = response.json()
    assert (response.status_code, outcome["status"], outcome["reason"]) == (200, "refused", "UNKNOWN_TOOL")
    assert outcome["attestation"]["executor"] == "policy"


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ({"tool": "palyra.echo", "foo": 1}, ["foo"]),
        ({"input": {}, "wait": "no"}, ["tool", "wait"]),
        ([ECHO, {"tool": 1}], ["1.tool"]),
    ],
)
def test_what_is_wrong_is_named_by_what_was_sent_and_not_by_our_own_classes(served, one, body, paths):
    error = served.ask("POST", "/v1/calls", token=one, json=body).json()["error"]
    assert [field["path"] for field in error["fields"]] == paths


@pytest.mark.parametrize("given", [[1], "text", 7, None, True])
def test_an_input_that_is_no_object_is_a_refused_call_with_its_attestation(served, one, given):
    """`attestation` is there for refusals too; the error shape is only for what is not a call request at all."""
    response = served.ask("POST", "/v1/calls", token=one, json={"tool": "palyra.echo", "input": given})
    outcome = response.json()
    assert (response.status_code, outcome["status"], outcome["reason"]) == (200, "refused", "MALFORMED")
    assert outcome["attestation"]["executor"] == "policy"
    assert outcome["receipt"]["index"] >= 0


def test_results_of_a_batch_come_in_its_order(served, one):
    batch = [{"tool": "palyra.echo", "input": {"n": n}} for n in range(20)]
    batch[7] = {"tool": "no.such.tool"}
    response = served.ask("POST", "/v1/calls", token=one, json=batch)
    outcomes = response.json()
    assert response.status_code == 200
    assert [outcome["output"].get("n") for outcome in outcomes] == [n if n != 7 else None for n in range(20)]
    assert len({outcome["run_id"] for outcome in outcomes}) == 1, "a batch is one run"


def test_a_batch_that_is_too_long_is_no_request(served, one):
    assert served.ask("POST", "/v1/calls", token=one, json=[ECHO] * 65).status_code == 422
    assert served.ask("POST", "/v1/calls", token=one, json=[]).status_code == 422


def test_the_same_call_id_runs_nothing_twice(served, one, two):
    call = ECHO | {"call_id": ID}
    first = served.ask("POST", "/v1/calls", token=one, json=call).json()
    again = served.ask("POST", "/v1/calls", token=one, json=call).json()
    assert again == first
    other = served.ask("POST", "/v1/calls", token=one, json=call | {"input": {}}).json()
    assert (other["status"], other["reason"]) == ("refused", "CALL_ID_REUSED")
    stranger = served.ask("POST", "/v1/calls", token=two, json=call).json()
    assert stranger["reason"] == "CALL_ID_REUSED"
    assert stranger["call_id"] != ID
    assert stranger["output"] == {}


@promise("daemon.refused-reuse")
def test_a_refused_reuse_of_an_id_does_not_take_the_place_of_the_first_call(served, one, two, operator):
    """Whoever sent an id of an earlier call once more had every look at that call show the refusal instead."""
    first = served.ask("POST", "/v1/calls", token=one, json=ECHO | {"call_id": ID}).json()
    for token, given in ((one, {"other": 1}), (two, {}), (one, {"other": 2})):
        body = {"tool": "palyra.echo", "input": given, "call_id": ID}
        assert served.ask("POST", "/v1/calls", token=token, json=body).json()["reason"] == "CALL_ID_REUSED"
        for who in (one, operator):
            assert served.ask("GET", f"/v1/calls/{ID}", token=who).json()["call_id"] == ID
            assert served.ask("POST", f"/v1/calls/{ID}/cancel", token=who).json()["success"]
            (event,) = _events(served.ask("GET", f"/v1/calls/{ID}/stream", token=who))
            assert json.loads(event["data"])["attestation"] == first["attestation"]


def test_a_reused_id_is_refused_at_once_where_nobody_waits(served, one):
    """Later it could not be told: under the id the first call is found."""
    first = served.ask("POST", "/v1/calls", token=one, json=ECHO | {"call_id": ID}).json()
    body = ECHO | {"call_id": ID, "wait": False}
    again = served.ask("POST", "/v1/calls", token=one, json=body)
    assert (again.status_code, again.json()["attestation"]) == (200, first["attestation"])
    other = served.ask("POST", "/v1/calls", token=one, json=body | {"input": {"other": 1}})
    assert (other.status_code, other.json()["reason"]) == (200, "CALL_ID_REUSED")


@promise("daemon.token-rights")
def test_nobody_sees_anothers_calls(served, one, two, operator):
    call_id = served.ask("POST", "/v1/calls", token=one, json=ECHO).json()["call_id"]
    for method, path in (("GET", ""), ("POST", "/cancel"), ("GET", "/stream")):
        there = served.ask(method, f"/v1/calls/{call_id}{path}", token=two)
        nowhere = served.ask(method, f"/v1/calls/{ID[:-1]}Z{path}", token=two)
        assert (there.status_code, there.json()) == (404, nowhere.json())
        assert served.ask(method, f"/v1/calls/{call_id}{path}", token=operator).status_code == 200


@promise("daemon.operator-fields")
@pytest.mark.parametrize(
    "said",
    [
        {"allow": ["make"]},
        {"allow": []},
        {"allow_interpreters": True},
        {"allow_interpreters": False},
        {"allow_host": ["example.org"]},
        {"read": ["/"]},
        {"env": {"CI": "1"}},
        {"egress": "none"},
        {"tier": "b"},
        {"allow_root_tier_b": True},
        {"principal": OTHER},
        {"timeout_ms": 10},
        {"door": "cli"},
    ],
)
def test_an_agent_cannot_say_what_is_an_operators(served, one, said):
    outcome = served.ask("POST", "/v1/calls", token=one, json=ECHO | said).json()
    assert (outcome["status"], outcome["reason"]) == ("refused", "CAPABILITY_DENIED")


def test_an_operator_speaks_for_others_and_grants(served, operator):
    said = {"principal": OTHER, "allow": ["make"], "egress": "none", "tier": "b", "timeout_ms": 5, "door": "cli"}
    outcome = served.ask("POST", "/v1/calls", token=operator, json=ECHO | said).json()
    assert outcome["status"] == "completed"
    stored = served.run(served.state.installation.journal.find_call(outcome["call_id"]))
    assert stored.principal == OTHER
    assert outcome["attestation"]["limits"]["wall_ms"] == 5


def test_bytes_that_are_no_call_are_recorded_all_the_same(served, one):
    before = len(_refusals(served))
    assert served.ask("POST", "/v1/calls", token=one, content=b'{"tool":').status_code == 400
    assert len(_refusals(served)) == before + 1
    assert served.ask("POST", "/v1/calls", content=b'{"tool":').status_code == 401
    assert len(_refusals(served)) == before + 1, "who has no credential writes nothing"


def _refusals(served):
    return [
        body for (body,) in served.state.installation.writer.rows("SELECT body FROM entries") if b"MALFORMED" in body
    ]


def test_a_relative_workspace_is_not_the_daemons_own(served, one):
    outcome = served.ask("POST", "/v1/calls", token=one, json=ECHO | {"workspace": "."}).json()
    assert outcome["reason"] == "BAD_ARGUMENTS"


def test_a_token_is_bound_to_its_workspace(served, workspace):
    inner = workspace / "inner"
    inner.mkdir()
    bound = served.token(AGENT, workspace=str(workspace))
    for named, reason in ((None, None), (str(inner), None), ("/", "CAPABILITY_DENIED"), ("/etc", "CAPABILITY_DENIED")):
        body = ECHO if named is None else ECHO | {"workspace": named}
        assert served.ask("POST", "/v1/calls", token=bound, json=body).json()["reason"] == reason
    twin = str(workspace) + "-twin"
    assert served.ask("POST", "/v1/calls", token=bound, json=ECHO | {"workspace": twin}).json()["reason"] == (
        "CAPABILITY_DENIED"
    )


def test_a_call_that_is_not_waited_for_is_followed_to_its_end(served, one, workspace):
    call = {
        "tool": "palyra.process.run",
        "input": {"command": "seq", "args": ["3"]},
        "workspace": str(workspace),
        "wait": False,
    }
    response = served.ask("POST", "/v1/calls", token=one, json=call)
    running = response.json()
    assert (response.status_code, running["status"], running["attestation"]) == (202, "running", None)
    assert tuple(running) == KEYS
    events = _events(served.ask("GET", f"/v1/calls/{running['call_id']}/stream", token=one))
    outcome = json.loads(events[-1]["data"])
    assert (events[-1]["event"], outcome["status"], outcome["output"]["stdout"]) == (
        "outcome",
        "completed",
        "1\n2\n3\n",
    )
    said = "".join(json.loads(one["data"])["text"] for one in events if one["event"] == "output")
    assert said == "1\n2\n3\n"
    resumed = _events(
        served.ask(
            "GET", f"/v1/calls/{running['call_id']}/stream", token=one, headers={"Last-Event-ID": events[0]["id"]}
        )
    )
    assert resumed == events[1:]
    assert served.run(served.state.taken.left()) == []


def _events(response) -> list[dict]:
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = [block for block in response.text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


def test_cancelling_one_never_ends_its_sibling(served, one, workspace):
    def sleep(call_id: str, seconds: str) -> dict:
        return {
            "tool": "palyra.process.run",
            "input": {"command": "sleep", "args": [seconds]},
            "workspace": str(workspace),
            "call_id": call_id,
        }

    async def story():
        first = asyncio.ensure_future(served.asking("POST", "/v1/calls", token=one, json=sleep(ID[:-1] + "B", "30")))
        second = asyncio.ensure_future(served.asking("POST", "/v1/calls", token=one, json=sleep(ID[:-1] + "C", "1")))
        await asyncio.sleep(0.3)
        cancelled = await served.asking("POST", f"/v1/calls/{ID[:-1]}B/cancel", token=one)
        return cancelled, await first, await second

    cancelled, first, second = served.run(story())
    assert cancelled.json() == first.json()
    assert (first.json()["status"], second.json()["status"]) == ("cancelled", "completed")


def test_who_borrows_the_id_of_an_attended_call_neither_ends_it_nor_takes_its_stdin(served, operator, two, workspace):
    call = {"tool": "palyra.process.run", "workspace": str(workspace), "call_id": ID[:-1] + "E"}
    attended = {"Accept": "text/event-stream"}

    async def story():
        cat = call | {"input": {"command": "cat"}, "stream_stdin": True}
        theirs = asyncio.ensure_future(served.asking("POST", "/v1/calls", token=operator, json=cat, headers=attended))
        while (ID[:-1] + "E") not in served.state.attended:
            await asyncio.sleep(0.01)
        mine = call | {"input": {"command": "sleep", "args": ["30"]}}
        asking = asyncio.ensure_future(served.asking("POST", "/v1/calls", token=two, json=mine, headers=attended))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.sleep(0.3)
        path = f"/v1/calls/{call['call_id']}/stdin"
        binary = {"Content-Type": "application/octet-stream"}
        fed = await served.asking("POST", path, token=operator, content=b"fed", headers=binary)
        return fed, _events(await theirs)

    fed, events = served.run(asyncio.wait_for(story(), 30))
    assert fed.json() == {"bytes": 3}
    outcome = json.loads(events[-1]["data"])
    assert (outcome["status"], outcome["output"]["stdout"]) == ("completed", "fed")


def test_who_borrows_the_id_of_a_call_that_was_taken_on_does_not_make_it_forgotten(served, one, two, workspace):
    call = {"tool": "palyra.process.run", "workspace": str(workspace), "call_id": ID[:-1] + "F"}

    async def story():
        mine = call | {"input": {"command": "sleep", "args": ["30"]}, "wait": False}
        assert (await served.asking("POST", "/v1/calls", token=one, json=mine)).status_code == 202
        await served.asking("POST", "/v1/calls", token=two, json=ECHO | {"call_id": call["call_id"]})
        await served.state.ends.settle()
        kept = set(served.state.ends._noted)
        await served.asking("POST", f"/v1/calls/{call['call_id']}/cancel", token=one)
        await served.state.ends.settle()
        return kept, set(served.state.ends._noted)

    assert served.run(story()) == ({call["call_id"]}, set())


def test_too_much_at_once_is_busy(tmp_path, workspace):
    with daemon(tmp_path / "home", max_calls=3) as small:
        token = small.token()
        call = {
            "tool": "palyra.process.run",
            "input": {"command": "sleep", "args": ["0.5"]},
            "workspace": str(workspace),
        }

        async def story():
            return await asyncio.gather(*(small.asking("POST", "/v1/calls", token=token, json=call) for _ in range(4)))

        answers = small.run(story())
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429]
        busy = next(answer.json() for answer in answers if answer.status_code == 429)
        assert (busy["status"], busy["reason"]) == ("refused", "BUSY")
        assert busy["receipt"] is None
        assert busy["attestation"] is not None


def _held_up(workspace):
    return {"tool": "palyra.process.run", "input": {"command": "sleep", "args": ["30"]}, "workspace": str(workspace)}


def test_a_call_without_a_place_is_not_accepted_and_leaves_its_id_free(tmp_path, workspace):
    """202 was answered, and the call was then refused with BUSY."""
    mine = ECHO | {"call_id": ID, "wait": False}
    with daemon(tmp_path / "home", max_calls=1) as small:
        token = small.token()

        async def story():
            taken = (
                await small.asking("POST", "/v1/calls", token=token, json=_held_up(workspace) | {"wait": False})
            ).json()
            assert small.state.calls.count == 1
            busy = [
                await small.asking("POST", "/v1/calls", token=token, json=mine | more) for more in ({}, {"wait": True})
            ]
            unknown = await small.asking("GET", f"/v1/calls/{ID}", token=token)
            recorded = await small.state.installation.journal.find_call(ID)
            left = [call.call_id for call in await small.state.taken.left()]
            await small.asking("POST", f"/v1/calls/{taken['call_id']}/cancel", token=token)
            again = await small.asking("POST", "/v1/calls", token=token, json=mine | {"wait": True})
            return busy, unknown.status_code, recorded, left, again.json()["status"]

        busy, *others = small.run(story())
        assert [(answer.status_code, answer.json()["reason"]) for answer in busy] == [(429, "BUSY")] * 2
        assert others == [404, None, [], "completed"]


def test_an_accepted_call_keeps_its_place_while_it_is_written_down(tmp_path, workspace):
    with daemon(tmp_path / "home", max_calls=1) as small:
        token, take = small.token(), small.state.taken.take
        nowait = ECHO | {"wait": False}

        async def story():
            inside, go_on = asyncio.Event(), asyncio.Event()

            async def slow(call):
                inside.set()
                await go_on.wait()
                return await take(call)

            small.state.taken.take = slow
            first = asyncio.ensure_future(small.asking("POST", "/v1/calls", token=token, json=nowait))
            await inside.wait()
            others = [await small.asking("POST", "/v1/calls", token=token, json=body) for body in (ECHO, nowait)]
            go_on.set()
            accepted = await first
            while small.state.calls.count:
                await asyncio.sleep(0.01)
            ended = await small.asking("GET", f"/v1/calls/{accepted.json()['call_id']}", token=token)
            assert (small.state.calls._held, small.state.calls._of_agents) == (0, 0)
            return [answer.status_code for answer in others], accepted.status_code, ended.json()["status"]

        refused, status, ended = small.run(story())
        assert (refused, status in (200, 202), ended) == ([429, 429], True, "completed")


def test_a_call_accepted_as_the_daemon_ends_is_begun_by_the_next_one(tmp_path):
    root = tmp_path / "home"
    with daemon(root) as first:
        token, take = first.token(), first.state.taken.take

        async def ending(call):
            done = await take(call)
            await first.state.calls.finish(within_s=0)
            return done

        first.state.taken.take = ending
        response = first.ask("POST", "/v1/calls", token=token, json=ECHO | {"call_id": ID, "wait": False})
        assert (response.status_code, response.json()["status"]) == (202, "running")
    with daemon(root) as second:

        async def story():
            assert await begin_taken(second.state) == 1
            while second.state.calls.count:
                await asyncio.sleep(0.01)

        second.run(story())
        assert second.ask("GET", f"/v1/calls/{ID}", token=token).json()["status"] == "completed"


def test_an_accepted_call_is_recorded_however_it_ends(tmp_path, workspace):
    """A run's queue may be full by the time it begins: 202 was said, so BUSY is recorded too."""
    with daemon(tmp_path / "home", max_calls=1) as small:
        token = small.token()

        async def story():
            shortage = Rejected(Reason.BUSY, "The queue is full.", "Wait.")
            small.state.installation.engine._turns.take = lambda *_: (_ for _ in ()).throw(shortage)
            body = ECHO | {"call_id": ID, "wait": False}
            await small.asking("POST", "/v1/calls", token=token, json=body)
            while small.state.calls.count:
                await asyncio.sleep(0.01)
            return await small.state.installation.journal.find_call(ID)

        assert small.run(story()).recorded is not None


@promise("daemon.reserved-capacity")
def test_agents_that_take_all_the_room_leave_some_to_operators(tmp_path, workspace):
    slow = {"tool": "palyra.process.run", "input": {"command": "sleep", "args": ["30"]}, "workspace": str(workspace)}
    with daemon(tmp_path / "home", max_calls=8) as small:

        async def story():
            for name, count in (("agent:one", 6), ("agent:two", 2)):
                secret = (await small.state.tokens.create(principal=name, operator=False, by=OPERATOR))[1]
                for _ in range(count):
                    await small.asking("POST", "/v1/calls", token=secret, json=slow | {"wait": False})
            busy = await small.asking("POST", "/v1/calls", token=secret, json=ECHO)
            through = await small.asking("POST", "/v1/calls", peer_uid=small.owner_uid, json=ECHO)
            await small.state.calls.finish(within_s=0)
            return busy.json()["reason"], through.json()["status"]

        assert small.run(story()) == ("BUSY", "completed")


def test_what_was_taken_on_begins_after_a_crash(tmp_path):
    root = tmp_path / "home"
    with daemon(root) as first:
        token = first.token()
        body = ECHO | {"call_id": ID, "wait": False}
        first.state.calls.begin = lambda request: (_ for _ in ()).throw(KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            first.ask("POST", "/v1/calls", token=token, json=body)
    with daemon(root) as second:

        async def story():
            count = await begin_taken(second.state)
            while second.state.calls.count:
                await asyncio.sleep(0.01)
            await second.state.ends.settle()
            return count

        assert second.run(story()) == 1
        found = second.ask("GET", f"/v1/calls/{ID}", token=token).json()
        assert (found["status"], found["output"]) == ("completed", ECHO["input"])
        assert second.run(begin_taken(second.state)) == 0


def test_tools_are_those_the_caller_could_use(served, one):
    page = served.ask("GET", "/v1/tools", token=one).json()
    assert set(page) == {"items", "next"}
    assert {"palyra.echo", "palyra.process.run"} <= {tool["name"] for tool in page["items"]}


@promise("secrets.delayed-stream")
def test_an_agents_stream_comes_late_and_an_operators_does_not(served, one, operator):
    from palyra.daemon.call_models import CallBody
    from palyra.daemon.orders import make_order

    body = CallBody(tool="palyra.echo")
    for token, lagging in ((one, True), (operator, False)):
        caller = served.state.guard.identify({"authorization": f"Bearer {token}"}, dict, peer_uid=None)
        assert make_order(served.state, caller, body).request.lagging is lagging
