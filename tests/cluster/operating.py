"""What an operator of a cluster does in tests: commands in processes of their own, and daemons that share a server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from palyra.api import AsyncPalyra

SRC = Path(__file__).parents[2] / "src"


def palyra(home: Path, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "palyra", "--home", str(home), *words]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    return subprocess.run(argv, cwd=SRC, env=kept, input=stdin, capture_output=True, timeout=120)


def told(done: subprocess.CompletedProcess[bytes]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def daemon(home: Path, number: int, url: str, settings: str = "") -> AsyncPalyra:
    """The first makes the cluster's key, the others got a copy of it."""
    root = home if number == 0 else home.with_name(f"daemon{number}")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if number:
        (root / "state").mkdir(mode=0o700, exist_ok=True)
        shutil.copy(home / "state" / "installation.key", root / "state" / "installation.key")
    (root / "palyra.toml").write_text(f'{settings}\n[cluster]\ndatabase = "{url}"\n')
    return AsyncPalyra.open(str(root))
