"""One boot for all of it: what the booted system saw of the units. `make test-deploy` sets up what it needs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.inside.wasm.guests import ECHO

HERE = Path(__file__).parent
DEPLOY = HERE.parent.parent / "deploy"
INSTALLATION = os.environ.get("PALYRA_TEST_INSTALLATION", "")
BOOT_S = 300


@pytest.fixture(scope="session")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not INSTALLATION:
        pytest.skip("make test-deploy boots a system for this")
    out: Path = tmp_path_factory.mktemp("deploy")
    (out / "echo.wasm").write_bytes(ECHO)
    argv = ["unshare", "--mount", HERE / "boot.sh", INSTALLATION, DEPLOY, HERE / "inside.py", out]
    done = subprocess.run(argv, capture_output=True, timeout=BOOT_S, check=False)
    told = out / "found.json"
    assert told.exists(), done.stdout + done.stderr
    seen: dict[str, Any] = json.loads(told.read_text())
    assert "trouble" not in seen, seen["trouble"] + seen["journalctl"]
    return seen
