"""Palyra's side of a row: a throwaway home and workspace, and one run through the Python API.

The whole pipeline is inside the clock: parse, schema, look, guard, Cedar, budget, plan, a durable intent, the sandbox,
capture, redaction, signature, a durable result. Nothing is switched off; only the call budget of the run is raised.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness import Contender, timed

CONFIG = """\
[tool_call]
max_calls_per_run = 1000000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where ours runs."""

    home: Path
    workspace: Path


@contextmanager
def open_ground() -> Iterator[Ground]:
    """A home on a real disk where there is one: on tmpfs a durable write would be free and flatter us."""
    disk = "/var/tmp" if Path("/var/tmp").is_dir() else None
    home = Path(tempfile.mkdtemp(prefix="palyra-bench-home-", dir=disk))
    workspace = Path(tempfile.mkdtemp(prefix="palyra-bench-workspace-"))
    workspace.chmod(0o755)  # a root engine runs children under another uid
    (home / "palyra.toml").write_text(CONFIG, encoding="utf-8")
    try:
        yield Ground(home=home, workspace=workspace)
    finally:
        shutil.rmtree(home, ignore_errors=True)
        shutil.rmtree(workspace, ignore_errors=True)


@contextmanager
def open_ours(ground: Ground, name: str, *, tier: str, egress: str) -> Iterator[Contender]:
    """`palyra.process.run` of `true` in one tier, called over and over on one open installation."""
    from palyra import Palyra
    from palyra.errors import PalyraError

    try:
        palyra = Palyra.open(home=str(ground.home))
    except PalyraError as error:
        yield Contender(name=name, run=None, why_missing=str(error))
        return
    with palyra:
        run = palyra.run(principal="user:bench", workspace=ground.workspace, tier=tier, egress=egress)
        first = run.call("palyra.process.run", {"command": "true"})
        if first.reason is not None:
            yield Contender(name=name, run=None, why_missing=f"{first.reason}: {first.message}")
            return
        work = timed(lambda: run.call("palyra.process.run", {"command": "true"}), check_outcome)
        yield Contender(name=name, run=work)


def check_outcome(outcome: Any) -> None:
    if not outcome.success:
        raise RuntimeError(f"a measured call failed: {outcome.reason}: {outcome.message}")
