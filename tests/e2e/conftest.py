"""A home that several stories begin with."""

from __future__ import annotations

import json

import pytest

from tests.command_line import Cli
from tests.e2e.granted import NAMES


@pytest.fixture
def developer(cli: Cli) -> Cli:
    """Posture developer, and names of our own that lead to loopback."""
    cli.home.mkdir(mode=0o700, exist_ok=True)
    resolve = json.dumps([f"{name}=127.0.0.1" for name in NAMES])
    (cli.home / "palyra.toml").write_text(f'posture = "developer"\n[egress]\nresolve = {resolve}\n')
    return cli
