"""An engine that is killed at any moment of a launch leaves no process behind: none of a sandbox, none of its launcher.

Between two system calls of a launcher's, which asked to die with the engine and has not let its first process go on, a
kill still leaves that one, waiting: rarely (it was one in six), with nothing of anybody's run, and `palyra gc` ends it.

Each kill hits a process of its own, forked from one that has everything imported and planned, after a delay of its own:
from before the launcher has started to long after its program runs. Cold launches, refills of a pool, and running
programs are all hit by that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from palyra.launch.orphans import Orphan, end_orphan
from palyra.launch.survivors import start_ticks
from tests.conformance.arena import Arena, host
from tests.promises import promise

pytestmark = pytest.mark.slow

KILLS = 40
STEP_S = 0.0003
PATIENCE_S = 10.0
RARE = 2
PROGRAM = """
import asyncio, json, os, signal, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from palyra.launch.pool import PoolSize
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.sandbox.planner import plan_job
from tests.conformance.arena import Arena, Kept, host
place = Arena(Tier.C, Path(sys.argv[2]), int(sys.argv[3]))
plan = plan_job(place.job(*json.loads(sys.argv[4])), host())
size = PoolSize(per_template=2, total=2, refill_after_s=0) if sys.argv[5] == "pool" else None

async def launch(delay_s):
    made = ProcessExecutor(host(), warm=size)
    signal.setitimer(signal.ITIMER_REAL, delay_s)
    if made.pool is not None:
        from palyra.launch.held import template_of
        made.pool.wish(template_of(plan))
        await made.pool.settled()
    while True:
        await made.run(plan, Kept())

for number in range(int(sys.argv[6])):
    pid = os.fork()
    if not pid:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # as deadly as SIGKILL, and exact
        asyncio.run(launch(0.0005 + number * float(sys.argv[7])))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGALRM
"""


def left(place: Arena) -> dict[int, bytes]:
    """Launchers that name the workspace, and whatever sees it mounted."""
    found, workspace = {}, os.fsencode(place.workspace)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            mounts = Path(f"/proc/{pid}/mountinfo").read_bytes()
        except OSError:
            continue
        if (b"bwrap" in words and workspace in words) or b" " + workspace + b" " in mounts:
            found[int(pid)] = words[:80]
    return found


@promise("sandbox.killed-engine")
@pytest.mark.parametrize("how", ["cold", "pool"])
@pytest.mark.parametrize("argv", [["/bin/true"], ["/bin/sleep", "60"]], ids=["short", "long"])
def test_an_engine_killed_at_any_moment_of_a_launch_leaves_nothing_that_runs(
    place_c: Arena, how: str, argv: list[str]
) -> None:
    root = Path(__file__).parents[2]
    words = [json.dumps([str(root / "src"), str(root)]), str(place_c.folder), str(place_c.owner), json.dumps(argv), how]
    numbers = [str(KILLS), str(STEP_S if how == "cold" else STEP_S * 2)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words, *numbers], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    until = time.monotonic() + PATIENCE_S
    while (found := left(place_c)) and time.monotonic() < until:
        time.sleep(0.05)
    facts = host().bubblewrap
    assert facts is not None
    assert len(found) <= RARE, found
    assert all(end_orphan(Orphan(pid, start_ticks(pid) or 0), facts.path) for pid in found)
    assert left(place_c) == {}
