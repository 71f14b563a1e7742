"""A home that allows what the frameworks' own suites do: many small calls, lines for a shell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palyra import Palyra

if "PALYRA_ADAPTERS" not in os.environ:
    collect_ignore_glob = ["test_*.py"]  # the frameworks are not here: make test-adapters

CONFIG = """
posture = "developer"
[tool_call]
max_calls_per_run = 100000
max_attempts_per_run = 100000
"""
ASK = """
@id("story.ask")
@reason("Deleting is for people to decide.")
forbid (principal, action == Action::"tool::execute", resource)
when { context.program == "rm" }
unless { context.approved };
"""


@pytest.fixture
def configured(home: Path) -> Path:
    (home / "policies").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "palyra.toml").write_text(CONFIG)
    (home / "policies" / "story.cedar").write_text(ASK)
    return home


@pytest.fixture
def palyra(configured: Path):
    with Palyra.open(str(configured)) as opened:
        yield opened


@pytest.fixture
def run(palyra, workspace):
    return palyra.run("agent:story", workspace)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
