"""The MCP server: `make_server` joins handlers to the SDK, `serve_stdio` and `http_app` (mcp/http) are its transports.

Speaks 2025-11-25 (and the handshakes before it) and 2026-07-28: the client's first request decides. Rules: the tool
list is filtered by policy for whoever asks; `requestState` leaves sealed and bound to request and caller; what does
not even parse as a call is refused by the engine, so that it is journaled.

Not claimed, on purpose: prompts, completion, sampling, roots, logging (see docs/guide/mcp.md).
"""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from palyra.engine.runs import Run
from palyra.errors import PalyraError, Reason, Rejected
from palyra.mcp.callers import Caller, Callers, Context, OneCaller, begin_run
from palyra.mcp.calls import Begin, Calls, refuse_call
from palyra.mcp.messages import error_data, list_tools
from palyra.mcp.skills import Skills
from palyra.mcp.stdio import Lines
from palyra.mcp.strict_messages import NotUnderstood
from palyra.mcp.tasks import EXTENSION, TaskParams, Tasks, UpdateParams
from palyra.policy.scan import PolicyError
from palyra.state.person import owner_principal
from palyra.version import __version__
from palyra.wiring.embedded import Installation

NAME = "palyra"
INSTRUCTIONS = (
    "Every tool here runs in a sandbox and is decided by policy. A refused call says why (`reason`, `message`) and "
    "what you can do instead (`hint`); repeating it changes nothing. What only an operator can do stands apart "
    "(`operator_hint`): tell your user. "
    "Each call is a new sandbox: /tmp, the home folder, the environment, the working folder and processes are new each "
    "time; only the workspace stays. Long texts go through stdin or palyra_fs_write, not through arguments. "
    "`pending_approval` means that a person is asked: repeat the same call later. "
    "Large output is shortened; palyra_artifact_read reads the rest."
)


def make_server(installation: Installation, callers: Callers, *, begin: Begin | None = None) -> Server[Any]:
    calls = Calls(installation, callers, begin)
    tasks = Tasks(installation, callers, calls)

    async def on_list_tools(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        try:
            return types.ListToolsResult(tools=list_tools(calls.specs(callers.of(ctx))))
        except PolicyError as error:
            data = {"reason": Reason.POLICY_ERROR.value, "hint": error.hint}
            raise MCPError(code=types.INTERNAL_ERROR, message=error.detail, data=data) from error

    async def on_call_tool(ctx: Context, params: types.CallToolRequestParams) -> Any:
        answer = await calls.outcome(ctx, params)
        return tasks.create(ctx, answer) or await calls.answer(answer)

    server: Server[Any] = Server(
        NAME,
        version=__version__,
        title="Palyra",
        instructions=INSTRUCTIONS,
        # What a principal may use changes with the policies, and is nobody else's.
        cache_hints={"tools/list": CacheHint(ttl_ms=0, scope="private")},
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )
    server.extensions[EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, tasks.get)
    server.add_request_handler("tasks/cancel", TaskParams, tasks.cancel)
    server.add_request_handler("tasks/update", UpdateParams, tasks.update)
    Skills(installation, callers).attach(server)
    security = RequestStateSecurity(
        keys=[installation.ports.ids.random_bytes(32)], bind_principal=lambda ctx: callers.of(ctx).principal
    )
    server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
    server.middleware.append(_Strict(calls))
    return server


class _Strict:
    """A `tools/call` that is not one: refused by the engine, and answered with what it said."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call" or ctx.request_id is None:
            return await call_next(ctx)
        try:
            return await call_next(ctx)
        except ValidationError as error:
            where = ".".join(str(part) for part in error.errors()[0]["loc"][:4]) if error.errors() else ""
            refusal = Rejected(
                Reason.MALFORMED,
                f"This is not a tool call: {where[:80] or 'its parameters'} cannot be read.",
                "Send name as a string and arguments as an object.",
            )
            outcome = await self._calls.refuse(ctx, (ctx.params or {}).get("name"), refusal)
            data = error_data(outcome)
            raise MCPError(code=types.INVALID_PARAMS, message=refusal.detail, data=data) from None
        except PalyraError as error:  # an approval that is not what was asked: the engine's own refusals are outcomes
            raise MCPError(code=types.INTERNAL_ERROR, message=str(error)) from error


async def journal_refused(installation: Installation, run: Run, refused: NotUnderstood) -> types.JSONRPCError:
    """The answer to what is no message; where it is a call all the same, with its journal entry."""
    if not refused.is_call:
        return refused.answer()
    return refused.answer(error_data(await refuse_call(installation, run, refused.tool, refused.refusal)))


async def serve_stdio(installation: Installation, *, principal: str, workspace: str) -> None:
    """Until the client closes our stdin. The client is the operator's own process: who sits in front of it decides."""
    run = begin_run(installation, principal=principal, workspace=workspace, channel="stdio")
    server = make_server(installation, OneCaller(Caller(run=run, person=owner_principal())))
    lines = Lines()
    stdin: Any = lines
    async with stdio_server(stdin=stdin) as (read_stream, write_stream):

        async def answer(refused: NotUnderstood) -> None:
            await write_stream.send(SessionMessage(await journal_refused(installation, run, refused)))

        lines.answer.set_result(answer)
        await server.run(read_stream, write_stream, server.create_initialization_options())
