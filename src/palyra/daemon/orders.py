"""From a body and who sent it to a call for the engine: whose it is, in which run, with which grant.

Rules: an agent's credential speaks for its own principal, in its own workspace, in runs of its own, and gives no
grants; what it may not say is refused by the walk, so it is attested and journaled like any other refusal.

Not here: running the call (daemon/live), what policies make of it (engine).
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import orjson

from palyra.canon import Json
from palyra.config.schema import Config
from palyra.daemon.auth import Caller
from palyra.daemon.call_models import CallBody
from palyra.daemon.lapsing import lapse_of_calls
from palyra.daemon.state import State
from palyra.engine.runs import Run, RunScope, start_run
from palyra.engine.trip import CallRequest
from palyra.errors import ConfigError, Reason, Rejected
from palyra.model.call import Door, OperatorGrant, RequestContext, parse_principal, parse_ulid
from palyra.model.limits import Limits
from palyra.values import dataclass
from palyra.wiring.grants import grant
from palyra.wiring.places import resolve_workspace
from palyra.wiring.run_terms import check_goes_on


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One call, ready for the engine."""

    body: CallBody
    caller: Caller
    request: CallRequest


def make_order(state: State, caller: Caller, body: CallBody, *, shared_run: str | None = None) -> Order:
    """`shared_run`: the run of a batch, for calls that name none."""
    call_id = body.call_id or state.ids.ulid()
    run, refusal = _run_or_refusal(state, caller, body, shared_run)
    request = CallRequest(
        tool=body.tool,
        input=_input(body, refusal),
        run=run,
        call_id=call_id,
        fresh_id=body.call_id is None,
        fresh_run=body.run_id is None and shared_run is None,
        project=body.project,
        lagging=not caller.operator,
        wait_s=_patience_s(state, body),
        changes=bool(body.changes) and refusal is None,
        asked_us=state.clock.monotonic_us(),
        lapse=lapse_of_calls(state, caller),
        refusal=refusal,
    )
    return Order(body=body, caller=caller, request=request)


def _input(body: CallBody, refusal: Rejected | None) -> bytes | Mapping[str, Json]:
    """Bytes that a command line was given go in as they are: the engine judges them, and records what it refuses.

    So does JSON that is no object: it is a call, and its refusal is attested like any other's.
    """
    if body.input_base64 is None or refusal is not None:
        return body.input if isinstance(body.input, dict) else orjson.dumps(body.input)
    try:
        return base64.b64decode(body.input_base64, validate=True)
    except ValueError:
        raise Rejected(Reason.BAD_ARGUMENTS, "input_base64 is not base64.", "Send `input` instead.") from None


def _patience_s(state: State, body: CallBody) -> float:
    """Nobody waits at the other end of a call that is only taken on: it waits for a person as long as one is asked."""
    asked_ms = state.installation.config.approvals.request_ms
    return (body.approval_wait_ms if body.wait else max(body.approval_wait_ms, asked_ms)) / 1000


def unreadable_request(state: State, caller: Caller, data: bytes) -> CallRequest:
    """Of bytes that are no call: refused and recorded under whoever sent them."""
    context = RequestContext(principal=parse_principal(caller.principal), door=Door.HTTP)
    refusal = Rejected(Reason.MALFORMED, "The body is not one strict JSON value.", "Send JSON as RFC 8259 defines it.")
    run = _fresh_run(state, state.ids.ulid(), context, workspace="")
    return CallRequest(tool="", input=data, run=run, call_id=state.ids.ulid(), refusal=refusal)


def _run_or_refusal(
    state: State, caller: Caller, body: CallBody, shared_run: str | None
) -> tuple[Run, Rejected | None]:
    try:
        if not caller.operator and (said := _others_words(caller, body)):
            raise Rejected(
                Reason.CAPABILITY_DENIED,
                f"An agent's credential cannot set {', '.join(said)}.",
                "Only an operator may set these: ask one, or leave them out.",
            )
        return _run(state, caller, body, shared_run), None
    except Rejected as refusal:
        context = RequestContext(principal=parse_principal(caller.principal), door=Door.HTTP)
        return _fresh_run(state, state.ids.ulid(), context, workspace=""), refusal


def _run(state: State, caller: Caller, body: CallBody, shared_run: str | None) -> Run:
    principal, door = principal_of(caller, body.principal), Door(body.door or Door.HTTP)
    if body.run_id is not None:
        parse_ulid(body.run_id, what="--run" if door is Door.CLI else "run_id")
        terms = state.run_terms.find(body.run_id)
        if terms is not None and (terms.principal == principal or (caller.operator and body.principal is None)):
            check_goes_on(terms)
            _check_same_place(caller, body, terms.workspace)
            run = terms.run(state.installation.config, door=door, device=body.device, channel=body.channel)
            return _granted(run, body)
        if not caller.operator:
            return _calls_own_run(state, caller, body, door)
    context = _context(principal, door, body.device, body.channel)
    run_id = body.run_id or shared_run or state.ids.ulid()
    scope = RunScope.OPEN if body.run_id else RunScope.CALL
    workspace = workspace_of(state.installation.config, caller, body.workspace, body.default_workspace)
    return _granted(_fresh_run(state, run_id, context, workspace=workspace, scope=scope), body)


@lru_cache(maxsize=256)
def _context(principal: str, door: Door, device: str, channel: str) -> RequestContext:
    """A value made of values: the same for every call that says the same."""
    return RequestContext(principal=parse_principal(principal), door=door, device=device, channel=channel)


def _calls_own_run(state: State, caller: Caller, body: CallBody, door: Door) -> Run:
    """A call that named no run had one all the same: what it left there, a large result, is read by naming that."""
    known = state.installation.runs.find(str(body.run_id))
    if known is None or known.principal != caller.principal:
        raise Rejected(Reason.BAD_ARGUMENTS, "There is no such run.", "Make one: POST /v1/runs.")
    _check_same_place(caller, body, known.workspace)
    context = RequestContext(
        principal=parse_principal(caller.principal), door=door, device=body.device, channel=body.channel
    )
    return _fresh_run(state, known.run_id, context, workspace=known.workspace)


def _check_same_place(caller: Caller, body: CallBody, workspace: str) -> None:
    if body.workspace is not None and resolve_workspace(body.workspace) != workspace:
        raise Rejected(Reason.BAD_ARGUMENTS, "A run has one workspace.", "Leave workspace out, or make another run.")
    _check_within(caller, workspace)


def _fresh_run(
    state: State, run_id: str, context: RequestContext, *, workspace: str, scope: RunScope = RunScope.CALL
) -> Run:
    return start_run(
        state.installation.config,
        run_id=run_id,
        context=context,
        workspace=workspace,
        now_unix_ms=state.clock.now_unix_ms(),
        scope=scope,
    )


def _others_words(caller: Caller, body: CallBody) -> tuple[str, ...]:
    """An operator's words that this agent says. Its own name is none: code written for the library names it."""
    own = body.principal == caller.principal
    return tuple(word for word in body.operator_words if not (own and word == "principal"))


def principal_of(caller: Caller, named: str | None) -> str:
    """An operator may speak for others; who may name one at all is checked before."""
    return str(parse_principal(named)) if named is not None else caller.principal


def workspace_of(config: Config, caller: Caller, named: str | None, otherwise: str | None = None) -> str:
    """What was named, else what the credential is bound to, else what is configured; never the daemon's own folder."""
    folder = named or caller.workspace or config.tool_call.process_runner.workspace_root or otherwise
    if not folder:
        return ""
    if not os.path.isabs(folder):
        raise Rejected(
            Reason.BAD_ARGUMENTS, "The workspace must be an absolute path.", "Give a path that starts with /."
        )
    resolved = resolve_workspace(folder)
    _check_within(caller, resolved)
    return resolved


def _check_within(caller: Caller, workspace: str) -> None:
    if caller.workspace and os.path.commonpath((caller.workspace, workspace or "/")) != caller.workspace:
        raise Rejected(
            Reason.CAPABILITY_DENIED,
            "This credential is bound to another workspace.",
            "Work below the folder it was made for: palyra token list shows it.",
        )


def _granted(run: Run, body: CallBody) -> Run:
    """With the operator's own words for this one call; hard caps still hold."""
    if not body.operator_words:
        return run
    given = grant(
        executables=tuple(body.allow or ()),
        interpreters=bool(body.allow_interpreters),
        read_roots=tuple(body.read or ()),
        env=body.env,
        egress=body.egress,
        hosts=tuple(body.allow_host or ()),
        tier=None if body.tier == "auto" else body.tier,
        root_tier_b=bool(body.allow_root_tier_b),
    )
    limits = run.limits.as_json()
    for name, value in (
        ("wall_ms", body.timeout_ms),
        ("memory_bytes", body.memory_bytes),
        ("output_bytes", body.max_output_bytes),
    ):
        if value is not None:
            limits[name] = value
    try:
        stated = Limits(**limits)
    except ConfigError as error:
        raise Rejected(Reason.BAD_ARGUMENTS, error.detail, error.hint) from None
    kept = replace(given, block_all=given.block_all or run.grant.block_all)
    if kept == OperatorGrant():
        return replace(run, limits=stated)
    return replace(run, limits=stated, grant=kept, tier=given.tier or run.tier, egress=given.egress or run.egress)
