"""Joins two doors: the daemon's keeper says who asks, the MCP application answers at /mcp.

Rules: a bearer token, or the home's owner over the Unix socket; a console's session is not taken here: a browser
sends its cookie by itself. Calls count among the daemon's own: there is one limit for all doors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from palyra.cli.late_app import LateApp
from palyra.daemon.app import SLOWEST_BYTES_S, identify
from palyra.daemon.auth import CALLER, Proof, unauthenticated
from palyra.daemon.bodies import Counted
from palyra.daemon.holding import Held
from palyra.daemon.lapsing import lapse_of_calls
from palyra.daemon.routes import Refused
from palyra.daemon.state import State

if TYPE_CHECKING:
    from palyra.mcp.http import Identity

PATH = "/mcp"


@asynccontextmanager
async def mounted(state: State) -> AsyncIterator[dict[str, ASGIApp]]:
    """What to mount beside the daemon's table, for as long as the block runs; nothing without the extra."""
    if find_spec("mcp") is None:
        yield {}
        return
    app = LateApp("palyra.mcp.http", lambda: opened(state))
    async with app.running():
        yield {PATH: Held(app, state)}


@asynccontextmanager
async def opened(state: State) -> AsyncIterator[ASGIApp]:
    from palyra.mcp.bodies import MAX_BODY_BYTES, Bounds
    from palyra.mcp.http import http_app

    max_bytes = min(MAX_BODY_BYTES, state.settings.max_body_bytes)
    app = http_app(
        state.installation,
        lambda request: who_asks(request, state),
        # Its output can be followed at /v1 too, by an agent, who must not learn from when bytes come.
        begin=lambda request: state.calls.begin(replace(request, lagging=True)).task,
        bounds=Bounds(
            max_bytes=max_bytes, timeout_s=max(state.settings.body_timeout_ms / 1000, max_bytes / SLOWEST_BYTES_S)
        ),
    )
    async with app.running():
        yield Counted(app, state.bodies, answer=as_mcp)


def who_asks(request: Request, state: State) -> Identity | Response:
    from palyra.mcp.http import Identity

    try:
        caller = identify(request, state)
        if caller.proof not in (Proof.TOKEN, Proof.PEER):
            raise unauthenticated("MCP needs a bearer token.")
        if state.stopping:
            raise Refused(503, "STOPPING", "The daemon is shutting down.", "Connect again in a moment.")
        request.scope[CALLER] = caller
    except Refused as refusal:
        return as_mcp(refusal)
    return Identity(
        principal=caller.principal,
        credential_id=caller.credential_id or f"peer:{caller.principal}",
        workspace=caller.workspace,
        lapse=lapse_of_calls(state, caller),
    )


def as_mcp(refused: Refused) -> Response:
    from palyra.mcp.bodies import refusal

    return refusal(refused.status, refused.code, refused.message, refused.hint, headers=refused.headers)
