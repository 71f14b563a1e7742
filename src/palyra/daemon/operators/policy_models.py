"""The shapes of `/console/v1/policy`: what a caller may send, and what it is answered. Not here: the acts (policy)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from palyra.canon import Json
from palyra.daemon.operators.answering import Listed, Maybe, Place, Word
from palyra.daemon.routes import AnswerModel, Model
from palyra.policy.scan import MAX_BUNDLE_BYTES


class Use(AnswerModel):
    number: int
    version: str | None
    at_unix_ms: int
    by: str
    in_use: bool


class Bundles(Listed[Use]):
    bundle: str
    policy_sha256: str
    version: str | None
    posture: str
    stale: str | None


class Policy(AnswerModel):
    id: str
    effect: str
    code: str | None
    reason: str
    file: str
    line: int
    text: str
    lifts: list[str]


class PolicyExample(AnswerModel):
    name: str
    expect: str
    code: str | None
    principal: str
    tool: str
    program: str


class Bundle(AnswerModel):
    bundle: str
    policy_sha256: str
    policies: list[Policy]
    examples: list[PolicyExample]
    files: dict[str, str]


class Replay(AnswerModel):
    policy_sha256: str
    calls: int
    without_request: int
    flips: int
    damaged: list[str]
    items: list[dict[str, Json]]
    next: None


class DiffSide(AnswerModel):
    requests: int
    newly_allowed: int
    newly_asked: int
    newly_denied: int
    items: list[dict[str, Json]]
    damaged: list[str] = Field(default_factory=list)


class Diff(AnswerModel):
    from_: Annotated[str, Field(alias="from")]
    to: str
    same: bool
    policies: dict[str, list[str]]
    examples: DiffSide
    journal: DiffSide


class NowInUse(AnswerModel):
    version: str | None
    policy_sha256: str
    changed: bool


class Source(Model):
    """Other policies: exactly one of a posture, an installed version, a text, or files by name."""

    posture: Literal["", "locked", "standard", "developer"] = ""
    version: Word = ""
    text: Annotated[str, Field(max_length=MAX_BUNDLE_BYTES)] = ""
    files: Annotated[Annotated[dict[str, str], Field(max_length=64)] | None, Maybe] = None
    since_unix_ms: Annotated[Place | None, Maybe] = None
    """Replay and diff: only calls since then."""


class Exempting(Model):
    """An exception for a refused call."""

    call_id: Word
    scope: Annotated[Literal["call", "program", "run", "always"], Field(alias="for")] = "call"
    dry_run: bool = False


class Exempted(AnswerModel):
    id: str
    call_id: str
    scope: str
    lifts: list[str]
    note: str | None
    file: str
    text: str
    dry_run: bool
    replay: Replay


class TakenBack(AnswerModel):
    id: str
    file: str


class WhichCall(Model):
    call_id: Word


class Imagined(Model):
    tool: Annotated[str, Field(min_length=1, max_length=256)]
    input: Annotated[dict[str, Json] | str, Field(description="The input, or its JSON as text.")] = "{}"
    principal: Word
    workspace: Annotated[str, Field(max_length=4096)] = ""
