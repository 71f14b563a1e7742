"""A real PostgreSQL for tests: from the system's packages, on a Unix socket in a folder of its own, gone afterwards."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

PLAIN = os.environ.get("PLAIN_USER", "nobody")
QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
SETTINGS = {
    "listen_addresses": "''",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "120",
    "shared_buffers": "16MB",
}


def programs() -> Path | None:
    """The newest server there is."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def as_plain_user(*argv: str) -> list[str]:
    """The server refuses to run as root."""
    if os.geteuid() != 0:
        return list(argv)
    return [
        "setpriv",
        f"--reuid={PLAIN}",
        f"--regid={PLAIN if PLAIN != 'nobody' else 'nogroup'}",
        "--clear-groups",
        *argv,
    ]


@dataclass
class Server:
    """One of its own, which may be stopped and started again."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def make(cls) -> Server:
        folder = Path(tempfile.mkdtemp(prefix="palyra-postgres-"))
        if os.geteuid() == 0:
            shutil.chown(folder, PLAIN)
        made = cls(folder)
        data = str(folder / "data")
        argv = [made._program("initdb"), "-D", data, "-U", "palyra", "-A", "trust", "-E", "UTF8", "--no-sync"]
        subprocess.run(as_plain_user(*argv), check=True, **QUIET)
        return made

    @property
    def url(self) -> str:
        return f"host={self.folder} user=palyra dbname=postgres"

    def start(self) -> str:
        """Its address, when it takes connections."""
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value.strip(chr(39))}")]
        argv = [self._program("postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), *settings]
        self.process = subprocess.Popen(as_plain_user(*argv), **QUIET)
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return self.url
            except psycopg.OperationalError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def stop(self, *signals: signal.Signals) -> None:
        """As a fast shutdown, unless told otherwise; SIGQUIT is as if the machine had lost power."""
        if self.process is None:
            return
        for sign in signals or (signal.SIGINT, signal.SIGQUIT):
            self.process.send_signal(sign)
            try:
                self.process.wait(10)
                break
            except subprocess.TimeoutExpired:
                continue
        self.process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _program(name: str) -> str:
        found = programs()
        if found is None:
            raise RuntimeError("There is no PostgreSQL: make test-cluster installs it on Debian.")
        return str(found / name)


@cache
def server() -> str:
    """Started once for a run of the tests; its address."""
    made = Server.make()
    atexit.register(made.remove)
    return made.start()


def url_of(root: Path, url: str = "") -> str:
    """A schema of its own for each home."""
    name = "s" + hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:16]
    url = url or server()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
    return f"{url} options=-csearch_path={name}"
