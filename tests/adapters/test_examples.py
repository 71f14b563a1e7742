"""Each framework's real package runs a scripted agent: an allowed call, a refused one, an approved one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
EXAMPLES = sorted((PROJECT / "examples" / "adapters").glob("*_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs_offline_with_a_scripted_model(example, tmp_path):
    environ = os.environ | {"PYTHONPATH": str(PROJECT / "src"), "HOME": str(tmp_path), "OPENAI_API_KEY": "unused"}
    done = subprocess.run(
        [sys.executable, str(example)], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
