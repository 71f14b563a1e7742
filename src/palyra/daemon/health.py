"""`/healthz`, `/readyz`, `/openapi.json`: is it alive, can it do its work, and how is it spoken to.

Rules: alive means that it answers and that its journal has not failed; a full disk is named apart, because it is
waited out. What is said to callers without a credential names no path. Ready means that calls can be made now: the
journal can be written, the policies can be read, the sandbox works; what cannot be had is named.
"""

from __future__ import annotations

from typing import Literal

from starlette.responses import Response

from palyra.daemon.routes import Answer, AnswerModel, Asked, Route, Who, json_response
from palyra.errors import ConfigError, StateError
from palyra.model.call import Tier
from palyra.model.net import NO_NETWORK
from palyra.sandbox.planner import BACKENDS, needs_for
from palyra.state.trouble import NoRoom
from palyra.version import __version__


class Alive(AnswerModel):
    status: Literal["ok", "disk_full", "journal_failed"]
    version: str


class Check(AnswerModel):
    ok: bool
    detail: str | None


class Readiness(AnswerModel):
    ready: bool
    journal: Check
    policy: Check
    sandbox: Check


async def healthz(asked: Asked) -> Response:
    failure = asked.state.installation.writer.failure()
    status = "ok" if failure is None else "disk_full" if isinstance(failure, NoRoom) else "journal_failed"
    return json_response({"status": status, "version": __version__}, status=200 if failure is None else 503)


async def readyz(asked: Asked) -> Response:
    state = asked.state
    checks = {"journal": _journal(asked), "policy": _policy(asked), "sandbox": _sandbox(asked)}
    ready = not state.stopping and all(why is None for why in checks.values())
    answer = {"ready": ready, **{name: {"ok": why is None, "detail": why} for name, why in checks.items()}}
    return json_response(answer, status=200 if ready else 503)


def _journal(asked: Asked) -> str | None:
    """None, or why nothing can be recorded. An empty piece of work goes the whole way to the disk."""
    try:
        asked.state.installation.writer.commit_now(lambda tx: None)
    except StateError as error:
        return error.detail
    return None


def _policy(asked: Asked) -> str | None:
    try:
        asked.state.installation.policies.current()
    except (ConfigError, StateError) as error:
        return error.detail
    return None


def _sandbox(asked: Asked) -> str | None:
    host = asked.state.installation.host
    needs, _ = needs_for(Tier.C, NO_NETWORK)
    if any(backend.tier is Tier.C and needs <= backend.guarantees(host) for backend in BACKENDS):
        return None
    return "No tier C backend works on this host."


READY = Answer(meaning="Every part works, or the daemon says which does not.", model=Readiness)
ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        name="healthz",
        who=Who.ANYBODY,
        handler=healthz,
        summary="Is the daemon alive?",
        answers={
            200: Answer(meaning="It is.", model=Alive),
            503: Answer(meaning="Nothing can be recorded: it waits for room, or is about to end.", model=Alive),
        },
        tags=("health",),
    ),
    Route(
        method="GET",
        path="/readyz",
        name="readyz",
        who=Who.AGENT,
        handler=readyz,
        summary="Can calls be made now?",
        answers={200: READY, 503: READY},
        tags=("health",),
    ),
)
