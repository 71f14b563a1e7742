"""`/console/v1/trust`: publishers' keys: which count here, adding one, taking one back with all it signed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palyra.canon import Json
from palyra.daemon.operators.answering import Line, Listed, Maybe, Place, Word, change, get, installed
from palyra.daemon.operators.skills import refused
from palyra.daemon.routes import AnswerModel, Asked, Model
from palyra.skills.findings import SkillRefused


class TrustedKey(AnswerModel):
    publisher: str
    key_id: str
    public_key: str
    valid_from_unix_ms: int | None
    valid_until_unix_ms: int | None
    revoked_unix_ms: int | None
    replaced_by: str | None
    how: str
    added_by: str


class Distrusted(AnswerModel):
    publisher: str
    revoked: list[str]
    quarantined: list[str]


class Trusting(Model):
    publisher: Annotated[str, Field(min_length=1, max_length=120)]
    key: Annotated[str, Field(min_length=1, max_length=4000)]
    """The public key: base64 of its 32 bytes, or PEM."""
    valid_until_unix_ms: Annotated[Place | None, Maybe] = None


class Distrusting(Model):
    key_id: Word = ""
    """Empty: every key of the publisher."""
    reason: Line = ""


async def list_trust(asked: Asked) -> Json:
    return {"items": installed(asked).skills.trust_list(), "next": None}


async def add_trust(asked: Asked) -> Json:
    body: Trusting = asked.body
    desk, by = installed(asked).skills, asked.caller.principal
    try:
        return await desk.trust_add(body.publisher, body.key, by=by, valid_until_unix_ms=body.valid_until_unix_ms)
    except SkillRefused as error:
        raise refused(error) from error


async def revoke_trust(asked: Asked) -> Json:
    body: Distrusting = asked.body
    desk, by = installed(asked).skills, asked.caller.principal
    try:
        return await desk.trust_revoke(asked.path["publisher"], by=by, key_id=body.key_id, reason=body.reason)
    except SkillRefused as error:
        raise refused(error) from error


ROUTES = (
    get("/trust", list_trust, name="list_trust", says="Publishers' keys.", model=Listed[TrustedKey]),
    change("/trust", add_trust, name="add_trust", says="Trust a key of a publisher.", model=TrustedKey,
           body=Trusting),
    change("/trust/{publisher}/revoke", revoke_trust, name="revoke_trust",
           says="Revoke trust; what the keys signed is quarantined at once.", model=Distrusted, body=Distrusting),
)  # fmt: skip
