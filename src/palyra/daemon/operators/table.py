"""Every operator's route, one tuple a noun."""

from __future__ import annotations

from palyra.daemon.operators import (
    approvals,
    calls,
    candidates,
    events,
    host,
    journal,
    links,
    policy,
    processes,
    runs,
    secrets,
    skills,
    tokens,
    trust,
)
from palyra.daemon.routes import Route

ROUTES: tuple[Route, ...] = (
    *host.ROUTES,
    *approvals.ROUTES,
    *runs.ROUTES,
    *calls.ROUTES,
    *journal.ROUTES,
    *policy.ROUTES,
    *processes.ROUTES,
    *secrets.ROUTES,
    *tokens.ROUTES,
    *candidates.ROUTES,
    *skills.ROUTES,
    *trust.ROUTES,
    *links.ROUTES,
    *events.ROUTES,
)
