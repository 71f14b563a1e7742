"""`/console/v1/skills/builder`: candidates of the skill builder: made, listed, and promoted into quarantine."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palyra.canon import Json
from palyra.daemon.operators.answering import Line, Listed, Word, change, get, installed
from palyra.daemon.operators.skills import SkillMoved, refused
from palyra.daemon.routes import AnswerModel, Asked, Model, Refused, not_found
from palyra.model.call import is_ulid
from palyra.skills.findings import SkillRefused
from palyra.skills.project import ProjectError
from palyra.wiring.skill_builder import SkillBuilder


class CandidateFacts(AnswerModel):
    candidate_id: str
    skill_id: str
    version: str
    wish: str
    source: str
    shape: str
    model: str
    capabilities: dict[str, Json]
    made_unix_ms: int
    made_by: str
    promoted_sha256: str


class CandidateWish(Model):
    """Words, or a run that was seen doing it: one of the two."""

    text: Annotated[Line, Field(description="What the skill should do, in plain words.")] = ""
    from_run: Annotated[Word, Field(description="Learn it from what this run did instead.")] = ""
    skill_id: Annotated[Word, Field(description="PUBLISHER.NAME; left out: local.WORDS.")] = ""


class CandidateMade(CandidateFacts):
    files: dict[str, str]
    """The project: manifest, source, recorded inputs, README and the review's checklist."""


class PromotedSkill(AnswerModel):
    candidate: CandidateFacts
    built: dict[str, Json]
    tests: list[dict[str, Json]]
    skill: SkillMoved


def builder_of(asked: Asked) -> SkillBuilder:
    installation = installed(asked)
    try:
        return SkillBuilder(installation, path=installation.config.tool_call.process_runner.path)
    except ProjectError as error:
        raise Refused(409, "BUILDER_OFF", error.detail, error.hint) from error


async def list_candidates(asked: Asked) -> Json:
    return {"items": [one.as_json() for one in builder_of(asked).candidates()], "next": None}


async def propose_candidate(asked: Asked) -> Json:
    """A project in quarantine, as `palyra skills propose` makes it; nothing of it is built or run yet."""
    wish: CandidateWish = asked.body
    if bool(wish.text) == bool(wish.from_run):
        raise Refused(422, "BAD_ARGUMENTS", "Give text, or from_run: one of the two.", "See /openapi.json.")
    builder, by = builder_of(asked), asked.caller.principal
    try:
        made = (
            await builder.learn(wish.from_run, by=by, skill_id=wish.skill_id)
            if wish.from_run
            else await builder.propose(wish.text, by=by, skill_id=wish.skill_id)
        )
    except ProjectError as error:
        raise Refused(422, "NOT_PROPOSED", error.detail, error.hint) from error
    except SkillRefused as error:
        raise refused(error) from error
    return {**made.as_json(), "files": dict(builder.show(made.candidate_id)[1])}


async def promote_candidate(asked: Asked) -> Json:
    if not is_ulid(asked.path["id"]):
        raise not_found("candidate")
    builder = builder_of(asked)
    if asked.path["id"] not in {one.candidate_id for one in builder.candidates()}:
        raise not_found("candidate")
    try:
        return (await builder.promote(asked.path["id"], by=asked.caller.principal)).as_json()
    except SkillRefused as error:
        raise refused(error) from error
    except ProjectError as error:
        raise Refused(409, "NOT_PROMOTED", error.detail, error.hint) from error


ROUTES = (
    get("/skills/builder/candidates", list_candidates, name="list_candidates", says="The builder's candidates.",
        model=Listed[CandidateFacts]),
    change("/skills/builder/candidates", propose_candidate, name="propose_candidate",
           says="Make a candidate from a description, or from what a run did. None of it runs.", model=CandidateMade,
           body=CandidateWish),
    change("/skills/builder/candidates/{id}/promote", promote_candidate, name="promote_candidate",
           says="Build a candidate, try it, and install it into quarantine.", model=PromotedSkill),
)  # fmt: skip
