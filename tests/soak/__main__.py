"""`python -m tests.soak --seconds 60`: 64 callers at once, then what is left of them. Prints one JSON report.

The home is opened and used once before anything is counted, so that what a first call makes for good (the database,
the probe's cache) is not taken for a leak. Exit code 1 when anything is left, or when a call ended otherwise than its
kind says.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from palyra import AsyncPalyra
from palyra.journal.store import verify_journal
from palyra.sandbox.probe import probe
from tests.soak.load import Load
from tests.soak.traces import Traces, take_traces

OTHER_USER = 65534
PATIENCE_S = 10.0
"""What the kernel may take to tear down; what is still there then stays."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--callers", type=int, default=64)
    asked = parser.parse_args()
    logging.getLogger("palyra.launch.pool").setLevel(logging.ERROR)  # workspaces come and go before a refill
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))  # or fewer than 64 would run at once
    base = Path(tempfile.mkdtemp(prefix="palyra-soak-")).resolve()
    try:
        report = soak(base, callers=asked.callers, seconds=asked.seconds)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 1 if report["left"] or report["odd"] or report["findings"] else 0


def soak(base: Path, *, callers: int, seconds: float) -> dict[str, object]:
    prepare(base)
    tiers = tuple(tier for tier in ("c", "b") if usable(base, tier))
    asyncio.run(one_session(base, tiers, callers=len(tiers) * 11, seconds=0.1))
    before = take_traces(base)
    began = time.monotonic()
    load, findings = asyncio.run(one_session(base, tiers, callers=callers, seconds=seconds))
    took = time.monotonic() - began
    return {
        "seconds": round(took, 1),
        "callers": callers,
        "uid": os.getuid(),
        "calls": sum(load.ended.values()),
        "by_kind": dict(sorted(load.ended.items())),
        "pool": load.pool,
        "odd": load.odd,
        "findings": findings,
        "before": {name: len(getattr(before, name)) for name in Traces.__slots__},
        "left": left_after(base, before),
    }


def prepare(base: Path) -> None:
    """Temporary files land where they are counted; other users must be able to walk in."""
    base.chmod(0o755)
    for name in ("home", "tmp", "workspace"):
        (base / name).mkdir()
    (base / "home").chmod(0o700)
    if os.getuid() == 0:  # the warm half under another user, the cold half as root in root's own folders
        os.chown(base / "workspace", OTHER_USER, OTHER_USER)
    os.environ["TMPDIR"] = tempfile.tempdir = str(base / "tmp")
    (base / "home" / "palyra.toml").write_text(
        "[tool_call.process_runner]\nwarm_sandboxes = 4\nallow_root_tier_b = true\n"
    )
    (base / "home" / "palyra.toml").chmod(0o600)


def usable(base: Path, tier: str) -> bool:
    host = probe(home="/nonexistent", state_home=str(base / "home"), search_path=())
    return tier == "b" or host.bubblewrap is not None


async def one_session(base: Path, tiers: tuple[str, ...], *, callers: int, seconds: float) -> tuple[Load, list[str]]:
    async with AsyncPalyra.open(str(base / "home")) as palyra:
        load = Load(palyra, base, tiers)
        await load.run(callers=callers, seconds=seconds)
        installation = palyra.installation
        pool = installation.executor.pool
        if pool is not None:
            load.pool = {name: getattr(pool.counts, name) for name in ("hits", "misses", "started", "discarded")}
        report = verify_journal(installation.writer.home, is_alive=installation.ports.owners.is_alive)
        findings = [str(finding) for finding in report.findings]
        return load, findings + ([f"{report.open_calls} calls are open"] if report.open_calls else [])


def left_after(base: Path, before: Traces) -> dict[str, list[str]]:
    until = time.monotonic() + PATIENCE_S
    while True:
        gc.collect()
        left = take_traces(base).beyond(before)
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
