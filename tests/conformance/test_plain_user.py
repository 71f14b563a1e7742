"""The other half: from root, every attack again as a plain user, on a copy that user may read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.conformance.arena import OTHER_USER

ROOT = Path(__file__).parents[2]


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="whoever runs this is a plain user already")
def test_every_promise_holds_for_a_plain_user_too() -> None:
    drop = [shutil.which("setpriv") or "setpriv", f"--reuid={OTHER_USER}", f"--regid={OTHER_USER}", "--clear-groups"]
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    if subprocess.run([*drop, sys.executable, "-c", "import pytest"], env=env, capture_output=True).returncode:
        pytest.skip(f"uid {OTHER_USER} may not use {sys.executable}")
    with tempfile.TemporaryDirectory(prefix="palyra-copy-") as folder:
        copy = Path(folder)
        copy.chmod(0o755)
        shutil.copy(ROOT / "pyproject.toml", copy)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("conformance", "soak"):
            shutil.copytree(ROOT / "tests" / name, copy / "tests" / name)
        shutil.copy(ROOT / "tests" / "conftest.py", copy / "tests")
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        argv = [*drop, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/conformance"]
        done = subprocess.run(argv, cwd=copy, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
