"""MCP over HTTP, behind the daemon's own door: tokens, sessions, runs, and what an agent's token can never do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import httpx2
import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from palyra.cli.serve_mcp import mounted
from palyra.config.load import Home
from palyra.daemon.server import Server
from palyra.daemon.state import State, make_state
from palyra.daemon.table import ROUTES
from palyra.model.approval import ApprovalState
from palyra.wiring.embedded import open_installation
from tests.promises import promise

ERAS = ["legacy", "2026-07-28"]
CONFIG = '[tool_call.process_runner]\negress_enforcement_mode = "none"\n[approvals]\nconsole_url = "http://127.0.0.1:1/console"\n'


@dataclass
class Daemon:
    state: State
    url: str
    workspace: Path

    async def token(self, principal: str = "agent:web", workspace: str | None = None) -> str:
        folder = str(self.workspace) if workspace is None else workspace
        made = await self.state.tokens.create(
            principal=principal, operator=False, workspace=folder, lifetime_ms=None, by="user:operator"
        )
        return str(made[1])

    @contextlib.asynccontextmanager
    async def client(self, token: str, era: str, **options: Any) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token}"} | options.pop("headers", {})
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=era, **options) as client,
        ):
            yield client


Work = Callable[[Daemon], Awaitable[None]]


def serving(home: Path, workspace: Path, work: Work, *, config: str = "") -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    if config:
        (home / "palyra.toml").write_text(config)

    async def whole() -> None:
        installation = await open_installation(Home(home))
        try:
            state = make_state(installation, replace(installation.config.daemon, port=0))
            async with mounted(state) as mounts:
                server, ready = Server(state, ROUTES, mounts), asyncio.Event()
                running = asyncio.create_task(server.serve(on_ready=ready.set))
                await asyncio.wait([asyncio.create_task(ready.wait()), running], return_when="FIRST_COMPLETED")
                try:
                    await work(Daemon(state, state.listening[0] + "/mcp", workspace))
                finally:
                    server.end()
                    await running
        finally:
            await installation.close()

    asyncio.run(whole())


@pytest.mark.parametrize("era", ERAS)
def test_an_agent_with_a_token_calls_tools_in_the_tokens_workspace(home, workspace, era):
    (workspace / "here.txt").write_text("here")

    async def work(daemon: Daemon) -> None:
        async with daemon.client(await daemon.token(), era) as client:
            assert "palyra_fs_read" in {tool.name for tool in (await client.list_tools()).tools}
            done = await client.call_tool("palyra_process_run", {"command": "cat", "args": ["here.txt"]})
            assert done.structured_content["output"]["stdout"] == "here"
            again = await client.call_tool("palyra_echo", {})
            assert again.structured_content["run_id"] == done.structured_content["run_id"]

    serving(home, workspace, work)


def test_without_a_credential_with_a_wrong_one_or_from_elsewhere_nothing_is_read(home, workspace):
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'

    async def work(daemon: Daemon) -> None:
        token = await daemon.token()
        good = {"Authorization": f"Bearer {token}"}
        cases = [
            ({}, 401),
            ({"Authorization": "Bearer palyra_nonsense"}, 401),
            ({"Authorization": f"Basic {token}"}, 401),
            ({"Cookie": "palyra_session=guess"}, 401),
            (good | {"Host": "evil.example"}, 403),
            (good | {"Origin": "https://evil.example"}, 403),
        ]
        async with httpx.AsyncClient() as http:
            for headers, status in cases:
                answer = await http.post(daemon.url, content=body, headers=headers)
                assert answer.status_code == status, headers
                told = answer.json()["error"]
                assert (told["code"], set(told["data"])) == (types.INVALID_REQUEST, {"reason", "hint"})

    serving(home, workspace, work)


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}
WANTS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def test_a_revoked_token_ends_its_session_and_anothers_session_is_not_found(home, workspace):
    async def work(daemon: Daemon) -> None:
        mine, theirs = await daemon.token(), await daemon.token("agent:other")
        async with httpx.AsyncClient(headers=WANTS) as http:
            opened = await http.post(daemon.url, json=HELLO, headers={"Authorization": f"Bearer {mine}"})
            session = opened.headers["mcp-session-id"]
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            for token, status in ((mine, 200), (theirs, 404)):
                headers = {"Authorization": f"Bearer {token}", "Mcp-Session-Id": session}
                answer = await http.post(daemon.url, json=ping, headers=headers)
                assert answer.status_code == status
            token_id = mine.split("_")[1]
            await daemon.state.tokens.revoke(token_id, by="user:operator")
            headers = {"Authorization": f"Bearer {mine}", "Mcp-Session-Id": session}
            assert (await http.post(daemon.url, json=ping, headers=headers)).status_code == 401

    serving(home, workspace, work)


def test_a_body_that_is_no_message_is_answered_with_its_id_and_a_call_in_it_is_journaled(home, workspace):
    """The last of two equal keys counted, and a request that was an answer too was read as one of both."""
    call = '{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": {"name": "palyra_echo", "arguments": %s}%s}'
    bodies = [
        (call % (11, '{"a": 1, "a": 2}', ""), 11, True),
        (call % (12, '{"a": "\\ud800"}', ""), 12, True),
        (call % (13, "{}", ', "result": {}'), 13, True),
        (call % (14, '{"a": "\udcff"}', ""), 14, True),
        ("[" + call % (15, "{}", "") + "]", None, False),
        ('{"jsonrpc": "2.0", "id": 16}', 16, False),
        ("[" * 100_000, None, False),
        ("no json", None, False),
    ]

    async def work(daemon: Daemon) -> None:
        headers = WANTS | {"Authorization": f"Bearer {await daemon.token()}"}
        async with httpx.AsyncClient(headers=headers, timeout=30) as http:
            for body, request_id, is_call in bodies:
                answer = await http.post(daemon.url, content=body.encode("utf-8", "surrogateescape"))
                assert answer.status_code == 400, body[:60]
                told = answer.json()
                assert told["id"] == request_id, body[:60]
                assert told["error"]["data"]["reason"] in ("MALFORMED", "TOO_LARGE"), body[:60]
                assert ("receipt" in told["error"]["data"]) is is_call, body[:60]

    serving(home, workspace, work)


@promise("daemon.revoked-streams")
def test_a_stream_of_mcp_ends_when_its_token_is_revoked(home, workspace):
    async def work(daemon: Daemon) -> None:
        token = await daemon.token()
        async with httpx.AsyncClient(headers=WANTS | {"Authorization": f"Bearer {token}"}, timeout=30) as http:
            opened = await http.post(daemon.url, json=HELLO)
            session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
            await http.post(daemon.url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
            async with http.stream("GET", daemon.url, headers=session) as stream:
                assert stream.status_code == 200
                await daemon.state.tokens.revoke(token.split("_")[1], by="user:operator")
                text = "".join([part async for part in stream.aiter_text()])
        assert 'event: closed\ndata: {"reason":"token_revoked"' in text

    serving(home, workspace, work)


@pytest.mark.parametrize("era", ERAS)
def test_an_agents_token_never_answers_for_a_person(home, workspace, era):
    """It is shown where to decide; saying that it went there decides nothing."""
    seen: list[Any] = []

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        seen.append(params)
        return types.ElicitResult(action="accept", content={"decision": "approve"})

    async def work(daemon: Daemon) -> None:
        async with daemon.client(await daemon.token(), era, elicitation_callback=answer) as client:
            call = asyncio.create_task(client.call_tool("palyra_process_run", {"command": "ls"}))
            while not (waiting := daemon.state.installation.approvals.list(states=[ApprovalState.PENDING])):
                await asyncio.sleep(0.05)
            if seen:
                assert (seen[0].mode, seen[0].url) == (
                    "url",
                    f"http://127.0.0.1:1/console/approvals/{waiting[0].approval_id}",
                )
            await asyncio.sleep(0.5)
            assert daemon.state.installation.approvals.find(waiting[0].approval_id).state == "pending"
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call

    serving(home, workspace, work, config=CONFIG)


def test_a_token_bound_to_a_folder_cannot_name_another(home, workspace, tmp_path):
    async def work(daemon: Daemon) -> None:
        (workspace / "below").mkdir()
        token = await daemon.token()
        async with daemon.client(token, "2026-07-28", headers={"Palyra-Workspace": "/etc"}) as client:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("palyra_echo", {})
            assert refused.value.error.data["reason"] == "CAPABILITY_DENIED"
        below = {"Palyra-Workspace": str(workspace / "below")}
        async with daemon.client(token, "2026-07-28", headers=below) as client:
            done = await client.call_tool("palyra_process_run", {"command": "pwd"})
            assert done.structured_content["status"] in ("completed", "refused")

    serving(home, workspace, work)


@pytest.mark.parametrize("named", [".", "src", "~"])
def test_a_workspace_that_is_no_absolute_path_is_not_looked_for_below_the_daemons_own_folder(home, workspace, named):
    async def work(daemon: Daemon) -> None:
        async with daemon.client(await daemon.token(), "2026-07-28", headers={"Palyra-Workspace": named}) as client:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("palyra_process_run", {"command": "ls"})
            hint = "Give a path that starts with /."
            assert refused.value.error.data == {"reason": "BAD_ARGUMENTS", "hint": hint}

    serving(home, workspace, work)


def test_runs_are_the_credentials_and_a_client_may_name_its_own(home, workspace):
    async def work(daemon: Daemon) -> None:
        one, two = await daemon.token(), await daemon.token("agent:two")
        runs = []
        for token, meta in ((one, None), (one, None), (one, {"palyra/session": "b"}), (two, None)):
            async with daemon.client(token, "2026-07-28") as client:
                done = await client.call_tool("palyra_echo", {}, meta=meta)
                runs.append(done.structured_content["run_id"])
        assert runs[0] == runs[1]
        assert len(set(runs)) == 3

    serving(home, workspace, work)


def test_mcp_is_no_way_around_the_daemons_limit_of_calls(home, workspace):
    async def work(daemon: Daemon) -> None:
        async with daemon.client(await daemon.token(), "2026-07-28") as client:
            assert (await client.call_tool("palyra_echo", {})).structured_content["status"] == "completed"
            daemon.state.calls._most = 0
            done = await client.call_tool("palyra_echo", {}, meta={"palyra/session": "another"})
            assert done.structured_content["reason"] == "BUSY"

    serving(home, workspace, work)


IMPATIENT = "[daemon]\nbody_timeout_ms = 300\nmax_body_bytes = 65536\n"


class Dribbling(httpx2.AsyncHTTPTransport):
    """Sends each body in two pieces, with `between` awaited after the first."""

    def __init__(self, between: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._between = between

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        whole = await request.aread()

        async def pieces() -> AsyncIterator[bytes]:
            yield whole[:5]
            await self._between()
            yield whole[5:]

        slow = httpx2.Request(request.method, request.url, headers=request.headers, content=pieces())
        return await super().handle_async_request(slow)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("fate", "sentence", "reason"),
    [
        ("slow", "The body took too long to arrive.", "SLOW"),
        ("revoked", "The token is wrong, has expired, or was revoked.", "UNAUTHENTICATED"),
        ("large", "The body has more than 65536 bytes.", "TOO_LARGE"),
    ],
)
def test_a_client_whose_body_is_not_taken_is_told_why(home, workspace, capfd, era, fate, sentence, reason):
    async def work(daemon: Daemon) -> None:
        token, is_open = await daemon.token(), False

        async def between() -> None:
            if is_open and fate == "revoked":
                await daemon.state.tokens.revoke(token.split("_")[1], by="user:operator")
                await asyncio.sleep(0.1)
            elif is_open:
                await asyncio.sleep(2 if fate == "slow" else 0)

        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, transport=Dribbling(between)) as http,
            Client(streamable_http_client(daemon.url, http_client=http), mode=era) as client,
        ):
            await client.list_tools()
            is_open = True
            with pytest.raises(MCPError) as told:
                await client.call_tool("palyra_echo", {"text": "x" * (70_000 if fate == "large" else 1)})
            is_open = False
        assert (told.value.error.message, told.value.error.data["reason"]) == (sentence, reason)
        assert told.value.error.data["hint"]

    serving(home, workspace, work, config=IMPATIENT)
    assert "Traceback" not in capfd.readouterr().err


def test_an_agent_with_many_sessions_pushes_out_its_own_runs_and_nobody_elses(home, workspace, monkeypatch):
    monkeypatch.setattr("palyra.mcp.http.MAX_RUNS_EACH", 3)

    async def work(daemon: Daemon) -> None:
        greedy, quiet = await daemon.token("agent:greedy"), await daemon.token("agent:quiet")

        async def run_of(token: str, session: str) -> str:
            async with daemon.client(token, "2026-07-28") as client:
                done = await client.call_tool("palyra_echo", {}, meta={"palyra/session": session})
                return str(done.structured_content["run_id"])

        first, other = await run_of(greedy, "0"), await run_of(quiet, "0")
        for number in range(1, 5):
            await run_of(greedy, str(number))
        assert await run_of(quiet, "0") == other
        last = await run_of(greedy, "4")
        assert await run_of(greedy, "4") == last
        assert await run_of(greedy, "0") != first

    serving(home, workspace, work)


PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}


def test_a_principal_with_many_handshake_sessions_loses_its_own_and_nobody_elses(home, workspace, monkeypatch):
    """The SDK's bound is one for all: who opens ten thousand would lock everybody out for half an hour."""
    monkeypatch.setattr("palyra.mcp.http.MAX_SESSIONS_EACH", 3)

    async def work(daemon: Daemon) -> None:
        tokens = {"greedy": await daemon.token("agent:greedy"), "again": await daemon.token("agent:greedy")}
        tokens["quiet"] = await daemon.token("agent:quiet")
        async with httpx.AsyncClient(headers=WANTS, timeout=30) as http:

            async def ask(who: str, body: dict, session: str = "") -> httpx.Response:
                headers = {"Authorization": f"Bearer {tokens[who]}"} | ({"Mcp-Session-Id": session} if session else {})
                return await http.post(daemon.url, json=body, headers=headers)

            other = (await ask("quiet", HELLO)).headers["mcp-session-id"]
            mine = [(who, (await ask(who, HELLO)).headers["mcp-session-id"]) for who in ("greedy", "again") * 3]
            held = [(await ask(who, PING, session)).status_code for who, session in mine]
            assert held == [404, 404, 404, 200, 200, 200]
            assert (await ask("quiet", PING, other)).status_code == 200
            assert (await ask("greedy", {"jsonrpc": "2.0", "id": 1, "method": "nonsense"})).status_code == 400
            assert (await ask("again", PING, mine[-1][1])).status_code == 200

    serving(home, workspace, work)


def test_a_long_call_is_not_ended_for_idleness_by_the_next_request(home, workspace, monkeypatch):
    monkeypatch.setattr("palyra.mcp.http.IDLE_MS", 1)

    async def work(daemon: Daemon) -> None:
        async with daemon.client(await daemon.token(), "2026-07-28") as client:
            long = asyncio.create_task(client.call_tool("palyra_process_run", {"command": "sleep", "args": ["1"]}))
            await asyncio.sleep(0.3)
            other = {"palyra/session": "another"}
            assert (await client.call_tool("palyra_echo", {}, meta=other)).structured_content["success"]
            assert (await long).structured_content["status"] == "completed"

    serving(home, workspace, work)


def test_calls_past_the_limit_are_refused_as_busy_and_leave_no_entry(home, workspace):
    async def work(daemon: Daemon) -> None:
        async with daemon.client(await daemon.token(), "2026-07-28") as client:
            calls = [client.call_tool("palyra_process_run", {"command": "sleep", "args": ["1"]}) for _ in range(4)]
            done = await asyncio.gather(*calls)
            reasons = [one.structured_content["reason"] for one in done]
            assert reasons.count("BUSY") >= 1
            assert reasons.count(None) >= 1
            has_receipt = [bool(one.meta.get("palyra/receipt")) for one in done]
            assert has_receipt == [reason != "BUSY" for reason in reasons]

    serving(home, workspace, work, config="[daemon]\nmax_calls = 2\n")


def test_a_call_that_waits_says_where_the_daemons_console_decides(home, workspace):
    async def work(daemon: Daemon) -> None:
        async with daemon.client(await daemon.token(), "2026-07-28") as client:
            waits = await client.call_tool("palyra_process_run", {"command": "ls"})
            approval = waits.structured_content["approval"]
            base = daemon.url.removesuffix("/mcp")
            assert approval["url"] == f"{base}/console/approvals/{approval['approval_id']}"

    serving(home, workspace, work, config=CONFIG.partition("[approvals]")[0])
