"""Ray on this machine: started behind token authentication, known by its process, ended by that process alone.

Rules: what listens listens on the one address that is named, loopback unless another is; a cluster's token is a private
file of the home, made by the head and copied to the others; ending signals the process that was started here and
nothing else (`ray stop` ends everybody's). Not here: what runs on it (cluster/ray_node).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from palyra.errors import StateError
from palyra.state.keyfile import check_private

TOKEN_FILE = "ray.token"
PID_FILE = "ray.json"
START_S = 60.0
DRAIN_S = 45.0
"""Ray lets a node drain for half a minute."""
STOP_S = 5.0
PRIORITY = {"RAY_worker_niceness": "0"}
"""Somebody waits for what a node does: Ray would have it, and every sandbox below it, behind all else (15)."""
MEMORY_BYTES = 80 << 20
"""Bytes pass through it and nothing is kept there: the least that Ray takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    state: Path
    """The home's state folder: the token."""
    run: Path
    """The home's run folder: which process it is."""

    def environment(self, *, make: bool = False) -> dict[str, str]:
        """What Ray reads when it is imported. `make`: a token is made where there is none."""
        path = self.state / TOKEN_FILE
        if make and not path.exists():
            self.state.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write(secrets.token_hex(32))
        try:
            check_private(path, path.lstat(), is_kind=stat.S_ISREG)
        except OSError as error:
            hint = (
                "palyra cluster up creates it on the head; copy it to the other machines, readable only by its owner."
            )
            raise StateError(f"The cluster's token {path} is missing.", hint) from error
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path), "RAY_USAGE_STATS_ENABLED": "0", **PRIORITY}

    def take_environment(self) -> None:
        """For this process, before Ray is imported; what the operator set stays."""
        if "RAY_AUTH_TOKEN" not in os.environ and "RAY_AUTH_TOKEN_PATH" not in os.environ:
            os.environ.update(self.environment())

    def start(self, *, address: str, slots: int, join: str) -> int:
        """The process id of Ray here. `join`: the head's address; empty: this is the head."""
        if self.running() is not None:
            raise StateError(
                "Ray is already running on this machine, started from this home.", "palyra cluster down stops it."
            )
        host, _, port = address.rpartition(":")
        where = ["--address", join] if join else ["--head", "--port", port, "--include-dashboard", "false"]
        argv = [
            *(sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"),
            *("--node-ip-address", host, "--num-cpus", "0", "--object-store-memory", str(MEMORY_BYTES)),
            *("--resources", json.dumps({"tier_c": slots}), *where),
        ]
        self.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.run / "ray.log").open("wb") as log:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, **self.environment(make=not join)},
                start_new_session=True,
            )
        told = {"pid": process.pid, "start_ticks": _start_ticks(process.pid)}
        (self.run / PID_FILE).write_text(json.dumps(told))
        self._wait(process)
        return process.pid

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        """Until Ray says that it runs, or has ended; its last line then says why."""
        log, deadline = self.run / "ray.log", time.monotonic() + START_S
        while process.poll() is None and time.monotonic() < deadline:
            if b"Ray runtime started" in log.read_bytes()[-20_000:]:
                return
            time.sleep(0.1)
        said = log.read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
        self.stop()
        raise StateError(f"Ray did not start: {said[-1][:300] if said else 'it said nothing'}", f"See {log}")

    def running(self) -> int | None:
        """The process that was started from here, if it still is that one."""
        try:
            told = json.loads((self.run / PID_FILE).read_text())
            pid, ticks = int(told["pid"]), int(told["start_ticks"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return pid if ticks and _start_ticks(pid) == ticks else None

    def stop(self) -> bool:
        """End it and all it started; False when nothing ran. It gets a while to end in order."""
        pid = self.running()
        if pid is None:
            return False
        for sign, patience_s in ((signal.SIGTERM, DRAIN_S), (signal.SIGKILL, STOP_S)):
            deadline = time.monotonic() + patience_s
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, sign)  # its own session: nobody else is in it
            while self.running() is not None and time.monotonic() < deadline:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
                time.sleep(0.05)
        (self.run / PID_FILE).unlink(missing_ok=True)
        return True


def _start_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if len(fields) < 20 or fields[0] in ("Z", "X") else int(fields[19])
