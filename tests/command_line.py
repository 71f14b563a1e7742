"""The command line as a user starts it: a real process, a home and a workspace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SRC = Path(__file__).parents[1] / "src"


@dataclass(frozen=True)
class Cli:
    home: Path
    workspace: Path

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-m", "palyra", "--home", str(self.home)]

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(SRC)}

    def __call__(
        self, *args: str | bytes, stdin: bytes = b"", timeout: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.argv, *args],  # type: ignore[list-item]  # bytes are what a shell may pass
            cwd=self.workspace,
            env=self.environ,
            input=stdin,
            capture_output=True,
            timeout=timeout,
        )

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.argv, *args],
            cwd=self.workspace,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def outcome(self, *args: str | bytes, **options: Any) -> dict[str, Any]:
        done = self(*args, **options)
        lines = done.stdout.splitlines()
        assert len(lines) == 1, (done.stdout, done.stderr)
        value: dict[str, Any] = json.loads(lines[0])
        return value
