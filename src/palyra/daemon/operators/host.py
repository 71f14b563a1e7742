"""`/console/v1/sandbox`, `/console/v1/doctor`, `/console/v1/overview`: what this machine enforces, and how it goes."""

from __future__ import annotations

import asyncio

from palyra.canon import Json
from palyra.daemon.operators.answering import Listed, get, installed, journal_of
from palyra.daemon.routes import AnswerModel, Asked
from palyra.errors import PalyraError
from palyra.model.approval import ApprovalState
from palyra.wiring.checkup import BROKEN, Check, backends_json, daemon_checks, host_checks, state_checks, tier_checks
from palyra.wiring.figures import Figures, read_figures
from palyra.wiring.host import look_at_host

MAX_WAITING = 200


class Blocker(AnswerModel):
    code: str
    detail: str
    fix: str


class SandboxBackend(AnswerModel):
    backend: str
    tier: str
    executor: str
    guarantees: list[str]
    blockers: list[Blocker]


class DoctorCheck(AnswerModel):
    check: str
    status: str
    detail: str
    fix: str | None


class Diagnosis(AnswerModel):
    ok: bool
    items: list[DoctorCheck]
    next: None


class HourCounts(AnswerModel):
    begins_at_unix_ms: int
    completed: int
    refused: int
    waiting: int
    failed: int


class Overview(AnswerModel):
    hours: list[HourCounts]
    endings: dict[str, int]
    reasons: dict[str, int]
    tools: dict[str, int]
    principals: dict[str, int]
    whole: bool
    """False when only the newest entries were counted."""
    waiting: int
    under_way: int
    processes: int


async def list_backends(asked: Asked) -> Json:
    return {"items": backends_json(installed(asked).host), "next": None}


async def examine(asked: Asked) -> Json:
    """The host is looked at afresh: a real sandbox is started to know."""
    installation = installed(asked)
    host = await asyncio.to_thread(look_at_host, installation.home, installation.config, owns_process=False, fresh=True)
    checks = [*host_checks(host), *tier_checks(host)]
    try:
        checks += state_checks(installation)
        checks += daemon_checks(installation.home.root)
    except PalyraError as error:
        checks.append(Check("state", BROKEN, str(error), getattr(error, "hint", None)))
    healthy = all(check.status != BROKEN for check in checks)
    return {"ok": healthy, "items": [check.as_json() for check in checks], "next": None}


async def figures_of(asked: Asked) -> Figures:
    await journal_of(asked).follow()
    return await read_figures(installed(asked).writer, now_unix_ms=asked.state.clock.now_unix_ms())


def waiting_count(asked: Asked) -> int:
    """For the navigation: requests that somebody can still decide."""
    now = asked.state.clock.now_unix_ms()
    found = installed(asked).approvals.list(states=(ApprovalState.PENDING,), count=MAX_WAITING)
    return sum(approval.expires_unix_ms > now for approval in found)


async def overview(asked: Asked) -> Json:
    figures = await figures_of(asked)
    return {
        **figures.as_json(),
        "waiting": waiting_count(asked),
        "under_way": len(journal_of(asked).lookup.open_calls()),
        "processes": len(await installed(asked).background.running()),
    }


ROUTES = (
    get("/overview", overview, name="overview", says="The last 24 hours in figures.", model=Overview),
    get("/sandbox", list_backends, name="list_backends",
        says="Each backend: what it guarantees here, or what prevents it.", model=Listed[SandboxBackend]),
    get("/doctor", examine, name="doctor", says="Whether this machine can run sandboxes, and what would fix it if not.",
        model=Diagnosis),
)  # fmt: skip
