"""A daemon to test with: a real home and engine, the application asked in this process, no sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from palyra.config.daemon import DaemonConfig
from palyra.config.load import Home
from palyra.daemon.app import make_app
from palyra.daemon.routes import Route
from palyra.daemon.sessions import COOKIE, CSRF_HEADER
from palyra.daemon.state import State, make_state
from palyra.daemon.table import ROUTES
from palyra.wiring.embedded import open_installation

HOST = "localhost:7142"
AGENT, OTHER, OPERATOR = "agent:one", "agent:two", "user:operator"


class Daemon:
    """Used from plain test code: every request is one turn of its own event loop."""

    def __init__(self, runner: asyncio.Runner, state: State, routes: Sequence[Route] = ROUTES) -> None:
        self.runner = runner
        self.state = state
        self.app = make_app(state, routes)
        self.owner_uid = state.guard.owner_uid

    def run(self, work: Any) -> Any:
        return self.runner.run(work)

    def token(self, principal: str = AGENT, *, operator: bool = False, **more: Any) -> str:
        made = self.state.tokens.create(principal=principal, operator=operator, by=OPERATOR, **more)
        secret: str = self.run(made)[1]
        return secret

    def login(self, principal: str = OPERATOR) -> tuple[str, str]:
        """(the cookie, its CSRF token)."""
        secret, session = self.run(self.state.sessions.open(principal))
        return secret, session.csrf

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        response: httpx.Response = self.run(self.asking(method, path, **options))
        return response

    async def asking(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        session: tuple[str, str] | None = None,
        csrf: str | None = None,
        peer_uid: int | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        sent = {"Host": HOST, **(headers or {})}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if session is not None:
            sent["Cookie"] = f"{COOKIE}={session[0]}"
        if csrf is not None:
            sent[CSRF_HEADER] = csrf
        # The request is httpx's, for its bodies and headers; a client for each would cost more than all else.
        request = httpx.Request(method, f"http://{HOST}{path}", headers=sent, **options)
        return await self._answer(request, {} if peer_uid is None else {"peer_uid": peer_uid})

    async def _answer(self, request: httpx.Request, state: dict[str, Any]) -> httpx.Response:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": request.url.scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.split(b"?")[0],
            "query_string": request.url.query,
            "server": ("localhost", 7142),
            "client": ("127.0.0.1", 123),
            "root_path": "",
            "state": state,
        }
        parts, heard = _parts(request), _Heard()
        await self.app(scope, parts.receive, heard.send)
        return httpx.Response(heard.status, headers=heard.headers, content=bytes(heard.body), request=request)


class _Parts:
    """A request's body as the application receives it; afterwards the client stays and says nothing."""

    def __init__(self, stream: Any) -> None:
        self._parts = stream.__aiter__() if hasattr(stream, "__aiter__") else None
        self._ended = self._parts is None

    async def receive(self) -> dict[str, Any]:
        if self._ended:
            await asyncio.Event().wait()
        assert self._parts is not None
        try:
            return {"type": "http.request", "body": await anext(self._parts), "more_body": True}
        except StopAsyncIteration:
            self._ended = True
            return {"type": "http.request", "body": b"", "more_body": False}


def _parts(request: httpx.Request) -> _Parts:
    return _Parts(request.stream)


class _Heard:
    def __init__(self) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message["headers"]
        else:
            self.body += message.get("body", b"")


@contextmanager
def daemon(root: Path, routes: Sequence[Route] = ROUTES, **settings: Any) -> Iterator[Daemon]:
    with asyncio.Runner() as runner:
        installation = runner.run(open_installation(Home(root)))
        try:
            yield Daemon(runner, make_state(installation, replace(DaemonConfig(), **settings)), routes)
        finally:
            runner.run(installation.close())
