"""`/console/v1/secrets`: names, scopes and hosts. A value goes in and never comes out again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palyra.canon import Json
from palyra.daemon.operators.answering import Listed, Word, change, get, installed, unusable
from palyra.daemon.routes import AnswerModel, Asked, Model, not_found
from palyra.errors import ConfigError
from palyra.model.credential import Binding, Scope

MAX_VALUE_CHARS = 64 * 1024


class SecretScope(AnswerModel):
    principals: list[str]
    tools: list[str]


class SecretBinding(AnswerModel):
    host: str
    header: str
    prefix: str


class Secret(AnswerModel):
    name: str
    version: int
    created_unix_ms: int
    scope: SecretScope
    credential: SecretBinding | None


class Deleted(AnswerModel):
    name: str
    deleted: bool


class SettingSecret(Model):
    name: Annotated[str, Field(min_length=1, max_length=128)]
    value: Annotated[str, Field(min_length=1, max_length=MAX_VALUE_CHARS)] = Field(repr=False)
    host: Word = ""
    """Add it to requests to this host, and to no other; empty: to none, or as the version before."""
    header: Word = "Authorization"
    prefix: Annotated[str, Field(max_length=64)] = ""
    principals: Word = ""
    """Who may use it: patterns apart by spaces; empty: everyone."""
    tools: Word = ""


async def list_secrets(asked: Asked) -> Json:
    return {"items": [facts.as_json() for facts in installed(asked).vault.list()], "next": None}


async def set_secret(asked: Asked) -> Json:
    body: SettingSecret = asked.body
    binding = Binding(host=body.host, header=body.header, prefix=body.prefix) if body.host else None
    patterns = (tuple(body.principals.split()), tuple(body.tools.split()))
    scope = Scope(principals=patterns[0], tools=patterns[1]) if any(patterns) else None
    try:
        value = body.value.encode()
        by = asked.caller.principal
        facts = await installed(asked).vault.set(body.name, value, scope=scope, binding=binding, actor=by)
    except UnicodeEncodeError:
        raise unusable(ConfigError("The value is not Unicode.", "Send it as UTF-8.")) from None
    except ConfigError as error:
        raise unusable(error) from error
    return facts.as_json()


async def delete_secret(asked: Asked) -> Json:
    name = asked.path["name"]
    if not await installed(asked).vault.delete(name, actor=asked.caller.principal):
        raise not_found("secret")
    return {"name": name, "deleted": True}


ROUTES = (
    get("/secrets", list_secrets, name="list_secrets", says="Names, versions, scopes and hosts; never values.",
        model=Listed[Secret]),
    change("/secrets", set_secret, name="set_secret", says="Store a secret, or a new version of one.", model=Secret,
           body=SettingSecret),
    change("/secrets/{name}", delete_secret, name="delete_secret", says="Delete a secret from the vault.",
           model=Deleted, method="DELETE"),
)  # fmt: skip
