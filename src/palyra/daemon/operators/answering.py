"""How operators' routes are written: one function an act, which answers JSON; the same function serves page and API.

Rules: an act reads only valid values (`Asked`), changes things through the functions of wiring that the command line
uses too, and names who did it by the caller's principal. Not here: the acts (one file a noun), pages (daemon/console).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BeforeValidator, Field
from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.routes import Answer, AnswerModel, Asked, Handler, Model, Refused, Route, Who, json_response
from palyra.errors import ConfigError
from palyra.model.record import Owner
from palyra.wiring.call_desk import CallDesk
from palyra.wiring.embedded import Installation
from palyra.wiring.journal_desk import JournalDesk

T = TypeVar("T")
Act = Callable[[Asked], Awaitable[Json]]
PREFIX = "/console/v1"
MAX_LISTED = 200


def _none_for_blank(value: Any) -> Any:
    """A form sends every field it has; an empty one was left out."""
    return None if value == "" else value


Maybe = BeforeValidator(_none_for_blank)
Count = Annotated[int, Field(ge=1, le=MAX_LISTED)]
Place = Annotated[int, Field(ge=0, le=(1 << 53) - 1)]
Cursor = Annotated[Annotated[str, Field(max_length=64)] | None, Maybe]
Word = Annotated[str, Field(max_length=512)]
Line = Annotated[str, Field(max_length=2000)]


class Listed(AnswerModel, Generic[T]):
    """A page of a list; `next` is the cursor of the one after it."""

    items: list[T]
    next: str | int | None


class NextPage(Model):
    before: Cursor = None
    count: Count = 50


def installed(asked: Asked) -> Installation:
    return asked.state.installation


def journal_of(asked: Asked) -> JournalDesk:
    installation = installed(asked)

    def is_alive(owner: Owner) -> bool:
        return installation.ports.owners.is_alive(owner)

    return JournalDesk(installation.writer, is_alive=is_alive)


def calls_of(asked: Asked) -> CallDesk:
    return CallDesk(installed(asked).writer, journal_of(asked))


def unusable(error: ConfigError, *, code: str = "BAD_ARGUMENTS") -> Refused:
    """What was sent cannot be used; the sentence names the line."""
    return Refused(422, code, error.detail, error.hint)


def told(act: Act) -> Handler:
    async def handler(asked: Asked) -> Response:
        return json_response(await act(asked))

    return handler


def get(path: str, act: Act, *, name: str, says: str, model: Any, query: type[Model] | None = None) -> Route:
    return Route(
        method="GET",
        path=PREFIX + path,
        name=name,
        who=Who.OPERATOR,
        handler=told(act),
        summary=says,
        answers={200: Answer(meaning="As it stands now.", model=model)},
        query=query,
        tags=(path.split("/")[1],),
    )


def change(path: str, act: Act, *, name: str, says: str, model: Any, body: Any = None, method: str = "POST") -> Route:
    """Without a body none is read; a session sends its CSRF token in the header."""
    return Route(
        method=method,
        path=PREFIX + path,
        name=name,
        who=Who.OPERATOR,
        handler=told(act),
        summary=says,
        answers={200: Answer(meaning="Done, and in the journal.", model=model)},
        body=body,
        tags=(path.split("/")[1],),
    )
