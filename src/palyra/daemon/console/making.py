"""How the console's routes are written: a page to look at, or a form that does an operator's act and leads on.

A form's route takes the very model and function of the API's route, so a page can do nothing that the API cannot, and
nothing is checked twice or once too little. Not here: what pages show.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.responses import RedirectResponse, Response

from palyra.canon import Json
from palyra.daemon.console.rendering import link
from palyra.daemon.operators.answering import Act
from palyra.daemon.routes import FORM_TYPE, MULTIPART_TYPE, Answer, Asked, Handler, Model, Route, Who

HTML = "text/html"
SEE_OTHER = 303


class Visit(Model):
    """A page without questions: what it may be told to say."""

    said: str = ""


def page(path: str, handler: Handler, *, name: str, says: str, query: type[Model] = Visit) -> Route:
    return Route(
        method="GET",
        path=f"/console{path}",
        name=f"page_{name}",
        who=Who.OPERATOR,
        handler=handler,
        summary=says,
        answers={200: Answer(meaning="The page.", media_type=HTML)},
        query=query,
        page=True,
    )


def form(path: str, handler: Handler, *, name: str, says: str, body: Any = None) -> Route:
    return Route(
        method="POST",
        path=f"/console{path}",
        name=f"form_{name}",
        who=Who.OPERATOR,
        handler=handler,
        summary=says,
        answers={200: Answer(meaning="The page.", media_type=HTML), SEE_OTHER: Answer(meaning="Done; look there.")},
        body=body,
        accepts=FORM_TYPE,
        page=True,
    )


def upload(path: str, handler: Handler, *, name: str, says: str, body: Any, max_bytes: int) -> Route:
    """A form that brings a file."""
    made = form(path, handler, name=name, says=says, body=body)
    return replace(made, accepts=MULTIPART_TYPE, max_body_bytes=max_bytes)


Leads = Callable[[Asked, Json], str]


def then(act: Act, leads: Leads) -> Handler:
    """Do it, then look: a page that is loaded again does nothing twice."""

    async def handler(asked: Asked) -> Response:
        return RedirectResponse(leads(asked, await act(asked)), status_code=SEE_OTHER)

    return handler


def to(*parts: str, said: str) -> Leads:
    return lambda asked, done: link(*parts, said=said)


def to_the(noun: str, name: str, *, said: str) -> Leads:
    """To the page of the thing that the path names."""
    return lambda asked, done: link(noun, asked.path[name], said=said)
