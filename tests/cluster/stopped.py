"""A daemon of another machine, for a test that stops it: `python -m tests.cluster.stopped HOME WORKSPACE FOLDER ID`.

It has a boot of its own and a short lease, and its calls go to a node of its own process. It makes one call, says when
the program speaks, and at its end what the call's outcome was.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from palyra.api import AsyncPalyra
from palyra.cluster import leases
from palyra.wiring import cluster, embedded
from palyra.wiring.owners import ProcessOwners
from tests.cluster.machines import Machines

LEASE_MS = 2000


def shorten() -> None:
    leases.LEASE_MS, leases.SURE_MS, leases.RENEW_S = LEASE_MS, LEASE_MS - 500, 0.2


class Elsewhere(ProcessOwners):
    def __init__(self) -> None:
        super().__init__()
        self._boot_id = "of another machine"
        self._me = self._owner(self._me.pid)


class Door(cluster.ClusterDoor):
    """As if `cluster.nodes` were set."""

    folder: Path

    def __init__(self, config: Any, writer: Any, owners: Any, here: Any, **given: Any) -> None:
        super().__init__(config, writer, owners, here, **given)
        machines = Machines(self.folder, tenure=owners, key=writer.home.key, now=time.time_ns() // 1_000_000)
        machines.add("one")
        self.executor = machines.executor()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def call(home: str, workspace: str) -> dict[str, Any]:
    async with AsyncPalyra.open(home) as palyra:
        run = palyra.run(principal="agent:demo", workspace=workspace)
        given = {"command": "sh", "args": ["-c", "echo begun; sleep 1; echo late > effect"]}
        task = asyncio.ensure_future(run.call("palyra.process.run", given, call_id=sys.argv[4]))
        while not await palyra.installation.journal.open_calls():
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        say("begun")
        outcome = await task
        return {"status": outcome.status, "reason": outcome.reason}


if __name__ == "__main__":
    shorten()
    cluster.ProcessOwners = Elsewhere  # type: ignore[misc, assignment]
    Door.folder = Path(sys.argv[3])
    embedded.ClusterDoor = Door  # type: ignore[attr-defined]
    say(json.dumps(asyncio.run(call(sys.argv[1], sys.argv[2]))))
