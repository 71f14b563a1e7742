"""The one table of routes: what is served, described, documented and tested. One tuple a noun, joined here."""

from __future__ import annotations

from palyra.daemon import attended, calls, health, hooks, metrics, runs, tools
from palyra.daemon.console.table import PAGES
from palyra.daemon.document import document_route
from palyra.daemon.operators.table import ROUTES as OPERATOR_ROUTES
from palyra.daemon.routes import Route

AGENT_ROUTES: tuple[Route, ...] = (*calls.ROUTES, *attended.ROUTES, *tools.ROUTES, *runs.ROUTES)
"""`/v1/…`: agents and operators."""
_DESCRIBED: tuple[Route, ...] = (*AGENT_ROUTES, *hooks.ROUTES, *health.ROUTES, *metrics.ROUTES, *OPERATOR_ROUTES)
ROUTES: tuple[Route, ...] = (*_DESCRIBED, document_route(_DESCRIBED), *PAGES)
