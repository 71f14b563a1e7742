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

BASE = "http://localhost:7142"
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
        secret, session = self.state.sessions.open(principal)
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
        async def app(scope: Any, receive: Any, send: Any) -> None:
            state = {} if peer_uid is None else {"peer_uid": peer_uid}
            await self.app(scope | {"state": state}, receive, send)

        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if session is not None:
            sent["Cookie"] = f"{COOKIE}={session[0]}"
        if csrf is not None:
            sent[CSRF_HEADER] = csrf
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url=BASE, timeout=60) as client:
            return await client.request(method, path, headers=sent, **options)


@contextmanager
def daemon(root: Path, routes: Sequence[Route] = ROUTES, **settings: Any) -> Iterator[Daemon]:
    with asyncio.Runner() as runner:
        installation = runner.run(open_installation(Home(root)))
        try:
            yield Daemon(runner, make_state(installation, replace(DaemonConfig(), **settings)), routes)
        finally:
            runner.run(installation.close())
