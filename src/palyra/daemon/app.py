"""The application, made from the table: routing, the door's keeper, bodies, errors and the headers of every answer.

Order of a request: 1 Host, Origin, credential, access (daemon/auth) · 2 query, body (daemon/reading) · 3 a session's
CSRF token, before the body where it comes in a header · 4 the handler, once the credential of a body that took its time
was looked at again. What goes wrong becomes the one error shape;
nothing internal is told: it goes to the log.

Not here: what routes do (one file a noun), sockets and time-outs of connections (daemon/server, daemon/wire_guard).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Receive, Scope, Send

from palyra.daemon.auth import CALLER, NOBODY, Caller, Proof, check_access, check_csrf
from palyra.daemon.bodies import Share
from palyra.daemon.console.errors import error_page
from palyra.daemon.holding import Held
from palyra.daemon.reading import checked, checked_query, parse_form, parse_json, read_body
from palyra.daemon.routes import (
    FORM_TYPE,
    FORM_TYPES,
    HEADERS,
    JSON_TYPE,
    MULTIPART_TYPE,
    Asked,
    Refused,
    Route,
    Said,
    Who,
    heads_of,
)
from palyra.daemon.sessions import CSRF_FIELD, CSRF_HEADER, Session
from palyra.daemon.sse import MEDIA_TYPE
from palyra.daemon.state import State
from palyra.daemon.upload import read_upload
from palyra.engine.asking import BLINK_US
from palyra.errors import Reason, Rejected, StateError
from palyra.policy.scan import PolicyError

log = logging.getLogger("palyra.daemon")

STATUS_OF = {
    Reason.MALFORMED: 400,
    Reason.TOO_LARGE: 413,
    Reason.BAD_ARGUMENTS: 422,
    Reason.CAPABILITY_DENIED: 403,
    Reason.BUSY: 429,
    Reason.JOURNAL_DOWN: 503,
}
"""Of a refusal that is no outcome of a call; any other reason is 409."""
SLOWEST_BYTES_S = 512 * 1024
LOGIN_PAGE = "/console/login"


class Endpoint:
    """One route, checked and answered."""

    def __init__(self, route: Route, state: State) -> None:
        self.route = route
        self._state = state
        self._body = TypeAdapter(route.body) if route.body is not None else None
        self._query = TypeAdapter(route.query) if route.query is not None else None
        self._max_bytes = route.max_body_bytes or state.settings.max_body_bytes
        # Where much may come, time goes with it.
        self._timeout_s = max(state.settings.body_timeout_ms / 1000, self._max_bytes / SLOWEST_BYTES_S)

    def count(self, response: Response) -> None:
        self._state.metrics.requested(self.route.name, response.status_code)

    def held(self, response: Response) -> ASGIApp:
        return Held(response, self._state) if response.media_type == MEDIA_TYPE else response

    def nonce(self) -> str:
        return self._state.ids.random_bytes(16).hex()

    async def answer(self, request: Request) -> Response:
        route, state = self.route, self._state
        caller = identify(request, state, anybody=route.who is Who.ANYBODY)  # 1
        request.scope[CALLER] = caller
        if route.page and route.who is not Who.ANYBODY and caller.proof is Proof.NONE and not route.mutates:
            return RedirectResponse(login_link(request), status_code=303)
        check_access(caller, route.who)
        in_header = heads_of(request).get(CSRF_HEADER.lower())
        waits_for_form = route.accepts in FORM_TYPES and in_header is None
        watched = caller.session if route.mutates and route.who is not Who.ANYBODY else None
        if watched is not None and not waits_for_form:
            check_csrf(watched, in_header or "")  # 3
        query = checked_query(self._query, request) if self._query is not None else None  # 2
        began_us = state.clock.monotonic_us()
        with state.bodies.hold(caller) as share:
            raw, body = await self._read(request, caller, share, watched if waits_for_form else None)
            if state.clock.monotonic_us() - began_us >= BLINK_US and route.who is not Who.ANYBODY:
                # Requests held open half-sent would each be one act more after their token was revoked.
                caller = identify(request, state)
                check_access(caller, route.who)
            return await route.handler(Asked(state, caller, request, request.path_params, query, body, raw))  # 4

    async def _read(self, request: Request, caller: Caller, share: Share, watched: Session | None) -> tuple[bytes, Any]:
        """`watched`: a session whose CSRF token comes in the form itself."""
        route = self.route
        if route.streamed_body or (self._body is None and route.accepts == JSON_TYPE):
            return b"", None
        if route.accepts == MULTIPART_TYPE:
            fields, raw = await read_upload(
                request,
                max_bytes=self._max_bytes,
                timeout_s=self._timeout_s,
                check_csrf=lambda fields: self._checked_form(fields, watched),
            )
            return raw, checked(self._body, fields, words=True) if self._body is not None else fields
        raw = await read_body(request, share, max_bytes=self._max_bytes, timeout_s=self._timeout_s)
        if route.accepts == FORM_TYPE:
            fields = parse_form(raw)
            self._checked_form(fields, watched)
            return raw, checked(self._body, fields, words=True) if self._body is not None else fields
        if self._body is None:
            return raw, None
        return raw, checked(self._body, await self._parsed(caller, raw))

    @staticmethod
    def _checked_form(fields: dict[str, str], watched: Session | None) -> None:
        given = fields.pop(CSRF_FIELD, "")
        if watched is not None:
            check_csrf(watched, given)  # 3

    async def _parsed(self, caller: Caller, raw: bytes) -> Any:
        try:
            return parse_json(raw)
        except Refused:
            if self.route.unreadable is not None:
                await self.route.unreadable(self._state, caller, raw)
            raise


def login_link(request: Request) -> str:
    """The login page, which leads on to where somebody wanted to go."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"{LOGIN_PAGE}?{urlencode({'next': wanted})}" if wanted != "/console" else LOGIN_PAGE


def identify(request: Request, state: State, *, anybody: bool = False) -> Caller:
    """Also for what is mounted beside the table. `anybody`: a credential is not needed, so a wrong one is as none."""
    peer_uid: int | None = request.scope.get("state", {}).get("peer_uid")
    headers = heads_of(request)
    state.guard.check_place(headers, peer_uid=peer_uid)
    try:
        return state.guard.identify(headers, lambda: request.cookies, peer_uid=peer_uid)
    except Refused as wrong:
        if anybody:
            return NOBODY
        raise slowed(wrong, request, state) from None


def slowed(wrong: Refused, request: Request, state: State) -> Refused:
    """A wrong credential counts; past the limit the answer is 429. A right one is never barred: who shares an address
    with somebody guessing must not be locked out."""
    place = place_of(request)
    if state.failures.is_barred(place):
        return Refused(
            429,
            "RATE_LIMITED",
            "Too many wrong credentials from here.",
            "Wait a minute.",
            headers={"Retry-After": "60"},
        )
    state.failures.note(place)
    return wrong


def place_of(request: Request) -> str:
    return request.client.host if request.client is not None else "socket"


class Dispatch:
    """One path: its methods, the error shape, and the headers of every answer."""

    def __init__(self, endpoints: Mapping[str, Endpoint]) -> None:
        self._endpoints = dict(endpoints)
        if "GET" in self._endpoints:
            self._endpoints.setdefault("HEAD", self._endpoints["GET"])
        self._allow = ", ".join(sorted(self._endpoints))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        endpoint = self._endpoints.get(scope["method"])
        response = await guarded(endpoint.answer if endpoint else self._wrong_method, request)
        if endpoint is not None:
            endpoint.count(response)
            if endpoint.route.page:
                response = error_page(response, nonce=endpoint.nonce())
        answer = endpoint.held(finished(response)) if endpoint is not None else finished(response)
        await answer(scope, receive, send)

    async def _wrong_method(self, request: Request) -> Response:
        message = f"{request.method} is not allowed on this path."
        raise Refused(405, "METHOD_NOT_ALLOWED", message, f"Use {self._allow}.", headers={"Allow": self._allow})


async def guarded(answer: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    """Every way a request can go wrong, as one shape."""
    try:
        return await answer(request)
    except Refused as refusal:
        return refusal.response()
    except Rejected as error:
        status = STATUS_OF.get(error.reason, 409)
        return Refused(status, error.reason, error.detail, error.hint, fields=error.fields).response()
    except StateError as error:
        return Refused(503, Reason.JOURNAL_DOWN, error.detail, error.hint).response()
    except PolicyError as error:
        log.error("%s %s: the policies cannot be read: %s", request.method, request.url.path, error.detail)
        message = "The policy files cannot be read, so nothing runs."
        return Refused(503, Reason.POLICY_ERROR, message, "palyra policy check names the file.").response()
    except HTTPException as error:
        return Refused(error.status_code, "MALFORMED", str(error.detail), None).response()
    except Exception:
        log.exception("%s %s failed", request.method, request.url.path)
        return Refused(
            500, Reason.INTERNAL, "Palyra failed while handling this request; its log says where."
        ).response()


def finished(response: Response) -> Response:
    if isinstance(response, Said):
        return response
    names = {name for name, _ in response.raw_headers}
    response.raw_headers.extend(pair for pair in HEADERS if pair[0] not in names)
    return response


class NotFound:
    """A path that no route has; nobody is told more. Who reads HTML among the console's pages is told in HTML."""

    def __init__(self, nonce: Callable[[], str]) -> None:
        self._nonce = nonce

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = Refused(404, "NOT_FOUND", "There is no such path.", "GET /openapi.json lists them.").response()
        path: str = scope["path"]
        if path.startswith("/console/") and not path.startswith("/console/v1/"):
            answer = Refused(404, "NOT_FOUND", "There is no such page.", "The menu lists them all.").response()
            answer = error_page(answer, nonce=self._nonce())
        await finished(answer)(scope, receive, send)


class Front:
    """What the server calls. A path that is one route's word for word goes there at once: Starlette's layers would try
    every pattern, and catch once more what is caught behind the route."""

    def __init__(self, app: ASGIApp, exact: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._exact = exact

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_request = scope["type"] == "http" and not scope.get("root_path")
        await (self._exact.get(scope["path"], self._app) if is_request else self._app)(scope, receive, send)


def make_app(state: State, routes: Sequence[Route], mounts: Mapping[str, ASGIApp] | None = None) -> Front:
    """`mounts`: applications of other doors (MCP at /mcp), given by whoever joins the doors."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for route in routes:
        methods = by_path.setdefault(route.path, {})
        if route.method in methods:
            raise ValueError(f"two routes for {route.method} {route.path}")
        methods[route.method] = Endpoint(route, state)
    dispatches = {path: Dispatch(methods) for path, methods in by_path.items()}
    paths: list[BaseRoute] = [Path(path, dispatch) for path, dispatch in dispatches.items()]
    for path, mounted in (mounts or {}).items():  # a mount alone would not have the path itself
        paths += [Path(path, mounted), Mount(path, mounted)]
    app = Starlette(routes=paths)
    app.router.redirect_slashes = False
    app.router.default = NotFound(lambda: state.ids.random_bytes(16).hex())
    return Front(app, {path: dispatch for path, dispatch in dispatches.items() if "{" not in path})
