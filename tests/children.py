"""Programs of the tests in processes of their own, which find the package and the tests as this one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]


def child_environ() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT}"}


def run_child(program: str, *arguments: str, wrap: tuple[str, ...] = (), timeout_s: float = 900) -> str:
    """What it printed; it must end well."""
    done = subprocess.run(
        [*wrap, sys.executable, "-c", program, *arguments],
        cwd=PROJECT,
        env=child_environ(),
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
