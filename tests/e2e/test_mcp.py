"""MCP as a client sees it: both eras of the protocol, allowed, refused, asked, cancelled, in the background."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.extension import advertise
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from palyra.config.load import Home
from palyra.mcp.callers import Caller, OneCaller, begin_run
from palyra.mcp.messages import META_ATTESTATION, META_EXPLANATION, META_RECEIPT, META_TOOL, whole_outcome
from palyra.mcp.server import make_server
from palyra.model.approval import ApprovalState
from palyra.wiring.embedded import Installation, open_installation
from tests.promises import promise

OPEN = '[tool_call.process_runner]\negress_enforcement_mode = "none"\n'
ERAS = ["legacy", "2026-07-28"]
PERSON = "user:somebody"
Work = Callable[[Server[Any], Installation], Awaitable[None]]


def serving(home: Path, workspace: Path, work: Work, *, config: str = "", person: str | None = PERSON) -> None:
    """A server in this process, for one test."""
    home.mkdir(mode=0o700, exist_ok=True)
    if config:
        (home / "palyra.toml").write_text(config)

    async def whole() -> None:
        installation = await open_installation(Home(home))
        try:
            run = begin_run(installation, principal="agent:mcp", workspace=str(workspace), channel="stdio")
            await work(make_server(installation, OneCaller(Caller(run=run, person=person))), installation)
        finally:
            await installation.close()

    asyncio.run(whole())


@asynccontextmanager
async def connected(server: Server[Any], era: str, **options: Any) -> AsyncIterator[Client]:
    async with Client(server, mode=era, **options) as client:  # type: ignore[arg-type]  # the era as text
        yield client


def answering(*, action: str = "accept", decision: str | None = "approve", seen: list[Any] | None = None) -> Any:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        if seen is not None:
            seen.append(params)
        content: Any = {"decision": decision} if decision is not None else {}
        return types.ElicitResult(action=action, content=content if action == "accept" else None)  # type: ignore[arg-type]

    return answer


class Anything(types.Result):
    model_config = ConfigDict(extra="allow")


async def ask(client: Client, method: str, **params: Any) -> dict[str, Any]:
    """A request as no well-behaved client would send it, or of an extension."""
    answer = await client.session.send_request(types.Request[Any, Any](method=method, params=params), Anything)
    return answer.model_dump(by_alias=True)


@pytest.mark.parametrize("era", ERAS)
def test_tools_are_listed_called_and_refused_with_reason_hint_and_receipt(home, workspace, era):
    (workspace / "hello.txt").write_text("hello")

    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, era) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert tools["palyra_process_run"].meta[META_TOOL] == "palyra.process.run"
            done = await client.call_tool("palyra_process_run", {"command": "cat", "args": ["hello.txt"]})
            assert (done.is_error, done.structured_content["output"]["stdout"]) == (False, "hello")
            assert done.meta[META_RECEIPT]["index"] >= 1
            assert done.meta[META_ATTESTATION]["executor"].startswith("sandbox_tier_c")
            no = await client.call_tool("palyra_process_run", {"command": "cat", "args": ["/etc/shadow"]})
            assert (no.is_error, no.structured_content["reason"]) == (True, "OUTSIDE_WORKSPACE")
            assert "OUTSIDE_WORKSPACE" in no.content[0].text
            assert no.structured_content["hint"]
            why = no.meta[META_EXPLANATION]
            assert why["kind"] == "forbid"
            assert [policy["id"] for policy in why["policies"]] == ["guard.30-outside-workspace"]
            assert set(why) == {"kind", "policies", "nearest", "changes"}
            assert META_EXPLANATION not in done.meta
            wrong = await client.call_tool("palyra_process_run", {"command": "cat", "argz": []})
            assert wrong.structured_content["reason"] == "BAD_ARGUMENTS"

    serving(home, workspace, work)


@pytest.mark.parametrize("era", ERAS)
def test_the_signed_outcome_can_be_verified_from_what_the_client_got(home, workspace, era, cli, tmp_path):
    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, era) as client:
            done = await client.call_tool("palyra_echo", {"a": [1, 2.5, "é"]})
            wire = json.loads(done.model_dump_json(by_alias=True))
            (tmp_path / "outcome.json").write_text(json.dumps(whole_outcome(wire)))

    serving(home, workspace, work)
    assert cli("verify", str(tmp_path / "outcome.json")).returncode == 0


@pytest.mark.parametrize("era", ERAS)
def test_unknown_tools_and_broken_calls_are_errors_with_a_reason_and_are_journaled(home, workspace, era, cli):
    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, era) as client:
            with pytest.raises(MCPError) as unknown:
                await client.call_tool("palyra_proces_run", {})
            assert unknown.value.error.code == types.INVALID_PARAMS
            assert unknown.value.error.data["reason"] == "UNKNOWN_TOOL"
            assert unknown.value.error.data["receipt"]
            with pytest.raises(MCPError) as broken:
                await ask(client, "tools/call", name="palyra_echo", arguments=[1])
            assert broken.value.error.data["reason"] == "MALFORMED"

    serving(home, workspace, work)
    reasons = [
        item["entry"]["predicate"].get("reason")
        for item in json.loads(cli("journal", "tail", "-n", "100", "--json").stdout)["items"]
    ]
    assert {"UNKNOWN_TOOL", "MALFORMED"} <= set(reasons)


def test_what_policy_could_never_allow_is_not_listed(home, workspace):
    (home / "policies").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "policies" / "no-fetch.cedar").write_text(
        '@id("no.fetch") forbid (principal, action, resource == Tool::"palyra.http.fetch");\n'
    )

    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, "2026-07-28") as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            assert "palyra_process_run" in listed
            assert "palyra_http_fetch" not in listed
            no = await client.call_tool("palyra_http_fetch", {"url": "https://example.org/"})
            assert (no.is_error, no.structured_content["status"]) == (True, "refused")

    serving(home, workspace, work)


# ── a person is asked ──


@pytest.mark.parametrize("era", ERAS)
def test_a_person_in_front_of_the_client_approves_and_the_call_runs_once(home, workspace, era, cli):
    seen: list[Any] = []

    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, era, elicitation_callback=answering(seen=seen)) as client:
            done = await client.call_tool("palyra_process_run", {"command": "ls"})
            assert done.structured_content["status"] == "completed"
            assert '["ls"]' in seen[0].message
            approval_id = done.meta[META_ATTESTATION]["approval_id"]
            approval = installation.approvals.find(approval_id)
            assert (approval.decided_by, approval.scope, approval.uses) == (PERSON, "once", 1)
            await client.call_tool("palyra_process_run", {"command": "ls"})
            assert len(seen) == 2

    serving(home, workspace, work, config=OPEN)
    assert cli("journal", "verify").returncode == 0


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("action", ["decline", "accept"])
def test_a_person_denies_and_nothing_runs(home, workspace, era, action):
    async def work(server: Server[Any], installation: Installation) -> None:
        asked = answering(action=action, decision="deny")
        async with connected(server, era, elicitation_callback=asked) as client:
            no = await client.call_tool("palyra_process_run", {"command": "ls"})
            assert (no.is_error, no.structured_content["reason"]) == (True, "NOT_APPROVED")

    serving(home, workspace, work, config=OPEN)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("action", "decision"), [("cancel", None), ("accept", None), ("accept", "yes")])
def test_who_dismisses_the_question_or_answers_something_else_approves_nothing(home, workspace, era, action, decision):
    async def work(server: Server[Any], installation: Installation) -> None:
        asked = answering(action=action, decision=decision)
        async with connected(server, era, elicitation_callback=asked) as client:
            waits = await client.call_tool("palyra_process_run", {"command": "ls"})
            assert (waits.is_error, waits.structured_content["status"]) == (False, "pending_approval")

    serving(home, workspace, work, config=OPEN)


@pytest.mark.parametrize("era", ERAS)
def test_a_client_that_cannot_ask_gets_the_pending_outcome_and_repeats_the_call(home, workspace, era, cli):
    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, era) as client:
            waits = await client.call_tool("palyra_process_run", {"command": "ls"})
            assert waits.structured_content["status"] == "pending_approval"
            approval_id = waits.structured_content["approval"]["approval_id"]
            assert approval_id in waits.content[0].text
            done = await asyncio.to_thread(cli, "approvals", "approve", approval_id, "--as", "user:operator")
            assert done.returncode == 0, done.stderr
            again = await client.call_tool("palyra_process_run", {"command": "ls"})
            assert again.structured_content["status"] == "completed"

    serving(home, workspace, work, config=OPEN)


@pytest.mark.parametrize("era", ERAS)
def test_where_the_client_is_not_the_operators_own_process_its_answer_decides_nothing(home, workspace, era):
    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, era, elicitation_callback=answering()) as client:
            waits = await client.call_tool("palyra_process_run", {"command": "ls"})
            assert waits.structured_content["status"] == "pending_approval"

    serving(home, workspace, work, config=OPEN, person=None)


def test_one_line_in_the_bundle_keeps_questions_away_from_clients(home, workspace):
    (home / "policies").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "policies" / "no-elicit.cedar").write_text(
        '@id("no.elicit") forbid (principal, action == Action::"approval::elicit", resource);\n'
    )

    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, "2026-07-28", elicitation_callback=answering()) as client:
            waits = await client.call_tool("palyra_process_run", {"command": "ls"})
            assert waits.structured_content["status"] == "pending_approval"

    serving(home, workspace, work, config=OPEN)


def test_an_answer_to_another_call_and_a_forged_state_are_refused(home, workspace):
    async def call(client: Client, arguments: dict[str, Any], **more: Any) -> Any:
        return await client.session.call_tool("palyra_process_run", arguments, allow_input_required=True, **more)

    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, "2026-07-28", elicitation_callback=answering()) as client:
            asked = await call(client, {"command": "ls"})
            assert asked.result_type == "input_required"
            (key,) = asked.input_requests
            yes = {key: types.ElicitResult(action="accept", content={"decision": "approve"})}
            for state in ("made up", asked.request_state[:-3] + "AAA"):
                with pytest.raises(MCPError):
                    await call(client, {"command": "ls"}, input_responses=yes, request_state=state)
            with pytest.raises(MCPError):
                await call(client, {"command": "true"}, input_responses=yes, request_state=asked.request_state)
            (waits,) = installation.approvals.list(states=[ApprovalState.PENDING])
            ignored = await call(client, {"command": "ls"}, input_responses=yes)
            assert ignored.result_type == "input_required"
            assert installation.approvals.find(waits.approval_id).state == "pending"

    serving(home, workspace, work, config=OPEN)


# ── while it runs ──


@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_request_ends_the_program_and_closes_its_record(home, workspace, era, cli):
    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, era) as client:
            call = asyncio.create_task(client.call_tool("palyra_process_run", {"command": "sleep", "args": ["60"]}))
            while not installation.engine._live:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.3)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            for _ in range(200):
                if not installation.engine._live:
                    break
                await asyncio.sleep(0.05)
            assert not installation.engine._live

    serving(home, workspace, work)
    items = json.loads(cli("journal", "tail", "-n", "20", "--json").stdout)["items"]
    assert "CANCELLED" in [item["entry"]["predicate"].get("reason") for item in items]


# ── background processes as tasks ──


TASKS = "io.modelcontextprotocol/tasks"


def with_tasks() -> Any:
    return [advertise(TASKS)]


async def start(client: Client, command: str, *args: str) -> dict[str, Any]:
    arguments = {"command": command, "args": list(args), "background": True}
    return await ask(client, "tools/call", name="palyra_process_run", arguments=arguments)


async def until(client: Client, task_id: str, *statuses: str) -> dict[str, Any]:
    while True:
        task = await ask(client, "tasks/get", taskId=task_id)
        if task["status"] in statuses:
            return task
        await asyncio.sleep(0.1)


def test_a_background_process_is_a_task_that_completes_with_its_output(home, workspace):
    (workspace / "told.txt").write_text("all of it")

    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, "2026-07-28", extensions=with_tasks()) as client:
            task = await start(client, "cat", "told.txt")
            assert (task["resultType"], task["status"]) == ("task", "working")
            done = await until(client, task["taskId"], "completed")
            result = done["result"]
            assert result["structuredContent"]["output"]["process_id"] == task["taskId"]
            assert result["content"][1]["text"] == "all of it"
            assert result["_meta"]["palyra/process"]["exit_code"] == 0
            assert (await until(client, task["taskId"], "completed"))["result"] == result

    serving(home, workspace, work)


def test_a_task_is_cancelled_by_stopping_its_process(home, workspace):
    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, "2026-07-28", extensions=with_tasks()) as client:
            task = await start(client, "sleep", "60")
            await ask(client, "tasks/cancel", taskId=task["taskId"])
            over = await until(client, task["taskId"], "cancelled")
            assert "agent:mcp" in over["statusMessage"]
            assert "result" not in over

    serving(home, workspace, work)


def test_tasks_of_others_and_tasks_that_never_were_look_the_same(home, workspace):
    async def work(server: Server[Any], installation: Installation) -> None:
        run = begin_run(installation, principal="agent:other", workspace=str(workspace), channel="stdio")
        other = make_server(installation, OneCaller(Caller(run=run)))
        async with (
            connected(server, "2026-07-28", extensions=with_tasks()) as client,
            connected(other, "2026-07-28", extensions=with_tasks()) as thief,
        ):
            task = await start(client, "sleep", "60")
            errors = []
            for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                for task_id in (task["taskId"], "01JG0000000000000000000009", "../../etc", ""):
                    with pytest.raises(MCPError) as unknown:
                        await ask(thief, method, taskId=task_id, inputResponses={})
                    errors.append((unknown.value.error.code, unknown.value.error.message))
            assert set(errors) == {(types.INVALID_PARAMS, "Task not found")}
            assert (await ask(client, "tasks/get", taskId=task["taskId"]))["status"] == "working"

    serving(home, workspace, work)


def test_a_client_that_declares_no_tasks_gets_the_handle_and_no_task(home, workspace):
    async def work(server: Server[Any], installation: Installation) -> None:
        async with connected(server, "2026-07-28") as client:
            done = await client.call_tool("palyra_process_run", {"command": "sleep", "args": ["9"], "background": True})
            process_id = done.structured_content["output"]["process_id"]
            with pytest.raises(MCPError) as missing:
                await ask(client, "tasks/get", taskId=process_id)
            assert missing.value.error.code == -32021
            stopped = await client.call_tool("palyra_process_stop", {"process_id": process_id})
            assert stopped.structured_content["output"]["status"] == "stopped"

    serving(home, workspace, work)


# ── over stdio, as a client starts it ──

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "odd", "version": "1"},
    },
}


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_a_client_starts_palyra_mcp_calls_a_tool_and_sees_its_output_come(cli, era):
    (cli.workspace / "many.txt").write_text("line\n" * 2000)
    told: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, message))

    async def whole() -> None:
        words = [*cli.argv[1:], "mcp", "--workspace", str(cli.workspace), "--as", "agent:story"]
        parameters = StdioServerParameters(command=cli.argv[0], args=words, env=cli.environ)
        async with Client(stdio_client(parameters), mode=era) as client:
            arguments = {"command": "cat", "args": ["many.txt"]}
            done = await client.call_tool("palyra_process_run", arguments, progress_callback=progress)
            assert done.structured_content["output"]["stdout_bytes"] == 10000
            assert done.structured_content["output"]["projection"]["fields"]["stdout"]["artifact_id"]

    asyncio.run(whole())
    assert told[-1][0] == 10000
    assert "line" in (told[-1][1] or "")
    assert cli("journal", "verify").returncode == 0


def test_lines_that_are_no_messages_do_not_end_the_server(cli):
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "palyra_echo", "arguments": {"a": 1}}}
    lines = [
        b"not json",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'"' + b"x" * (5 << 20) + b'"',
        b'{"jsonrpc": "2.0", "id": {}, "method": 7}',
        json.dumps(HELLO).encode(),
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        json.dumps(call).encode(),
    ]
    with subprocess.Popen(
        [*cli.argv, "mcp"], cwd=cli.workspace, env=cli.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        server.stdin.write(b"\n".join(lines) + b"\n")
        server.stdin.flush()
        answer = next(answer for line in server.stdout if (answer := json.loads(line)).get("id") == 2)
        assert answer["result"]["structuredContent"]["output"] == {"a": 1}
        server.stdin.close()
        assert server.wait(30) == 0


@promise("mcp.ambiguous-messages")
def test_every_line_that_is_not_understood_is_answered_and_a_call_among_them_is_journaled(cli):
    """A client that waits for the answer to a lone surrogate waited for ever."""
    call = '{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "palyra_echo", "arguments": %s}%s}'
    lines = [
        call % ("11", '{"a": "\\ud800"}', ""),
        call % ("12", '{"a": 1, "a": 2}', ""),
        call % ("13", "{}", ', "result": {}'),
        call % ("14", '{"a": "\udcff"}', ""),
        '{"jsonrpc": "2.0", "id": 15}',
        "[" + call % ("16", "{}", "") + "]",
        '"' + "x" * (4 << 20) + '"',
        "[" * 100_000,
    ]
    data = "\n".join(lines).encode("utf-8", "surrogateescape") + b"\n"
    done = subprocess.run([*cli.argv, "mcp"], cwd=cli.workspace, env=cli.environ, input=data, stdout=subprocess.PIPE)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [11, 12, 13, 14, 15, None, None, None]
    assert all("error" in answer for answer in answers)
    calls = [answer["error"]["data"]["call_id"] for answer in answers[:4]]
    for call_id in calls:
        shown = cli("journal", "show", call_id)
        assert shown.returncode == 0
        assert b"MALFORMED" in shown.stdout


def test_a_client_that_goes_away_ends_its_calls_and_leaves_a_sound_journal(cli):
    with subprocess.Popen(
        [*cli.argv, "mcp"], cwd=cli.workspace, env=cli.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        call = {"name": "palyra_process_run", "arguments": {"command": "sleep", "args": ["60"]}}
        for message in (HELLO, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}):
            server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        server.stdout.readline()
        time.sleep(1)
        server.stdin.close()
        assert server.wait(30) == 0
    items = json.loads(cli("journal", "tail", "-n", "20", "--json").stdout)["items"]
    assert "CANCELLED" in [item["entry"]["predicate"].get("reason") for item in items]
    assert cli("journal", "verify").returncode == 0


def test_who_starts_it_at_a_terminal_is_told_what_it_waits_for(cli) -> None:
    ours, theirs = pty.openpty()
    try:
        for words, told in (((), b"waiting for an MCP client"), (("--quiet",), b"")):
            process = subprocess.Popen(
                [*cli.argv, "mcp", *words],
                cwd=cli.workspace,
                env=cli.environ,
                stdin=theirs,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            os.write(ours, b"\x04")  # Ctrl-D
            said, errors = process.communicate(timeout=60)
            assert (process.returncode, said, told in errors) == (0, b"", True)
            assert bool(errors) is bool(told)
    finally:
        os.close(ours)
        os.close(theirs)
