"""The words of the HTTP door: a route, who may use it, what a handler is asked and how it refuses.

Everything about a route stands in one frozen value: the application, the OpenAPI document, the reference page and the
test of every route with every kind of credential are made from the same table (daemon/table.py).

Rules: a credential is checked before a byte of the body is read; a handler gets values that are valid already; it
raises `Refused` (or the engine's `Rejected`) and never makes an error answer by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.daemon.auth import Caller
    from palyra.daemon.state import State

JSON_TYPE = "application/json"
FORM_TYPE = "application/x-www-form-urlencoded"
MULTIPART_TYPE = "multipart/form-data"
FORM_TYPES = frozenset({FORM_TYPE, MULTIPART_TYPE})
MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})


class Who(StrEnum):
    """What a route demands of whoever asks."""

    ANYBODY = "anybody"
    """No credential; nothing is told that is worth one."""
    AGENT = "agent"
    """An agent's token, or an operator."""
    OPERATOR = "operator"
    """An operator's token, the socket's owner, or a session of the console; a session needs its CSRF token to change
    anything."""


class Model(BaseModel):
    """A body or a query: strict types, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class AnswerModel(BaseModel):
    """What is answered; a schema alone: answers are written by protocol/wire, not checked again on their way out."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One documented answer. `model`: a pydantic model, any type pydantic can describe, or None without a body."""

    meaning: str
    model: Any = None
    media_type: str = JSON_TYPE


@dataclass(frozen=True, slots=True)
class Asked:
    """What a handler gets: valid values, and who asks."""

    state: State
    caller: Caller
    request: Request
    path: Mapping[str, str]
    query: Any
    body: Any
    raw: bytes = b""
    """The body as it came."""


Handler = Callable[[Asked], Awaitable[Response]]
Unreadable = Callable[["State", "Caller", bytes], Awaitable[None]]
"""Told of a body that is not JSON: bytes that do not parse never become a call, and are recorded all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    method: str
    path: str
    """With `{name}` for one segment."""
    name: str
    who: Who
    handler: Handler
    summary: str
    answers: Mapping[int, Answer]
    """By status; what every route may answer (401, 403, 413 …) is added by daemon/openapi."""
    body: Any = None
    """What pydantic checks the body against: a model or any type it can describe. None: no body is read, except where
    `accepts` says that it comes as it is."""
    query: type[Model] | None = None
    max_body_bytes: int | None = None
    """None: the configuration's."""
    streamed_body: bool = False
    """The handler reads the body itself, as it comes."""
    unreadable: Unreadable | None = None
    page: bool = False
    """HTML for people: not in the OpenAPI document, and who has not logged in is led to the login page."""
    accepts: str = JSON_TYPE
    """The body's media type. A form's fields are checked against `body` as words, and the file that one brings is
    `Asked.raw`; anything that is neither JSON nor a form is handed over as it came (`Asked.raw`)."""
    tags: tuple[str, ...] = ()
    examples: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mutates(self) -> bool:
        return self.method in MUTATING


class Refused(Exception):
    """An answer with the error shape: `{"error": {"code", "message", "hint", "fields"}}`."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        hint: str | None = None,
        *,
        fields: tuple[tuple[str, str], ...] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.fields = fields
        self.headers = dict(headers or {})

    def response(self) -> Response:
        error = {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "fields": [{"path": path, "message": text} for path, text in self.fields],
        }
        return json_response({"error": error}, status=self.status, headers=self.headers)


def not_found(what: str) -> Refused:
    """One answer for what is not there and for what is somebody else's."""
    return Refused(404, "NOT_FOUND", f"There is no such {what}.", "Check the id; those of others are not shown.")


HEADS = "palyra.heads"
WHOLE_BODY = "palyra.body"
"""Where a request's scope has its body, if that came with its head."""
BEHIND = "palyra.behind"
"""Where the scope of a stream tells how many bytes are held for its reader besides those that are written."""


def heads_of(request: Request) -> Mapping[str, str]:
    """A request's headers by their names in lower case, of two the first: Starlette's looks through all for each."""
    heads: dict[str, str] | None = request.scope.get(HEADS)
    if heads is None:
        heads = request.scope[HEADS] = heads_in(request.scope["headers"])
    return heads


def heads_in(sent: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(sent)}


HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
"""Of every answer that does not say otherwise."""


HEADERS_SAID = [(b"content-type", JSON_TYPE.encode()), *HEADERS]


class Said(Response):
    """JSON that is written already, with all of its headers: an answer to every call is made so."""

    media_type = JSON_TYPE

    def __init__(self, body: bytes, *, status: int = 200) -> None:
        # Starlette's own finds the same out step by step.
        self.status_code, self.background, self.body = status, None, body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), *HEADERS_SAID]


def json_response(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status_code=status, headers=headers, media_type=JSON_TYPE)
