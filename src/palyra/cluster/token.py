"""Dispatch tokens: what a daemon allows one node to run, once, until a moment, and what the node says came of it.

Rules: both are DSSE envelopes over canonical JSON; a token names its dispatch, its fencing epoch, its node, the plan
and the workspace by digest, the policies' number and its end; a statement repeats the first five, so that an answer
fits exactly one token. The cluster's key signs tokens, a node's own key its statements. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import orjson

from palyra.canon import Json, canonical_strict
from palyra.errors import TrustError
from palyra.signing import PublicKey, SigningKey, dsse_sign, dsse_verify

TOKEN_TYPE = "application/vnd.palyra.dispatch+json"
STATEMENT_TYPE = "application/vnd.palyra.execution+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    dispatch_id: str
    epoch: int
    """Grows when the same dispatch is sent anew; answers to earlier ones are refused."""
    node_id: str
    node_start: str
    """Which start of the node: one that begins anew has forgotten what it had."""
    plan_sha256: str
    workspace_sha256: str
    policy_number: int
    """Of the policies that decided; a node that has seen a newer number refuses."""
    expires_unix_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a node signs about one execution."""

    dispatch_id: str
    epoch: int
    node_id: str
    plan_sha256: str
    workspace_sha256: str
    execution_sha256: str
    changes_sha256: str
    stdout_sha256: str
    stderr_sha256: str


def sign_token(dispatch: Dispatch, key: SigningKey) -> dict[str, Json]:
    return dsse_sign(key, TOKEN_TYPE, canonical_strict(_told(dispatch)))


def open_token(envelope: object, key: PublicKey, *, node_id: str, node_start: str, now_unix_ms: int) -> Dispatch:
    """`TrustError` for one that another signed, that is another node's or an earlier start's, or whose time is over."""
    dispatch = Dispatch(**_opened(envelope, key, TOKEN_TYPE, Dispatch))
    if dispatch.node_id != node_id:
        raise TrustError("The dispatch is for another node.")
    if dispatch.node_start != node_start:
        raise TrustError("The dispatch was made before this node was started.")
    if now_unix_ms >= dispatch.expires_unix_ms:
        raise TrustError("The dispatch has expired.")
    return dispatch


def sign_statement(statement: Statement, key: SigningKey) -> dict[str, Json]:
    return dsse_sign(key, STATEMENT_TYPE, canonical_strict(_told(statement)))


def open_statement(envelope: object, key: PublicKey, *, of: Dispatch) -> Statement:
    """`TrustError` for an answer to anything but this very dispatch: an earlier epoch's comes too late."""
    statement = Statement(**_opened(envelope, key, STATEMENT_TYPE, Statement))
    if (statement.dispatch_id, statement.node_id) != (of.dispatch_id, of.node_id):
        raise TrustError("The answer belongs to another dispatch.")
    if statement.epoch != of.epoch:
        raise TrustError(f"The answer is for epoch {statement.epoch}; the current epoch is {of.epoch}.")
    if (statement.plan_sha256, statement.workspace_sha256) != (of.plan_sha256, of.workspace_sha256):
        raise TrustError("The answer is about another plan or workspace.")
    return statement


def _opened(envelope: object, key: PublicKey, kind: str, shape: type[Any]) -> Mapping[str, Any]:
    payload_type, payload = dsse_verify(envelope, key)
    if payload_type != kind:
        raise TrustError("The envelope holds an unexpected payload.")
    try:
        value = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise TrustError("The envelope does not hold JSON.") from error
    if not isinstance(value, dict) or {name: type(item) for name, item in value.items()} != _KINDS[shape]:
        raise TrustError("The envelope does not have exactly its fields.")
    return value


def _told(value: Dispatch | Statement) -> dict[str, Json]:
    return {name: getattr(value, name) for name in _KINDS[type(value)]}


_TYPES = {"int": int, "str": str}
_KINDS: Mapping[type[Any], Mapping[str, type]] = {
    shape: {field.name: _TYPES[str(field.type)] for field in fields(shape)} for shape in (Dispatch, Statement)
}
