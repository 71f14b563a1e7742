"""MCP over streamable HTTP: an ASGI application that the daemon mounts at /mcp.

Rules: who asks is the daemon's to say (`identify`: host, origin and bearer token, checked before a byte of the body is
read, and once more behind a body that took its time); a session of the handshake era belongs to the credential that
opened it, and each principal has its share of them. Calls of one credential in one workspace share a run, which ends
when nobody used it for a while; a client that wants runs of its own names them (`palyra/session` in `_meta`). An
agent's token answers no questions: see callers.

Not here: the sockets (daemon), the tokens (tokens/), a body's bounds (mcp/bodies).
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from palyra.engine.asking import BLINK_US
from palyra.engine.runs import Run
from palyra.errors import Reason, Rejected
from palyra.mcp.bodies import Bounds, Unread, read_whole, refusal
from palyra.mcp.callers import Caller, Context, Lapse, begin_run
from palyra.mcp.calls import Begin
from palyra.mcp.server import journal_refused, make_server
from palyra.mcp.shares import MAX_SESSIONS_EACH, SESSION_HEADER, Open, Shares, may_open
from palyra.mcp.strict_messages import NotUnderstood, check_message
from palyra.values import dataclass
from palyra.wiring.embedded import Installation
from palyra.wiring.places import resolve_workspace

IDLE_MS = 30 * 60_000
MAX_RUNS_EACH = 64
META_SESSION = "palyra/session"
WORKSPACE_HEADER = "palyra-workspace"
IDENTITY = "palyra.identity"
NOT_FOUND = 404
_MAX_LABEL = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a credential proves."""

    principal: str
    credential_id: str
    workspace: str = ""
    """The folder it is bound to; empty: the client names one."""
    lapse: Lapse | None = None
    """Why it no longer holds; looked at again when a call of it waited."""


Identify = Callable[[Request], Identity | Response]
Refuse = Callable[[NotUnderstood, Identity, Headers], Awaitable[Response]]


@dataclass(slots=True)
class _Used:
    run: Run
    last_unix_ms: int


class HttpCallers:
    """Runs by credential, workspace and the client's own word for its session."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._runs: dict[str, OrderedDict[tuple[str, str, str], _Used]] = {}
        """By credential: nobody pushes out a run of somebody else's."""
        self._ending: set[asyncio.Task[None]] = set()

    def of(self, ctx: Context) -> Caller:
        request = ctx.request
        identity = request.scope.get(IDENTITY) if request is not None else None
        if request is None or not isinstance(identity, Identity):
            raise MCPError(code=types.INTERNAL_ERROR, message="The caller is not authenticated.")
        label = (ctx.meta or {}).get(META_SESSION) or request.headers.get("mcp-session-id") or ""
        return Caller(run=self.run_of(identity, request.headers, label), lapse=identity.lapse)

    def run_of(self, identity: Identity, headers: Headers, label: object) -> Run:
        if not isinstance(label, str) or len(label) > _MAX_LABEL:
            raise MCPError(code=types.INVALID_PARAMS, message=f"{META_SESSION} is a short string.")
        folder = _workspace(identity, headers.get(WORKSPACE_HEADER, ""), self._configured)
        return self._run(identity, folder, label)

    async def answer(self, refused: NotUnderstood, identity: Identity, headers: Headers) -> Response:
        """To a body that is no message; a call among them has its journal entry."""
        try:
            label = headers.get(SESSION_HEADER, "")
            run = self.run_of(identity, headers, label) if refused.is_call else None
        except MCPError as error:
            said = types.JSONRPCError(jsonrpc="2.0", id=refused.request_id, error=error.error)
        else:
            said = refused.answer() if run is None else await journal_refused(self._installation, run, refused)
        return _error(said)

    @property
    def _configured(self) -> str:
        return self._installation.config.tool_call.process_runner.workspace_root

    def _run(self, identity: Identity, folder: str, label: str) -> Run:
        now = self._installation.ports.clock.now_unix_ms()
        for credential in tuple(self._runs):
            self._end_idle(credential, now)
        mine = self._runs.setdefault(identity.credential_id, OrderedDict())
        key = (identity.principal, folder, label)
        used = mine.pop(key, None)
        if used is None:
            if len(mine) >= MAX_RUNS_EACH:
                self._end(mine.popitem(last=False)[1])
            run = begin_run(self._installation, principal=identity.principal, workspace=folder, channel="http")
            used = _Used(run, now)
        mine[key] = replace(used, last_unix_ms=now)
        return used.run

    def _end_idle(self, credential: str, now: int) -> None:
        """The longest unused stand first. One whose call still goes on is in use, however long ago it was asked for."""
        runs = self._runs[credential]
        for key, used in tuple(runs.items()):
            if now - used.last_unix_ms < IDLE_MS:
                break
            if not self._installation.engine.is_busy(used.run):
                self._end(runs.pop(key))
        if not runs:
            del self._runs[credential]

    def _end(self, used: _Used) -> None:
        ending = asyncio.create_task(self._installation.engine.end_run(used.run))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


def _workspace(identity: Identity, named: str, configured: str) -> str:
    if not named:
        return identity.workspace or configured
    try:
        folder = _resolved(named)
        bound = identity.workspace
    except Rejected as refusal:
        data = {"reason": refusal.reason.value, "hint": refusal.hint}
        raise MCPError(code=types.INVALID_PARAMS, message=refusal.detail, data=data) from None
    if bound and folder != bound and not folder.startswith(bound.rstrip("/") + "/"):
        data = {"reason": "CAPABILITY_DENIED", "hint": f"Leave the header {WORKSPACE_HEADER} out."}
        raise MCPError(code=types.INVALID_PARAMS, message="This credential is bound to another workspace.", data=data)
    return folder


def _resolved(named: str) -> str:
    if not os.path.isabs(named):  # it would be a folder below the daemon's own, which no client means
        hint = "Give a path that starts with /."
        raise Rejected(Reason.BAD_ARGUMENTS, "The workspace must be an absolute path.", hint)
    return resolve_workspace(named)


class HttpApp:
    """`running()` must be entered before the first request, and left after the last."""

    def __init__(
        self, server: Server[Any], identify: Identify, bounds: Bounds | None = None, *, refuse: Refuse | None = None
    ) -> None:
        self._refuse = refuse or _refuse
        self._identify = identify
        self._bounds = bounds or Bounds()
        self._manager = StreamableHTTPSessionManager(
            app=server,
            # Host and Origin are the daemon's: `identify` checked them.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=self._bounds.max_bytes,
            session_idle_timeout=IDLE_MS / 1000,
        )
        clock = asyncio.get_running_loop().time
        self._shares = Shares(now_s=clock, idle_s=IDLE_MS / 1000, most=MAX_SESSIONS_EACH)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            who, whole = await self._let_in(scope, receive)
        except Unread as unread:
            await unread.answer(scope, receive, send)
            return
        if scope["method"] == "POST":
            first = await whole()
            refused = check_message(first.get("body", b""))
            if refused is not None:
                answer = await self._refuse(refused, who, Headers(scope=scope))
                await answer(scope, receive, send)
                return
            whole = _behind(first, whole)
        await self._shared(who, known(scope, who, who.credential_id), whole, send)

    async def _let_in(self, scope: Scope, receive: Receive) -> tuple[Identity, Receive]:
        """Raises Unread. Requests held open half-sent would each be one act more after their token was revoked."""
        clock = asyncio.get_running_loop().time
        who, began_s = self._who(scope, receive), clock()
        whole = await read_whole(scope, receive, self._bounds)
        took_its_time = (clock() - began_s) * 1e6 >= BLINK_US
        return self._who(scope, receive) if took_its_time else who, whole

    def _who(self, scope: Scope, receive: Receive) -> Identity:
        who = self._identify(Request(scope, receive))
        if isinstance(who, Response):
            raise Unread(who)
        return who

    async def _shared(self, who: Identity, scope: Scope, receive: Receive, send: Send) -> None:
        """Within the principal's share of sessions."""
        headers, watched = Headers(scope=scope), _Answered(send)
        if may_open(headers):
            await self._opening(who, scope, receive, watched)
            return
        used = self._shares.use(who.principal, headers.get(SESSION_HEADER, ""))
        try:
            await self._manager.handle_request(scope, receive, watched)
        finally:
            if used is not None:
                ended = watched.status == NOT_FOUND or (scope["method"] == "DELETE" and watched.status < 300)
                self._shares.leave(who.principal, used, ended=ended)

    async def _opening(self, who: Identity, scope: Scope, receive: Receive, watched: _Answered) -> None:
        try:
            oldest = self._shares.begin(who.principal)
        except BlockingIOError:
            await _too_many()(scope, receive, watched)
            return
        try:
            if oldest is not None:
                await self._end_session(who, oldest)
            await self._manager.handle_request(scope, receive, watched)
            if watched.session_id and watched.status < 400:
                self._shares.opened(who.principal, watched.session_id, who.credential_id)
        finally:
            self._shares.settled(who.principal)

    async def _end_session(self, who: Identity, one: Open) -> None:
        """As its client would: a DELETE by the credential that opened it."""
        headers = [(SESSION_HEADER.encode(), one.session_id.encode()), (b"accept", b"application/json")]
        asked: Scope = {"type": "http", "method": "DELETE", "path": "/", "query_string": b"", "headers": headers}
        await self._manager.handle_request(known(asked, who, one.credential_id), _nothing, _unheard)


async def _refuse(refused: NotUnderstood, who: Identity, headers: Headers) -> Response:
    return _error(refused.answer())


def _error(said: types.JSONRPCError) -> Response:
    return Response(said.model_dump_json(), status_code=400, media_type="application/json")


def _behind(first: Message, rest: Receive) -> Receive:
    """What was looked at, once more, and then what follows it."""
    waiting = [first]

    async def receive() -> Message:
        return waiting.pop() if waiting else await rest()

    return receive


def known(scope: Scope, who: Identity, credential_id: str) -> Scope:
    """The SDK ties sessions of the handshake era to this user; the secret itself stays with the daemon."""
    token = AccessToken(token=credential_id, client_id=credential_id, scopes=[], subject=who.principal)
    return {**scope, IDENTITY: who, "user": AuthenticatedUser(token)}


class _Answered:
    """What is sent, and what its first line said."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.session_id = ""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.session_id = Headers(raw=list(message.get("headers", ()))).get(SESSION_HEADER, "")
        await self._send(message)


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(message: Message) -> None:
    return


def _too_many() -> Response:
    hint = "End one of them, or try again."
    return refusal(429, "BUSY", "Too many sessions of this principal are in use.", hint, headers={"Retry-After": "5"})


def http_app(
    installation: Installation, identify: Identify, *, begin: Begin | None = None, bounds: Bounds | None = None
) -> HttpApp:
    callers = HttpCallers(installation)
    return HttpApp(make_server(installation, callers, begin=begin), identify, bounds, refuse=callers.answer)
