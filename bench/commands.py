"""Palyra's command line as a contender: a process a round, from the environment that this one runs in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.harness import Contender, timed
from bench.installation import Ground
from bench.peers import check_exit, run_popen

PALYRA = Path(sys.executable).with_name("palyra")


def command(ground: Ground, name: str, *words: str) -> Contender:
    """Bytecode is on the disk, as after any installation by pip; nothing else is warm but the system's caches."""
    if not PALYRA.exists():
        return Contender(name=name, run=None, why_missing=f"{PALYRA} is not there: make dev installs it")
    env = {name: value for name, value in os.environ.items() if name.startswith(("LANG", "LC_", "PATH", "HOME"))}
    env["PALYRA_HOME"] = str(ground.home)

    def run() -> int:
        done = subprocess.run(
            [PALYRA, *words], env=env, cwd=ground.workspace, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return done.returncode

    check_exit(run())  # the first start makes the home and probes the machine
    return Contender(name=name, run=timed(run, check_exit))


def interpreter() -> Contender:
    argv = [sys.executable, "-c", "pass"]
    return Contender(name="python -c pass", run=timed(lambda: run_popen(argv), check_exit))
