"""`/console/v1/skills`: what is installed and where it stands; install, audit, enable, stop, go back.

Rules: every act is the one of wiring/skill_acts, which the command line calls too; a refusal names its finding
(docs/spec/skill.md) and changes nothing. A package comes as the request's bytes. Not here: the builder (candidates).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.operators.answering import PREFIX, Line, Listed, Word, change, get, installed
from palyra.daemon.routes import Answer, AnswerModel, Asked, Model, Refused, Route, Who, json_response
from palyra.skills.bundle import MAX_BYTES
from palyra.skills.findings import Finding, SkillRefused
from palyra.wiring.skill_payloads import Done
from palyra.wiring.skill_views import package_json

PACKAGE = "application/octet-stream"
_STATE = ("life.", "version.", "tool.", "publisher.", "files.", "trust.")
"""Findings about how things stand here; the others are about what was sent."""


class SkillStanding(AnswerModel):
    skill_id: str
    version: str
    status: str
    reason: str
    publisher: str
    key_id: str
    sha256: str
    installed_by: str
    installed_at_unix_ms: int
    reviewed_by: str | None
    enabled_by: str | None
    enabled_at_unix_ms: int | None
    override: str | None
    changed_by: str
    changed_at_unix_ms: int
    journal_index: int


class SkillLine(SkillStanding):
    audit: str | None
    """The newest audit's verdict."""
    waiting_versions: list[str]


class AuditCheck(AnswerModel):
    check_id: str
    status: str
    message: str
    details: dict[str, Json]


class SkillReport(AnswerModel):
    sha256: str
    at_unix_ms: int
    by: str
    verdict: str
    checks: list[AuditCheck]


class SkillMoved(SkillStanding):
    changed: bool
    pinned_key_id: str | None
    """The key that was taken on first use."""
    audit: SkillReport | None


class SkillTool(AnswerModel):
    id: str
    name: str
    description: str
    module: str
    requires_approval: bool
    default_sensitive: bool
    schema_sha256: str


class SkillWhole(SkillStanding):
    name: str
    display_name: str
    summary: str
    categories: list[str]
    tags: list[str]
    docs_url: str | None
    review_required: bool
    min_palyra: str
    capabilities: dict[str, Json]
    capability_words: list[str]
    tools: list[SkillTool]
    generated: str | None
    audit: SkillReport | None
    versions: list[SkillStanding]


class Enabling(Model):
    version: Word = ""
    """Empty: the one that was installed last."""
    override_reason: Annotated[str, Field(max_length=200)] = ""
    """Enable it though its audit failed; kept, and told by its entry."""


class Saying(Model):
    reason: Line = ""


class Versioned(Model):
    version: Word = ""


class Reviewing(Model):
    notes: Annotated[str, Field(min_length=1, max_length=280)]
    version: Word = ""


class Installing(Model):
    tofu: bool = False
    """Trust the package's own key, if its publisher has none here yet."""
    allow_downgrade: bool = False


def refused(error: SkillRefused) -> Refused:
    if error.finding is Finding.LIFE_ABSENT:
        return Refused(404, "NOT_FOUND", error.detail, error.hint)
    status = 409 if error.finding.value.startswith(_STATE) else 422
    return Refused(status, error.finding.value, error.detail, error.hint)


async def _done(act: Callable[[], Awaitable[Done]]) -> dict[str, Json]:
    try:
        return (await act()).as_json()
    except SkillRefused as error:
        raise refused(error) from error


async def list_skills(asked: Asked) -> Json:
    return {"items": installed(asked).skills.list_skills(), "next": None}


async def show_skill(asked: Asked) -> Json:
    try:
        return installed(asked).skills.show_skill(asked.path["id"], version=asked.query.version)
    except SkillRefused as error:
        raise refused(error) from error


async def list_reports(asked: Asked) -> Json:
    try:
        return {"items": installed(asked).skills.reports(asked.path["id"]), "next": None}
    except SkillRefused as error:
        raise refused(error) from error


async def install_skill(asked: Asked) -> Json:
    query: Installing = asked.query
    by, desk = asked.caller.principal, installed(asked).skills
    return await _done(lambda: desk.install(asked.raw, by=by, tofu=query.tofu, allow_downgrade=query.allow_downgrade))


async def upload_skill(asked: Asked) -> Json:
    """The same by a form, whose fields say what the query says there."""
    body: Installing = asked.body
    by, desk = asked.caller.principal, installed(asked).skills
    return await _done(lambda: desk.install(asked.raw, by=by, tofu=body.tofu, allow_downgrade=body.allow_downgrade))


async def verify_package(asked: Asked) -> Json:
    """A package by a key that is trusted here; nothing is installed."""
    try:
        return package_json(installed(asked).skills.verify_file(asked.raw))
    except SkillRefused as error:
        raise refused(error) from error


async def verify_skill(asked: Asked) -> Json:
    """The installed files against what was signed, and the audit again."""
    return await audit_skill(asked)


async def audit_skill(asked: Asked) -> Json:
    version = asked.body.version if asked.body is not None else ""
    return await _done(
        lambda: installed(asked).skills.audit(asked.path["id"], by=asked.caller.principal, version=version)
    )


async def enable_skill(asked: Asked) -> Json:
    body: Enabling = asked.body
    desk, by = installed(asked).skills, asked.caller.principal
    return await _done(
        lambda: desk.enable(asked.path["id"], by=by, override_reason=body.override_reason, version=body.version)
    )


async def review_skill(asked: Asked) -> Json:
    body: Reviewing = asked.body
    desk, by = installed(asked).skills, asked.caller.principal
    return await _done(lambda: desk.review(asked.path["id"], by=by, notes=body.notes, version=body.version))


async def disable_skill(asked: Asked) -> Json:
    by, reason = asked.caller.principal, asked.body.reason
    return await _done(lambda: installed(asked).skills.disable(asked.path["id"], by=by, reason=reason))


async def quarantine_skill(asked: Asked) -> Json:
    by, reason = asked.caller.principal, asked.body.reason
    return await _done(lambda: installed(asked).skills.quarantine(asked.path["id"], by=by, reason=reason))


async def roll_back_skill(asked: Asked) -> Json:
    return await _done(lambda: installed(asked).skills.rollback(asked.path["id"], by=asked.caller.principal))


async def remove_skill(asked: Asked) -> Json:
    return await _done(lambda: installed(asked).skills.remove(asked.path["id"], by=asked.caller.principal))


async def _install(asked: Asked) -> Response:
    return json_response(await install_skill(asked))


async def _verify(asked: Asked) -> Response:
    return json_response(await verify_package(asked))


def _package(path: str, handler: object, name: str, says: str, model: object, query: type[Model] | None) -> Route:
    return Route(
        method="POST",
        path=f"{PREFIX}/skills{path}",
        name=name,
        who=Who.OPERATOR,
        handler=handler,  # type: ignore[arg-type]
        summary=says,
        answers={200: Answer(meaning="What became of it.", model=model)},
        query=query,
        accepts=PACKAGE,
        max_body_bytes=MAX_BYTES,
        tags=("skills",),
    )


ROUTES = (
    get("/skills", list_skills, name="list_skills", says="Installed skills and their states.",
        model=Listed[SkillLine]),
    _package("/install", _install, "install_skill", "Install a package, into quarantine.", SkillMoved,
             Installing),
    _package("/verify", _verify, "verify_package", "Whether this package is intact and signed by a trusted key.",
             dict[str, Json], None),
    get("/skills/{id}", show_skill, name="show_skill", says="All of a skill: versions, capabilities in words, audit.",
        model=SkillWhole, query=Versioned),
    get("/skills/{id}/reports", list_reports, name="list_reports", says="Its audits, the newest first.",
        model=Listed[SkillReport]),
    change("/skills/{id}/verify", verify_skill, name="verify_skill", says="Check its files against what was signed.",
           model=SkillMoved, body=Versioned),
    change("/skills/{id}/audit", audit_skill, name="audit_skill", says="Audit it again.",
           model=SkillMoved, body=Versioned),
    change("/skills/{id}/review", review_skill, name="review_skill", says="Record that a person reviewed it.",
           model=SkillMoved, body=Reviewing),
    change("/skills/{id}/enable", enable_skill, name="enable_skill", says="Allow calls to its tools.",
           model=SkillMoved, body=Enabling),
    change("/skills/{id}/disable", disable_skill, name="disable_skill", says="Stop allowing calls to them.",
           model=SkillMoved, body=Saying),
    change("/skills/{id}/quarantine", quarantine_skill, name="quarantine_skill", says="Take it out of use, and stop "
           "what runs of it.", model=SkillMoved, body=Saying),
    change("/skills/{id}/rollback", roll_back_skill, name="roll_back_skill", says="Return to the version that was "
           "enabled before.", model=SkillMoved),
    change("/skills/{id}/remove", remove_skill, name="remove_skill", says="Remove it; its history is kept.",
           model=SkillMoved),
)  # fmt: skip
