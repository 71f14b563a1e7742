"""`make test-browser`: a daemon with a home that has lived, walked through by a real Chromium.

The daemon runs here, on a loopback port of its own; the walk is a program of its own (walk.py), because what drives
the browser is installed beside the project and not into it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from palyra.config.daemon import DaemonConfig
from palyra.config.load import Home
from palyra.daemon.server import Server
from palyra.daemon.state import State, make_state
from palyra.daemon.table import ROUTES
from palyra.wiring.embedded import open_installation
from tests.consoles import packed, portrait, world
from tests.daemons import OPERATOR
from tests.making_skills import tool

WALK = Path(__file__).with_name("walk.py")


async def main(python: str, shots: Path, prepares: Callable[[Path], dict[str, str]]) -> int:
    await asyncio.to_thread(shots.mkdir, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="palyra-browser-") as base:
        calls = await asyncio.to_thread(prepares, Path(base))
        installation = await open_installation(Home(Path(base, "home")))
        try:
            state = make_state(installation, replace(DaemonConfig(), port=0))
            server = Server(state, ROUTES)
            ready = asyncio.Event()
            serving = asyncio.create_task(server.serve(on_ready=ready.set))
            await ready.wait()
            try:
                return await walk(python, shots, await told(state, Path(base), calls))
            finally:
                server.end()
                await serving
        finally:
            await installation.close()


def prepare(base: Path) -> dict[str, str]:
    with world(base) as lived:
        return {name: outcome.call_id for name, outcome in lived.calls.items()}


def portray(base: Path) -> dict[str, str]:
    """A day in the life of a home, for the pictures of the guide."""
    with portrait(base) as lived:
        return {name: outcome.call_id for name, outcome in lived.calls.items()}


async def told(state: State, base: Path, calls: dict[str, str]) -> dict[str, Any]:
    """What the walk needs to know."""
    _, agent = await state.tokens.create(
        principal="agent:browser", operator=False, by=OPERATOR, workspace=str(base / "workspace")
    )
    _, operator = await state.tokens.create(principal="user:another", operator=True, by=OPERATOR)
    return {
        "url": next(place for place in state.listening if place.startswith("http")),
        "agent": agent,
        "operator": operator,
        "workspace": str(base / "workspace"),
        "calls": calls,
        "packages": [str(await asyncio.to_thread(_package, base, name)) for name in ("plain", "scripts")],
        "profile": str(base),
        "portrait": "portrait" in calls,
    }


def _package(base: Path, name: str) -> Path:
    path = base / f"{name}.palyra-skill"
    path.write_bytes(packed(f"acme.uploaded-{name}", "1.0.0", tools=(tool(f"acme.uploaded-{name}"),)))
    return path


async def walk(python: str, shots: Path, known: dict[str, Any]) -> int:
    process = await asyncio.create_subprocess_exec(python, str(WALK), str(shots), stdin=asyncio.subprocess.PIPE)
    await process.communicate(json.dumps(known).encode())
    return process.returncode or 0


if __name__ == "__main__":
    prepares = portray if "--portrait" in sys.argv else prepare
    sys.exit(asyncio.run(main(sys.argv[1], Path(sys.argv[2]), prepares)))
