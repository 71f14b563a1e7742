"""The page reference/mcp-conformance.md, from tests/mcp_conformance/claims.toml: what is not claimed, and why."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

CLAIMS = Path(__file__).parents[1] / "tests" / "mcp_conformance" / "claims.toml"


def make_mcp() -> Iterator[str]:
    yield "# MCP conformance"
    yield (
        "`make conformance` runs the protocol's own suite (`@modelcontextprotocol/conformance`) for revision "
        "2026-07-28 against the daemon's application, and the Inspector's command line against `palyra mcp` and "
        "`palyra serve`. The suite's tools stand for real calls, made by the engine in a sandbox "
        "(`tests/mcp_conformance/fixture.py`). **Everything the suite asks for is claimed and must hold, but for "
        "this:**"
    )
    groups = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["not_claimed"]
    rows = ["| not claimed | why |", "|---|---|"]
    rows += [f"| {' · '.join(f'`{check}`' for check in group['checks'])} | {group['why']} |" for group in groups]
    yield "\n".join(rows)
    yield "A line that no longer fails is an error as well, so this list cannot grow stale."
