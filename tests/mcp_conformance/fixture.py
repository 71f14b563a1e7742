"""The server that the MCP conformance suite is run against: the daemon's own application, with the suite's names.

The suite calls tools by names of its own (`test_simple_text`). Each stands here for a real call of Palyra's, made by
the real engine in a real sandbox; only names, the key of a question and its answer are translated. Two things differ
from `palyra serve`: the suite sends no token, so one identity is assumed, and a person sits in front of the client, as
over stdio.

    python -m tests.mcp_conformance.fixture     prints its URL and serves until its stdin is closed
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from starlette.requests import Request
from starlette.responses import Response

from palyra.config.daemon import DaemonConfig
from palyra.config.load import Home
from palyra.daemon.routes import Refused
from palyra.daemon.server import Server
from palyra.daemon.state import State, make_state
from palyra.daemon.table import ROUTES
from palyra.mcp.callers import Caller, Callers, Context
from palyra.mcp.http import HttpApp, HttpCallers, Identity
from palyra.mcp.server import make_server
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import Registry, make_registry
from palyra.wiring.embedded import Installation, open_installation
from tests.making_skills import open_house, package

CONFIG = """
posture = "developer"
[tool_call]
allowed_tools = ["palyra.*", "json_schema_2020_12_tool"]
max_calls_per_run = 100000
max_attempts_per_run = 100000
[tool_call.process_runner]
allow_interpreters = true
max_background_per_run = 64
[approvals]
max_pending = 1000
"""
POLICY = """
@id("suite.ask")
@reason("What the suite wants to be asked about.")
forbid (principal, action == Action::"tool::execute", resource)
when { resource == Tool::"palyra.fs.list" || context.program == "sleep" }
unless { context.approved };
"""
SLOW = "for word in one two three four; do echo $word; sleep 0.2; done"
RUN = "palyra_process_run"
SCHEMA_TOOL = "json_schema_2020_12_tool"


def _echo(text: str) -> tuple[str, dict[str, Any]]:
    return RUN, {"command": "echo", "args": [text]}


def _background(script: str) -> tuple[str, dict[str, Any]]:
    return RUN, {"command": "sh", "args": ["-c", script], "background": True}


ASKING: tuple[str, dict[str, Any]] = ("palyra_fs_list", {"path": "."})
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "test_simple_text": _echo("This is a simple text response for testing."),
    "test_error_handling": (RUN, {"command": "cat", "args": ["/etc/shadow"]}),
    "test_tool_with_progress": (RUN, {"command": "sh", "args": ["-c", SLOW]}),
    "test_input_required_result_elicitation": ASKING,
    "test_input_required_result_request_state": ASKING,
    "test_input_required_result_tampered_state": ASKING,
    "greet": _echo("Hello"),
    "slow_compute": _background("sleep 2; echo done"),
    "failing_job": _background("echo broken >&2; exit 3"),
    "test_tool_with_task": (RUN, {"command": "sleep", "args": ["2"], "background": True}),
    "test_streaming_elicitation": ASKING,
    "test_logging_tool": _echo("Nothing is logged to clients."),
    "confirm_delete": ASKING,
}
"""The suite's name → which tool of ours, with which input."""


def say(url: str) -> None:
    sys.stdout.write(url + "\n")
    sys.stdout.flush()


class Names:
    """Translates the suite's names, and its answers to our one question."""

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        name = (ctx.params or {}).get("name")
        if ctx.method != "tools/call" or not isinstance(name, str):
            return await call_next(ctx)
        if name == "test_missing_capability":
            _require_sampling(ctx)
            name = "test_simple_text"
        if name not in CALLS:
            return await call_next(ctx)
        tool, given = CALLS[name]
        changed = {**(ctx.params or {}), "name": tool, "arguments": dict(given)}
        responses = changed.get("inputResponses")
        if isinstance(responses, Mapping):
            changed["inputResponses"] = {_OURS.get(key, key): _answer(value) for key, value in responses.items()}
        return _renamed(await call_next(replace(ctx, params=changed)))


_OURS = {"user_name": "approval"}


def _answer(value: Any) -> Any:
    """A person who says their name to the suite's form says yes to ours."""
    if isinstance(value, Mapping) and isinstance(value.get("content"), Mapping):
        return {**value, "content": {"decision": "approve"}}
    return value


def _renamed(result: HandlerResult) -> HandlerResult:
    if isinstance(result, dict) and "approval" in (result.get("inputRequests") or {}):
        return {**result, "inputRequests": {"user_name": result["inputRequests"]["approval"]}}
    return result


def _require_sampling(ctx: Context) -> None:
    """The suite wants a tool that needs a capability; none of ours does."""
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        data: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(code=MISSING_REQUIRED_CLIENT_CAPABILITY, message="Sampling is needed.", data=data)


class Attended:
    """A person sits in front of the client."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def of(self, ctx: Context) -> Caller:
        return replace(self._callers.of(ctx), person="user:somebody")


def identify(request: Request, state: State, workspace: str) -> Identity | Response:
    try:
        state.guard.check_place(request.headers, peer_uid=None)
    except Refused as refusal:
        return refusal.response()
    return Identity(principal="agent:suite", credential_id="suite", workspace=workspace)


def prepare(folder: Path) -> tuple[Path, Path]:
    home, workspace = folder / "home", folder / "workspace"
    (home / "policies").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    workspace.mkdir()
    folder.chmod(0o755)
    (home / "palyra.toml").write_text(CONFIG)
    (home / "policies" / "suite.cedar").write_text(POLICY)
    house = open_house(home).trust_acme()  # an active skill, signed and enabled as any other
    house.install(package())
    house.enable()
    house.writer.close()
    return home, workspace


SCHEMA = json.loads((Path(__file__).parent / "schema_2020_12.json").read_text())


def with_suites_schema(installation: Installation) -> Registry:
    """A tool that is only looked at: its schema has the keywords of 2020-12."""
    tool = replace(installation.engine.registry.get("palyra.echo").spec, name=SCHEMA_TOOL, input_schema=SCHEMA)
    source: Any = installation.ports.skills
    return make_registry((*BUILTIN_TOOLS, tool)).with_source(source)


async def serve(home: Path, workspace: Path) -> None:
    installation = await open_installation(Home(home))
    installation.engine.registry = with_suites_schema(installation)
    try:
        server = make_server(installation, Attended(HttpCallers(installation)))
        server.middleware.insert(0, Names())
        state = make_state(installation, DaemonConfig(port=0))
        app = HttpApp(server, lambda request: identify(request, state, str(workspace)))
        async with app.running():
            daemon = Server(state, ROUTES, {"/mcp": app})
            loop = asyncio.get_running_loop()
            loop.add_reader(0, lambda: daemon.end() if not sys.stdin.buffer.read1(4096) else None)
            await daemon.serve(on_ready=lambda: say(state.listening[0] + "/mcp"))
    finally:
        await installation.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="palyra-suite-") as name:
        asyncio.run(serve(*prepare(Path(name).resolve())))
