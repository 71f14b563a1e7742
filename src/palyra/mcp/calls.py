"""One `tools/call`: into the engine, its output as progress, its questions to a person, its outcome back.

Rules: this door decides nothing. What policy asks about goes to a person where (1) the transport proves that the client
is the operator's own process, (2) the client says it can ask, (3) the bundle permits `approval::elicit`; the answer
becomes a decision in the approvals store, sealed and journaled, and the call is made again under its own id. Otherwise
the client is shown where to decide (a console URL), or gets the pending outcome. A cancelled request ends its call, and
the record is closed before anything else happens.

Not here: names and shapes (messages), tasks (tasks).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import anyio
import mcp_types as types
import orjson
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from palyra.approvals.rules import Verdict
from palyra.canon import Json
from palyra.engine.approval import may_elicit
from palyra.engine.listing import tools_for
from palyra.engine.runs import Run
from palyra.engine.trip import CallRequest
from palyra.errors import PalyraError, Reason, Rejected
from palyra.mcp.callers import Caller, Callers, Context
from palyra.mcp.messages import (
    call_result,
    console_question,
    dotted_name,
    error_data,
    fits_question,
    listed_names,
    question,
    said,
)
from palyra.mcp.progress import Progress
from palyra.model.approval import ApprovalState
from palyra.model.call import is_ulid
from palyra.model.outcome import Outcome, Status
from palyra.model.tool import ToolSpec
from palyra.values import dataclass
from palyra.wiring.daemon_note import find_socket, read_note
from palyra.wiring.embedded import Installation
from palyra.wiring.explaining import explain_stored

log = logging.getLogger("palyra.mcp")

LOOK_EVERY_S = 0.25
WAIT_FOR_CONSOLE_S = 20.0
"""After somebody opened the console: shorter than the time-outs that clients have."""
ANSWERED = "answered in the MCP client"
QUESTION = "approval"
"""The key of the one question a call may put."""

Answer = types.CallToolResult | types.InputRequiredResult
Begin = Callable[[CallRequest], asyncio.Future[Outcome]]
"""How a call is begun where others are under way too: a daemon has only so much room for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What the server told itself in `requestState`; it comes back sealed, or not at all."""

    call_id: str
    approval_id: str
    form: bool

    def text(self) -> str:
        return orjson.dumps([self.call_id, self.approval_id, self.form]).decode()


def parse_round(state: str | None) -> Round | None:
    if state is None:
        return None
    try:
        call_id, approval_id, form = orjson.loads(state)
    except (ValueError, TypeError):
        return None
    fits = isinstance(call_id, str) and isinstance(approval_id, str) and is_ulid(call_id) and is_ulid(approval_id)
    return Round(call_id=call_id, approval_id=approval_id, form=form is True) if fits else None


class Calls:
    def __init__(self, installation: Installation, callers: Callers, begin: Begin | None = None) -> None:
        self._installation = installation
        self._callers = callers
        self._begin = begin or (lambda request: asyncio.ensure_future(installation.engine.call(request)))

    # ── listing ──

    def specs(self, caller: Caller) -> tuple[ToolSpec, ...]:
        installation = self._installation
        bundle = installation.policies.current()
        principal = caller.run.context.principal
        return tools_for(principal, installation.engine.registry, installation.config, bundle)

    def dotted(self, listed: str) -> str:
        return dotted_name(listed, listed_names(self._installation.engine.registry.specs()))

    # ── calling ──

    async def answer(self, answer: Outcome | types.InputRequiredResult) -> Answer:
        if isinstance(answer, types.InputRequiredResult):
            return answer
        return call_result(answer, await self._explanation(answer))

    async def _explanation(self, outcome: Outcome) -> Mapping[str, Json] | None:
        """Of what policy denied: which policies, what failed, and the smallest change that would allow it."""
        decision = outcome.attestation.get("decision")
        if outcome.status is not Status.REFUSED or not isinstance(decision, Mapping) or decision["effect"] != "deny":
            return None
        stored = await self._installation.ports.journal.find_call(outcome.call_id)
        if stored is None:
            return None
        told = await asyncio.to_thread(explain_stored, self._installation, stored)
        return None if told.explained is None else told.as_json()

    async def outcome(self, ctx: Context, params: types.CallToolRequestParams) -> Outcome | types.InputRequiredResult:
        caller = self._callers.of(ctx)
        before = parse_round(params.request_state)
        request = self._request(caller, params, before)
        if before is not None:
            request = await self._take_answer(ctx, caller, request, before, params.input_responses)
        outcome = await self._made(ctx, request)
        if outcome.reason is Reason.UNKNOWN_TOOL:
            raise MCPError(code=types.INVALID_PARAMS, message=outcome.message or "", data=error_data(outcome))
        if outcome.status is Status.PENDING_APPROVAL:
            outcome = self._with_console(outcome)
        if outcome.status is Status.PENDING_APPROVAL and before is None:
            return await self._ask(ctx, caller, replace(request, call_id=outcome.call_id), outcome)
        return outcome

    async def refuse(self, ctx: Context, name: object, refusal: Rejected) -> Outcome:
        """For a request that never became a call: attested and journaled all the same."""
        return await refuse_call(self._installation, self._callers.of(ctx).run, name, refusal)

    def _request(self, caller: Caller, params: types.CallToolRequestParams, before: Round | None) -> CallRequest:
        return CallRequest(
            tool=self.dotted(params.name),
            input=params.arguments or {},
            run=caller.run,
            call_id=before.call_id if before is not None else self._installation.ports.ids.ulid(),
            project=True,
            lapse=caller.lapse,
        )

    async def _made(self, ctx: Context, request: CallRequest) -> Outcome:
        async with AsyncExitStack() as stack:
            if (ctx.meta or {}).get("progress_token") is not None:
                progress = Progress(ctx.session.report_progress)
                request = replace(request, on_output=progress, lagging=True)  # an agent looks on
                await stack.enter_async_context(progress.reporting())
            return await self.run_to_end(request)

    async def run_to_end(self, request: CallRequest) -> Outcome:
        """A cancelled client ends its call; its record is closed first, however often the cancellation comes."""
        task = self._begin(request)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])
            raise

    # ── questions ──

    def _with_console(self, outcome: Outcome) -> Outcome:
        """Where to decide, also when the configuration does not say: the console of a daemon that is up."""
        approval = dict(outcome.approval or {})
        note = read_note(self._installation.home.root)
        url = note.get("url") if note is not None else None
        if approval.get("url") or not isinstance(url, str) or find_socket(self._installation.home.root) is None:
            return outcome
        approval["url"] = f"{url}/console/approvals/{approval.get('approval_id')}"
        return replace(outcome, approval=approval)

    async def _ask(
        self, ctx: Context, caller: Caller, request: CallRequest, outcome: Outcome
    ) -> Outcome | types.InputRequiredResult:
        approval_id = str((outcome.approval or {}).get("approval_id", ""))
        form = await self._may_form(ctx, caller, request) and self._fits(approval_id)
        url = (outcome.approval or {}).get("url") if not form and _can(ctx, "url") else None
        if not form and not isinstance(url, str):
            return outcome
        shown = await self._shown(approval_id, by=caller.person or caller.principal)
        asked = question(shown) if form else console_question(shown, url=str(url), approval_id=approval_id)
        this = Round(call_id=outcome.call_id, approval_id=approval_id, form=form)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return types.InputRequiredResult(
                input_requests={QUESTION: types.ElicitRequest(params=asked)}, request_state=this.text()
            )
        answer = await self._elicit(ctx, asked, approval_id)
        if answer is None:
            return await self._made(ctx, request)
        request = await self._take_answer(ctx, caller, request, this, {QUESTION: answer})
        return await self._made(ctx, request)

    async def _may_form(self, ctx: Context, caller: Caller, request: CallRequest) -> bool:
        if caller.person is None or caller.person == caller.principal or not _can(ctx, "form"):
            return False
        engine = self._installation.engine
        trip, refusal = await engine.assess(request)
        return refusal is None and may_elicit(trip, engine.ports)

    def _fits(self, approval_id: str) -> bool:
        approval = self._installation.approvals.find(approval_id)
        return approval is not None and fits_question(self._installation.approvals.shown(approval))

    async def _shown(self, approval_id: str, *, by: str) -> Mapping[str, Json]:
        """That it was put before somebody is an entry too."""
        approval = await self._installation.approvals.view(approval_id, by=by)
        return self._installation.approvals.shown(approval)

    async def _elicit(
        self, ctx: Context, asked: types.ElicitRequestFormParams | types.ElicitRequestURLParams, approval_id: str
    ) -> types.ElicitResult | None:
        """None when somebody decided elsewhere meanwhile, or the request is over."""
        sending = asyncio.create_task(_send(ctx, asked))
        try:
            while not sending.done():
                await asyncio.wait([sending], timeout=LOOK_EVERY_S)
                if (await self._installation.approvals.look(approval_id)).state is not ApprovalState.PENDING:
                    break
            if not sending.done():
                return None
            return sending.result()
        except MCPError as error:
            log.info("the client did not put the question: %s", error)
            return types.ElicitResult(action="cancel")
        finally:
            sending.cancel()

    async def _take_answer(
        self, ctx: Context, caller: Caller, request: CallRequest, this: Round, responses: Mapping[str, Any] | None
    ) -> CallRequest:
        answer = (responses or {}).get(QUESTION)
        if isinstance(answer, types.ElicitResult):
            answer = answer.model_dump(by_alias=True)
        if not isinstance(answer, Mapping):
            return request
        if not this.form:
            return replace(request, wait_s=WAIT_FOR_CONSOLE_S) if answer.get("action") == "accept" else request
        decision = said(answer)
        if decision is not None and caller.person is not None and await self._may_form(ctx, caller, request):
            await self._decide(this.approval_id, Verdict(approved=decision, by=caller.person, note=ANSWERED))
        return request

    async def _decide(self, approval_id: str, verdict: Verdict) -> None:
        """Where another was quicker, that stands: the call that follows finds out."""
        try:
            await self._installation.approvals.decide(approval_id, verdict)
        except PalyraError as error:
            log.info("approval %s could not be decided here: %s", approval_id, error)


async def refuse_call(installation: Installation, run: Run, name: object, refusal: Rejected) -> Outcome:
    listed = name if isinstance(name, str) and name.isprintable() else ""
    tool = dotted_name(listed, listed_names(installation.engine.registry.specs())) if listed else ""
    return await installation.engine.call(CallRequest(tool=tool, input=b"", run=run, refusal=refusal))


def _can(ctx: Context, mode: str) -> bool:
    capabilities = ctx.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities is not None else None
    if elicitation is None:
        return False
    if mode == "url":
        return elicitation.url is not None
    return elicitation.form is not None or elicitation.url is None  # an empty object has always meant forms


async def _send(
    ctx: Context, asked: types.ElicitRequestFormParams | types.ElicitRequestURLParams
) -> types.ElicitResult:
    if isinstance(asked, types.ElicitRequestFormParams):
        return await ctx.session.elicit_form(asked.message, asked.requested_schema, ctx.request_id)
    return await ctx.session.elicit_url(asked.message, asked.url, asked.elicitation_id or "", ctx.request_id)
