"""`/console/login`, `/console/logout`, and the console's own files. The only pages without a login.

Rules: a session's id is made at login and an older one that came along is ended, so none can be planted (fixation);
the cookie is HttpOnly and SameSite=Strict, and Secure where the connection is encrypted. A one-time link is used up by
the form's POST, not by looking at it: mail scanners and previews look. Wrong credentials are counted by place.
"""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from palyra.daemon.app import slowed
from palyra.daemon.auth import unauthenticated
from palyra.daemon.console.making import HTML, SEE_OTHER, form
from palyra.daemon.console.rendering import SAID, asset, render_page
from palyra.daemon.routes import FORM_TYPE, Answer, Asked, Handler, Model, Route, Who, not_found
from palyra.daemon.sessions import COOKIE

HOME = "/console"
MAX_LOGIN_BYTES = 8192
"""Of a form that anybody may send."""
_ASSETS = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}
_OURS = re.compile(r"/console(/[A-Za-z0-9._~%/-]*)?(\?[A-Za-z0-9._~%&=+-]*)?")
WRONG = "This is not an operator's token, or the link no longer works."
Secret = Annotated[str, Field(max_length=256)]


class Arriving(Model):
    code: Secret = ""
    next: Annotated[str, Field(max_length=2000)] = ""
    said: str = ""


class LoggingIn(Model):
    token: Secret = ""
    code: Secret = ""
    next: Annotated[str, Field(max_length=2000)] = ""


async def login_page(asked: Asked) -> Response:
    query: Arriving = asked.query
    if asked.caller.session is not None and not query.code:
        return RedirectResponse(onward(query.next), status_code=SEE_OTHER)
    return _gate(asked, code=query.code, next=query.next, said=SAID.get(query.said, ""))


async def log_in(asked: Asked) -> Response:
    body: LoggingIn = asked.body
    found = _found(asked, body)
    if found is None:
        wrong = slowed(unauthenticated(WRONG), asked.request, asked.state)
        return _gate(asked, status=wrong.status, problem=wrong.message, next=body.next)
    state = asked.state
    await state.sessions.end(asked.request.cookies.get(COOKIE, ""))
    secret, session = await state.sessions.open(*found)
    response = RedirectResponse(onward(body.next), status_code=SEE_OTHER)
    response.set_cookie(
        COOKIE,
        secret,
        max_age=(session.expires_unix_ms - session.created_unix_ms) // 1000,
        path=HOME,
        secure=is_encrypted(asked.request),
        httponly=True,
        samesite="strict",
    )
    return response


def is_encrypted(request: Request) -> bool:
    """Also where a proxy ended the TLS: the browser says with its form which origin it sees."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def _found(asked: Asked, body: LoggingIn) -> tuple[str, str] | None:
    """(whose link or operator's token it is, the token's id)."""
    if body.code:
        return asked.state.sessions.redeem(body.code)
    token = asked.state.tokens.find(body.token.strip())
    return (token.principal, token.token_id) if token is not None and token.operator else None


async def log_out(asked: Asked) -> Response:
    await asked.state.sessions.end(asked.request.cookies.get(COOKIE, ""))
    response = RedirectResponse(f"{HOME}/login?said=logged-out", status_code=SEE_OTHER)
    response.delete_cookie(COOKIE, path=HOME, httponly=True, samesite="strict")
    return response


async def front_door(asked: Asked) -> Response:
    """Who types the address alone means the console."""
    return RedirectResponse(HOME, status_code=SEE_OTHER)


def onward(path: str) -> str:
    """Where a login leads: a page of ours, never elsewhere."""
    parts = urlsplit(path)
    ours = _OURS.fullmatch(path) and not parts.netloc and not parts.scheme and "/../" not in path
    return path if ours and not path.startswith((f"{HOME}/v1", f"{HOME}/login", f"{HOME}/static")) else HOME


def _gate(
    asked: Asked, *, code: str = "", next: str = "", problem: str = "", said: str = "", status: int = 200
) -> Response:
    values = {"code": code, "next": next, "problem": problem, "said": said}
    return render_page("login.html", values, nonce=asked.state.ids.random_bytes(16).hex(), status=status)


async def static_file(asked: Asked) -> Response:
    name = asked.path["name"]
    if name not in _ASSETS:
        raise not_found("file")
    headers = {"Cache-Control": "public, max-age=31536000, immutable", "Cross-Origin-Resource-Policy": "same-origin"}
    return Response(asset(name), media_type=_ASSETS[name], headers=headers)


def _route(method: str, path: str, handler: Handler, name: str, says: str, **more: Any) -> Route:
    shape = {"who": Who.ANYBODY, "answers": {200: Answer(meaning="The page.", media_type=HTML)}, "page": True, **more}
    return Route(method=method, path=HOME + path, handler=handler, name=name, summary=says, **shape)


ROUTES = (
    Route(method="GET", path="/", name="front_door", who=Who.ANYBODY, handler=front_door, page=True,
          summary="Redirects to the console.", answers={SEE_OTHER: Answer(meaning="Look there.")}),
    _route("GET", "/login", login_page, "page_login", "Log in with an operator's token or a one-time link.",
           query=Arriving),
    _route("POST", "/login", log_in, "log_in", "Open a session.", body=LoggingIn, accepts=FORM_TYPE,
           max_body_bytes=MAX_LOGIN_BYTES),
    form("/logout", log_out, name="logout", says="End the session."),
    _route("GET", "/static/{name}", static_file, "console_file", "The console's own files."),
)  # fmt: skip
