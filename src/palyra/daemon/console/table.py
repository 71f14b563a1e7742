"""Every page and form of the console, one tuple a file."""

from __future__ import annotations

from palyra.daemon.console import approvals, calls, journal, login, machine, overview, policy, skills
from palyra.daemon.routes import Route

PAGES: tuple[Route, ...] = (
    *login.ROUTES,
    *overview.ROUTES,
    *approvals.ROUTES,
    *calls.ROUTES,
    *journal.ROUTES,
    *policy.ROUTES,
    *machine.ROUTES,
    *skills.ROUTES,
)
