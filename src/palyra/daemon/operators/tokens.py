"""`/console/v1/tokens`: credentials of agents and operators. A token is shown once, when it is made."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palyra.canon import Json
from palyra.daemon.operators.answering import Listed, Maybe, NextPage, Word, change, get
from palyra.daemon.routes import AnswerModel, Asked, Model, not_found
from palyra.tokens.rules import LONGEST_MS
from palyra.tokens.store import LAST


class TokenFacts(AnswerModel):
    id: str
    principal: str
    operator: bool
    workspace: str | None
    created_at_unix_ms: int
    expires_at_unix_ms: int
    revoked_at_unix_ms: int | None


class NewToken(TokenFacts):
    token: str
    """The credential itself, this once."""


class CreatingToken(Model):
    principal: Word
    operator: bool = False
    workspace: Annotated[str, Field(max_length=4096)] = ""
    expires_s: Annotated[Annotated[int, Field(ge=1, le=LONGEST_MS // 1000)] | None, Maybe] = None


async def list_tokens(asked: Asked) -> Json:
    query: NextPage = asked.query
    found = asked.state.tokens.list(before=query.before or LAST, count=query.count)
    following = found[-1].token_id if len(found) == query.count else None
    return {"items": [token.as_json() for token in found], "next": following}


async def create_token(asked: Asked) -> Json:
    body: CreatingToken = asked.body
    token, secret = await asked.state.tokens.create(
        principal=body.principal,
        operator=body.operator,
        by=asked.caller.principal,
        workspace=body.workspace,
        lifetime_ms=None if body.expires_s is None else body.expires_s * 1000,
    )
    return {**token.as_json(), "token": secret}


async def revoke_token(asked: Asked) -> Json:
    if asked.state.tokens.by_id(asked.path["id"]) is None:
        raise not_found("token")
    return (await asked.state.tokens.revoke(asked.path["id"], by=asked.caller.principal)).as_json()


ROUTES = (
    get("/tokens", list_tokens, name="list_tokens", says="Tokens, the newest first; never the credentials.",
        model=Listed[TokenFacts], query=NextPage),
    change("/tokens", create_token, name="create_token", says="Make a token; it is shown only once.", model=NewToken,
           body=CreatingToken),
    change("/tokens/{id}/revoke", revoke_token, name="revoke_token",
           says="Revoke a token, from the next request on.", model=TokenFacts),
)  # fmt: skip
