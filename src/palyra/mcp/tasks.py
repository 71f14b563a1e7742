"""Background processes as tasks (SEP-2663): a call that starts one is answered with its handle, and polled by it.

Rules: a task *is* a background process: its id is the process's, it belongs to one run of one principal, and nobody
else is told that it exists. Looking at one's own process is free; what it wrote and ending it are calls of
`palyra.process.output` and `palyra.process.stop`, decided, budgeted and journaled like any other. Only a client that
declares the extension in the very request gets a task; others get the outcome of the start and the tools.

Not here: keeping processes (launch/background).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import HEADER_MISMATCH, MISSING_REQUIRED_CLIENT_CAPABILITY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from palyra.canon import Json
from palyra.engine.trip import CallRequest
from palyra.errors import Rejected
from palyra.mcp.callers import Caller, Callers, Context
from palyra.mcp.calls import Calls
from palyra.mcp.messages import META_PROCESS, call_result
from palyra.model.call import is_ulid
from palyra.model.outcome import Outcome, Status
from palyra.model.process import BackgroundProcess, ProcessStatus
from palyra.wiring.embedded import Installation

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MS = 1000
MAX_KEPT = 256
RUN = "palyra.process.run"


class TaskParams(types.RequestParams):
    task_id: str


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] | None = None


def declares(ctx: Context) -> bool:
    capabilities = ctx.session.client_capabilities
    return EXTENSION in ((capabilities.extensions if capabilities is not None else None) or {})


class Tasks:
    def __init__(self, installation: Installation, callers: Callers, calls: Calls) -> None:
        self._installation = installation
        self._callers = callers
        self._calls = calls
        self._starts: OrderedDict[str, Outcome] = OrderedDict()
        """Outcomes of the starts, by task id: what the call that asked is owed."""
        self._results: OrderedDict[str, dict[str, Any]] = OrderedDict()

    # ── creation ──

    def create(self, ctx: Context, outcome: Outcome | types.InputRequiredResult) -> dict[str, Any] | None:
        """The answer to a call that started a background process; None where it is an ordinary outcome."""
        if not isinstance(outcome, Outcome):
            return None
        process_id = outcome.output.get("process_id")
        started = outcome.tool == RUN and outcome.status is Status.COMPLETED and "expires_at_unix_ms" in outcome.output
        if not started or not isinstance(process_id, str) or not declares(ctx):
            return None
        _keep(self._starts, process_id, outcome)
        now = self._installation.ports.clock.now_unix_ms()
        expires = outcome.output["expires_at_unix_ms"]
        return {
            "resultType": "task",
            **_task(process_id, "working", started_ms=now, changed_ms=now, expires_ms=int(expires)),
            "_meta": {META_PROCESS: dict(outcome.output)},
        }

    # ── methods ──

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        caller, process = await self._own(ctx, params.task_id)
        ended = process.ended_unix_ms or process.started_unix_ms
        value = _task(
            process.process_id,
            _STATUS[process.status],
            started_ms=process.started_unix_ms,
            changed_ms=ended,
            expires_ms=process.expires_unix_ms,
        )
        value["statusMessage"] = _sentence(process)
        if value["status"] == "completed":
            value["result"] = await self._result(caller, process)
        return value

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        caller, process = await self._own(ctx, params.task_id)
        if process.is_running:
            await self._call(caller, "palyra.process.stop", {"process_id": process.process_id})
        return {}

    async def update(self, ctx: Context, params: UpdateParams) -> dict[str, Any]:
        """A background process asks nobody anything; responses to what was never asked are ignored."""
        await self._own(ctx, params.task_id)
        return {}

    async def _own(self, ctx: Context, task_id: str) -> tuple[Caller, BackgroundProcess]:
        if not declares(ctx):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            code = MISSING_REQUIRED_CLIENT_CAPABILITY
            raise MCPError(code=code, message="Tasks need the client to declare the extension.", data=needed)
        _check_routing(ctx, task_id)
        caller = self._callers.of(ctx)
        try:
            if not is_ulid(task_id):
                raise MCPError(code=types.INVALID_PARAMS, message="Task not found")
            return caller, await self._installation.ports.background.status(caller.run.owner, task_id)
        except Rejected as refusal:
            data = {"reason": refusal.reason.value, "hint": refusal.hint}
            raise MCPError(code=types.INVALID_PARAMS, message="Task not found", data=data) from None

    async def _call(self, caller: Caller, tool: str, given: Mapping[str, Json]) -> Outcome:
        call_id = self._installation.ports.ids.ulid()
        return await self._calls.run_to_end(
            CallRequest(tool=tool, input=given, run=caller.run, call_id=call_id, project=True, lapse=caller.lapse)
        )

    async def _result(self, caller: Caller, process: BackgroundProcess) -> dict[str, Any]:
        """Read once: a client that goes on polling must not spend the run's budget on the same bytes."""
        known = self._results.get(process.process_id)
        if known is not None:
            return known
        output = await self._call(caller, "palyra.process.output", {"process_id": process.process_id})
        result = _final(process, self._starts.get(process.process_id), output)
        _keep(self._results, process.process_id, result)
        return result


def _check_routing(ctx: Context, task_id: str) -> None:
    """Over HTTP the task's id stands in a header too, for whoever routes by it: the two must agree (SEP-2243)."""
    headers = getattr(ctx.request, "headers", None)
    if headers is not None and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and headers.get("mcp-name") != task_id:
        raise MCPError(code=HEADER_MISMATCH, message="The header Mcp-Name must be the task's id.")


def _final(process: BackgroundProcess, start: Outcome | None, output: Outcome) -> dict[str, Any]:
    """The start's outcome as it was attested, and beside it how the process ended and what it wrote first."""
    result = call_result(start if start is not None else output)
    text = output.output.get("text") if output.success else f"{output.reason}: {output.message}"
    shown = [types.TextContent(text=_sentence(process)), types.TextContent(text=str(text or ""))]
    failed = process.exit_code != 0 or process.status is ProcessStatus.LOST
    meta = dict(result.meta or {}) | {META_PROCESS: process.as_json()}
    final = result.model_copy(update={"content": shown, "is_error": failed, "meta": meta})
    return final.model_dump(by_alias=True, mode="json", exclude_none=True)


_STATUS = {
    ProcessStatus.RUNNING: "working",
    ProcessStatus.EXITED: "completed",
    ProcessStatus.LOST: "completed",
    ProcessStatus.EXPIRED: "completed",
    ProcessStatus.STOPPED: "cancelled",
}


def _sentence(process: BackgroundProcess) -> str:
    match process.status:
        case ProcessStatus.RUNNING:
            return f"{process.command} is running."
        case ProcessStatus.STOPPED:
            return f"{process.command} was stopped by {process.stopped_by}."
        case ProcessStatus.EXPIRED:
            return f"{process.command} was ended at the end of its lifetime."
        case ProcessStatus.LOST:
            return f"{process.command} has ended; how is not known."
        case ProcessStatus.EXITED:
            how = f"signal {process.signal}" if process.signal else f"exit code {process.exit_code}"
            return f"{process.command} ended with {how}." + (f" ({process.reason})" if process.reason else "")


def _task(task_id: str, status: str, *, started_ms: int, changed_ms: int, expires_ms: int) -> dict[str, Any]:
    return {
        "taskId": task_id,
        "status": status,
        "createdAt": _iso(started_ms),
        "lastUpdatedAt": _iso(changed_ms),
        "ttlMs": max(0, expires_ms - started_ms),
        "pollIntervalMs": POLL_MS,
    }


def _iso(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _keep(kept: OrderedDict[str, Any], key: str, value: Any) -> None:
    kept[key] = value
    while len(kept) > MAX_KEPT:
        kept.popitem(last=False)
