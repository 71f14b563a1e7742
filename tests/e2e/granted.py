"""Programs that reach a host of the tests' own, granted by its name and its address."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.command_line import Cli
from tests.servers import Seen

NAMES = ("granted.test", "registry.test", "other.test")
"""Those that a home of `developer` looks up as loopback."""


def need(program: str) -> None:
    if shutil.which(program, path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip(f"there is no {program} on this machine")


def run_granted(
    cli: Cli, seen: Seen, *words: str, name: str = NAMES[0], more: tuple[str, ...] = (), **options: Any
) -> dict[str, Any]:
    """The outcome; `more` are further flags."""
    hosts = ("--allow-host", f"{name}:{seen.port}", "--allow-host", f"127.0.0.1:{seen.port}")
    return cli.outcome("run", "--json", *hosts, *more, "--allow", words[0], "--", *words, **options)
