"""`/console/policy`: the policies in use with their examples; explain a call; what other policies would decide."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.console.making import Visit, form, page, then, to
from palyra.daemon.console.rendering import render
from palyra.daemon.operators import policy as acts
from palyra.daemon.operators.answering import Word, installed
from palyra.daemon.operators.policy_models import Exempting, Imagined, Source
from palyra.daemon.routes import Asked, Model, Refused
from palyra.errors import Rejected
from palyra.model.moment import parse_moment
from palyra.policy.scan import MAX_BUNDLE_BYTES
from palyra.wiring.explaining import explain_recorded
from palyra.wiring.policy_acts import uses_json

MAX_FLIPS = 200
DEFAULT_PRINCIPAL = "agent:demo"


class ExplainPage(Model):
    call_id: Word = ""
    tool: Annotated[str, Field(max_length=256)] = ""
    input: Annotated[str, Field(max_length=8000)] = ""
    principal: Word = ""
    workspace: Annotated[str, Field(max_length=4096)] = ""


Scope = Literal["call", "program", "run", "always"]


class AllowPage(Model):
    call_id: Word
    scope: Annotated[Scope, Field(alias="for")] = "call"


class Replaying(Model):
    posture: Annotated[str, Field(pattern="^(locked|standard|developer)?$")] = ""
    version: Word = ""
    text: Annotated[str, Field(max_length=MAX_BUNDLE_BYTES)] = ""
    since: Annotated[str, Field(max_length=40)] = ""


async def policy_page(asked: Asked) -> Response:
    installation = installed(asked)
    return render(
        asked,
        "policy.html",
        section="policy",
        bundle=acts.bundle_json(installation.policies.current()),
        uses=uses_json(installation),
        posture=installation.config.posture,
        in_use=installation.versions.pointer(),
        folder=str(installation.home.policies),
        exceptions={name.removesuffix(".cedar") for name in installation.policies.exceptions()},
    )


async def allow_page(asked: Asked) -> Response:
    """What the exception would be and change; a form makes it."""
    query: AllowPage = asked.query
    problem, made = "", None
    try:
        body = Exempting.model_validate({"call_id": query.call_id.strip(), "for": query.scope, "dry_run": True})
        made = await acts.allow(replace(asked, body=body))
    except Refused as error:
        problem = f"{error.message} {error.hint or ''}".strip()
    values = {"query": query, "made": made, "problem": problem, "most": MAX_FLIPS}
    return render(asked, "allow.html", section="policy", status=409 if problem else 200, **values)


async def explain_page(asked: Asked) -> Response:
    query: ExplainPage = asked.query
    problem, told = "", None
    try:
        told = await _told(asked, query)
    except (Refused, Rejected) as error:
        problem = error.message if isinstance(error, Refused) else error.detail
    values = {"query": query, "told": told, "problem": problem, "default_principal": DEFAULT_PRINCIPAL}
    return render(asked, "explain.html", section="policy", status=422 if problem else 200, **values)


async def _told(asked: Asked, query: ExplainPage) -> Json:
    if query.call_id:
        return (await explain_recorded(installed(asked), query.call_id.strip())).as_json()
    if not query.tool:
        return None
    body = Imagined(
        tool=query.tool,
        input=query.input or "{}",
        principal=query.principal or DEFAULT_PRINCIPAL,
        workspace=query.workspace,
    )
    return await acts.imagine(asked, body)


async def replay_page(asked: Asked) -> Response:
    return await _replayed(asked, asked.query)


async def replay_now(asked: Asked) -> Response:
    return await _replayed(asked, asked.body)


async def _replayed(asked: Asked, given: Replaying) -> Response:
    """By address for a posture or a version, so that it can be sent to somebody; by a form for a text."""
    problem, found = "", None
    try:
        found = await _compared(asked, given)
    except Refused as error:
        problem = f"{error.message} {error.hint or ''}".strip()
    return render(
        asked,
        "replay.html",
        section="policy",
        status=422 if problem else 200,
        given=given,
        problem=problem,
        found=found,
        most=MAX_FLIPS,
        versions=sorted({item["version"] for item in uses_json(installed(asked)) if item["version"]}),
    )


async def _compared(asked: Asked, given: Replaying) -> dict[str, Any] | None:
    if not (given.posture or given.version or given.text.strip()):
        return None
    try:
        now = asked.state.clock.now_unix_ms()
        since = parse_moment(given.since, now_unix_ms=now) if given.since else None
    except ValueError as error:
        raise Refused(422, "BAD_ARGUMENTS", f"Since: {error}.", "Write 2026-01-31 or 24h.") from None
    source = Source.model_validate(
        {"posture": given.posture, "version": given.version, "text": given.text, "since_unix_ms": since}
    )
    return {"replay": await acts.replayed(asked, source), "diff": await acts.differing(asked, source)}


ROUTES = (
    page("/policy", policy_page, name="policy", says="The policies in use.", query=Visit),
    page("/policy/explain", explain_page, name="explain", says="Why a call is decided as it is.", query=ExplainPage),
    page("/policy/replay", replay_page, name="replay", says="What other policies would decide.", query=Replaying),
    form("/policy/replay", replay_now, name="replay", says="The same for a text.", body=Replaying),
    form("/policy/use", then(acts.use, to("policy", said="used")), name="use_policies", says="Use a version.",
         body=Source),
    page("/policy/allow", allow_page, name="allow", says="An exception for a refused call, before it is made.",
         query=AllowPage),
    form("/policy/allow", then(acts.allow, to("policy", said="allowed")), name="allow", says="Make an exception.",
         body=Exempting),
    form("/policy/exceptions/{id}/delete", then(acts.disallow, to("policy", said="disallowed")), name="disallow",
         says="Take an exception back."),
    form("/policy/rollback", then(acts.roll_back, to("policy", said="rolled-back")), name="rollback",
         says="Go back to the previous policies."),
)  # fmt: skip
