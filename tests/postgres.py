"""A real PostgreSQL for tests: from the system's packages, on a Unix socket in a folder of its own, gone afterwards."""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import psycopg

PLAIN = os.environ.get("PLAIN_USER", "nobody")
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


@cache
def server() -> str:
    """Started once for a run of the tests; its address."""
    found = programs()
    if found is None:
        raise RuntimeError("There is no PostgreSQL: make test-cluster installs it on Debian.")
    folder = Path(tempfile.mkdtemp(prefix="palyra-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, PLAIN)
    data = folder / "data"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    made = as_plain_user(
        str(found / "initdb"), "-D", str(data), "-U", "palyra", "-A", "trust", "-E", "UTF8", "--no-sync"
    )
    subprocess.run(made, check=True, **quiet)
    settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value.strip(chr(39))}")]
    argv = as_plain_user(str(found / "postgres"), "-D", str(data), "-k", str(folder), *settings)
    process = subprocess.Popen(argv, **quiet)
    atexit.register(_stop, process, folder)
    url = f"host={folder} user=palyra dbname=postgres"
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url, connect_timeout=2).close()
            return url
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.terminate()  # connected clients are not waited for at the second signal
    try:
        process.wait(2)
    except subprocess.TimeoutExpired:
        process.send_signal(3)
        process.wait(10)
    shutil.rmtree(folder, ignore_errors=True)


def url_of(root: Path) -> str:
    """A schema of its own for each home."""
    name = "s" + hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:16]
    url = server()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {name}")
    return f"{url} options=-csearch_path={name}"
