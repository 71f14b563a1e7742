"""`python -m tests.soak.http --seconds 60`: a real daemon under mixed load over HTTP. Prints one JSON report.

Callers do what clients do (kinds.py): calls of every tier and of our own tools, refused ones, batches, streams that are
read and streams that are left midway, calls nobody waits for, cancellations, approvals asked for and decided,
background processes, the console's pages, wrong tokens, bodies that are none, while others listen to all that happens.
While they do, the daemon's memory, open files, processes and rows are looked at: after the first quarter of the time
memory and files may not grow, and nothing may be left that should have ended. Exit code 1 when that is so, when a call
ended otherwise than its kind says, or when the journal does not verify.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.consoles import ASKS, packed
from tests.soak.kinds import KINDS, Site, listen

PALYRA = (sys.executable, "-m", "palyra")
LOOK_S = 0.5
GROWTH_BYTES = 24 << 20
"""What the kept outcomes of ended calls, SQLite's caches and the allocator's own may move by."""
GROWTH_FILES = 32
LISTENERS = 8
CONFIG = """[tool_call]
allowed_tools = ["palyra.*", "acme.*"]
[tool_call.process_runner]
allow_root_tier_b = true
"""
TABLES = ("entries", "calls", "approvals", "processes", "runs", "sessions", "taken_calls", "artifacts")
ENDS = ("taken_calls", "sessions")
"""What is empty again when nobody does anything any more."""


def call_until(site: Site, until: float, first: int) -> None:
    line = site.line()
    for number in itertools.count(first):
        if time.monotonic() >= until:
            break
        kind = KINDS[number % len(KINDS)]
        try:
            told = kind(site, line)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            told = f"{type(error).__name__}: {error}"
            line.close()
        site.ended[kind.__name__] += 1
        if told:
            site.odd.append(f"{kind.__name__}: {told}"[:400])
    line.close()


class Seen(NamedTuple):
    resident_bytes: int
    own_bytes: int
    """Without the files it has mapped: the database is one, and grows with what is written."""
    open_files: int
    processes: int


def look(pid: int) -> Seen:
    """Of the daemon; `processes` with everything below it."""
    page = os.sysconf("SC_PAGE_SIZE")
    resident, shared = (int(word) * page for word in Path(f"/proc/{pid}/statm").read_text().split()[1:3])
    return Seen(resident, resident - shared, len(os.listdir(f"/proc/{pid}/fd")), 1 + len(below(pid)))


def below(pid: int) -> list[int]:
    found: list[int] = []
    for task in list_of(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return [*found, *(deeper for child in found for deeper in below(child))]


def list_of(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def rows(home: Path) -> dict[str, int]:
    with contextlib.closing(sqlite3.connect(f"file:{home}/state/palyra.db?mode=ro", uri=True)) as found:
        there = {name for (name,) in found.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        counted = [name for name in TABLES if name in there]
        return {name: int(found.execute(f"SELECT count(*) FROM {name}").fetchone()[0]) for name in counted}


def watch(site: Site, seconds: float, callers: int) -> list[Seen]:
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=call_until, args=(site, until, number)) for number in range(callers)]
    for thread in threads:
        thread.start()
    seen = []
    while time.monotonic() < until:
        seen.append(look(site.pid))
        time.sleep(LOOK_S)
    for thread in threads:
        thread.join()
    return seen


def middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def prepare(base: Path) -> tuple[dict[str, str], Path, list[str]]:
    """(environment, workspace, an agent's and an operator's token)."""
    environ = {**os.environ, "PALYRA_HOME": str(base / "home")}
    workspace, policies = base / "workspace", base / "home" / "policies"
    workspace.mkdir()
    policies.mkdir(parents=True, mode=0o700)
    policies.parent.chmod(0o700)
    (policies / "local.cedar").write_text(ASKS)
    config = base / "home" / "palyra.toml"
    config.write_text(CONFIG)
    config.chmod(0o600)
    base.chmod(0o755)
    workspace.chmod(0o755)
    words = (("--principal", "agent:soak", "--workspace", str(workspace)), ("--principal", "user:soak", "--operator"))
    argv = [[*PALYRA, "token", "create", *more] for more in words]
    made = [subprocess.run(one, env=environ, check=True, capture_output=True).stdout.decode().strip() for one in argv]
    return environ, workspace, made


def install_skill(site: Site) -> None:
    line = site.line()
    package = packed("acme.echo", "1.0.0")
    for path, body in (("install?tofu=true", package), ("acme.echo/enable", {})):
        status, said = site.operate(line, "POST", f"/console/v1/skills/{path}", body)
        assert status == 200, said
    line.close()


def soak(base: Path, *, seconds: float, callers: int) -> dict[str, Any]:
    environ, workspace, (token, operator) = prepare(base)
    serve = [*PALYRA, "--json", "--quiet", "serve", "--port", "0"]
    with subprocess.Popen(serve, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as daemon:
        try:
            assert daemon.stdout is not None
            url = json.loads(daemon.stdout.readline())["listening"][0]
            site = Site(url, daemon.pid, token, operator, str(workspace))
            install_skill(site)
            listeners = [threading.Thread(target=listen, args=(site,), daemon=True) for _ in range(LISTENERS)]
            for thread in listeners:
                thread.start()
            watch(site, min(10.0, seconds / 4), callers)  # what a first call makes for good is no leak
            site.ended.clear()
            began, kept = time.monotonic(), [rows(base / "home")]
            seen = watch(site, seconds / 2, callers)
            kept.append(rows(base / "home"))
            seen += watch(site, seconds / 2, callers)
            kept.append(rows(base / "home"))
            took = time.monotonic() - began
            site.over.set()
            for thread in listeners:
                thread.join(30)
        finally:
            daemon.terminate()
            _, log = daemon.communicate(timeout=120)
    verified = subprocess.run([*PALYRA, "journal", "verify"], env=environ, capture_output=True)
    return {
        **told(seen, kept),
        "seconds": round(took, 1),
        "callers": callers,
        "listeners": LISTENERS,
        "done": sum(count for kind, count in site.ended.items() if kind != "event heard"),
        "by_kind": dict(sorted(site.ended.items())),
        "exit_code": daemon.returncode,
        "log": log.decode("utf-8", "replace").splitlines()[:20],
        "odd": site.odd[:20],
        "odd_count": len(site.odd),
        "verified": verified.returncode == 0,
    }


def told(seen: list[Seen], kept: list[dict[str, int]]) -> dict[str, Any]:
    """Figures at the start, in the middle and at the end."""
    quarter = max(1, len(seen) // 4)
    half = len(seen) // 2
    early, late = seen[quarter : 2 * quarter], seen[-quarter:]
    parts = (seen[: max(1, quarter // 2)], seen[half : half + max(1, quarter // 2)], seen[-max(1, quarter // 2) :])

    def figure(name: str, part: list[Seen]) -> int:
        return middle([getattr(one, name) for one in part])

    grown = figure("own_bytes", late) - figure("own_bytes", early)
    return {
        "resident_mib": [figure("resident_bytes", part) >> 20 for part in parts],
        "own_mib": [figure("own_bytes", part) >> 20 for part in parts],
        "open_files": [figure("open_files", part) for part in parts],
        "processes": [figure("processes", part) for part in parts],
        "rows": {name: [one.get(name, 0) for one in kept] for name in kept[-1]},
        "left": {name: kept[-1][name] for name in ENDS if kept[-1].get(name)},
        "grew": grown > GROWTH_BYTES or figure("open_files", late) - figure("open_files", early) > GROWTH_FILES,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.http")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--callers", type=int, default=24)
    asked = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="palyra-http-soak-")).resolve()
    try:
        report = soak(base, seconds=asked.seconds, callers=asked.callers)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    sound = report["verified"] and report["exit_code"] == 0 and not report["odd"] and not report["log"]
    return 0 if sound and not report["grew"] and not report["left"] else 1


if __name__ == "__main__":
    sys.exit(main())
