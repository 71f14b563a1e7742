"""Usage is measured where this process may collect its sandboxes' orphans, and not claimed where it may not.

A subreaper is made for good, so these run in a process of their own, as the command line and the daemon do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from palyra.model.call import Tier
from palyra.sandbox.landlock import SCOPE_ABI
from tests.conformance.arena import Arena, host
from tests.promises import promise

pytestmark = pytest.mark.slow

PRELUDE = """
import asyncio, json, os, sys
from dataclasses import replace
from pathlib import Path
from typing import Any
sys.path[:0] = json.loads(sys.argv[1])
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.sandbox.planner import plan_job
from tests.conformance.arena import Arena, Kept, host
place = Arena(Tier(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
facts = replace(host(), subreaper=True)
executor = ProcessExecutor(facts)
async def run(*argv):
    return await executor.run(plan_job(place.job(*argv), facts), Kept())
def children():
    return open(f"/proc/self/task/{os.getpid()}/children").read().split()
"""


def own_process(place: Arena, program: str) -> Any:
    root = Path(__file__).parents[2]
    arguments = [json.dumps([str(root / "src"), str(root)]), place.tier.value, str(place.folder), str(place.owner)]
    # A process's peak of memory begins at its parent's: a shell in between is small, however large these tests are.
    shell = ["/bin/sh", "-c", '"$@"; exit $?', "sh"]
    argv = [*shell, sys.executable, "-c", PRELUDE + textwrap.dedent(program), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_cpu_time_of_the_whole_tree_is_measured(place: Arena) -> None:
    program = """
        burn = "import time\\nwhile time.process_time() < 0.4: pass"
        both = f'/usr/bin/python3 -I -S -c "$0" & /usr/bin/python3 -I -S -c "$0"; wait'
        ended = asyncio.run(run("/bin/sh", "-c", both, burn))
        print(json.dumps([ended.exit_code, ended.usage.cpu_us]))
    """
    code, cpu_us = own_process(place, program)
    assert code == 0
    assert 750_000 < cpu_us < 2_000_000


LEFT = """
        burn = "x = 0\\nwhile True: x += 1"
        left = '/usr/bin/python3 -I -S -c "$0" & setsid /usr/bin/python3 -I -S -c "$0" & sleep 1'
        flood = '/usr/bin/python3 -I -S -c "$0"; exec yes'
        some = "import time\\nwhile time.process_time() < 0.4: pass"
"""


def test_time_of_processes_that_are_killed_with_the_call_is_measured_too(tier_c: Arena) -> None:
    """A budget of processor time was not charged for what was still running when the program ended, nor, where the
    program was killed, for what it had waited for."""
    program = """
        async def go():
            return await run("/bin/sh", "-c", left, burn), await run("/bin/sh", "-c", flood, some)
        print(json.dumps([[ended.status.value, ended.usage.cpu_us] for ended in asyncio.run(go())]))
    """
    (completed, left), (flooded, waited) = own_process(tier_c, LEFT + program)
    assert (completed, flooded) == ("completed", "quota_exceeded")
    assert left > 200_000
    assert waited > 390_000


def test_in_a_sandbox_started_ahead_usage_is_known_of_every_call(tier_c: Arena) -> None:
    program = """
        from palyra.launch.pool import PoolSize
        executor = ProcessExecutor(facts, warm=PoolSize(refill_after_s=0.0))
        async def go():
            await run("/bin/true")
            ends = []
            for argv in [("/bin/true",)] * 20 + [("/bin/sh", "-c", left, burn), ("/bin/sh", "-c", flood, some)]:
                await asyncio.sleep(0.1)
                ends.append((await run(*argv)).usage.cpu_us)
            hits = executor.pool.counts.hits
            await executor.close()
            return hits, ends
        print(json.dumps(asyncio.run(go())))
    """
    hits, ends = own_process(tier_c, LEFT + program)
    assert hits > 10
    assert None not in ends
    assert ends[-2] > 200_000
    assert ends[-1] > 390_000


def test_the_peak_of_memory_is_the_programs_own_or_unknown(place: Arena) -> None:
    program = """
        ballast = bytearray(os.urandom(1 << 20)) * 150
        small = asyncio.run(run("/bin/true")).usage.max_rss_bytes
        del ballast
        big = asyncio.run(run("/usr/bin/python3", "-I", "-S", "-c", "x = b'x' * (400 << 20)")).usage.max_rss_bytes
        print(json.dumps([small, big]))
    """
    small, big = own_process(place, program)
    assert small is None or small < 50 << 20
    assert 400 << 20 < big < 600 << 20


def test_a_subreaper_is_left_without_orphans(place: Arena) -> None:
    program = """
        async def go():
            script = "echo x; sleep 0.05 & exit 3"
            return await asyncio.gather(*(run("/bin/sh", "-c", script) for _ in range(24)))
        codes = {ended.exit_code for ended in asyncio.run(go())}
        if place.tier is Tier.B:  # without a namespace the last ones may still be dying; the next call takes them
            asyncio.run(asyncio.sleep(0.2))
            asyncio.run(run("/bin/true"))
        asyncio.run(executor.close())
        print(json.dumps([sorted(codes), children()]))
    """
    assert own_process(place, program) == [[3], []]


def test_nothing_is_claimed_where_orphans_are_not_ours(tier_c: Arena) -> None:
    usage = tier_c.run("/bin/true").execution.usage
    assert (usage.cpu_us, usage.max_rss_bytes) == (None, None)
    assert usage.wall_us > 0


def test_time_is_counted_from_when_the_program_was_let_go(place: Arena) -> None:
    """Not from when somebody first looked: a budget would be spent too slowly, and a short program took none."""
    for _ in range(3):
        assert place.run("/bin/sleep", "0.05").execution.usage.wall_us >= 50_000


@promise("sandbox.killed-engine")
def test_the_sandbox_dies_with_the_engine(place: Arena) -> None:
    """Killed without a chance to tidy up: tier C leaves nothing, and tier B nothing that a guardian can signal."""
    if place.tier is Tier.B and host().landlock_abi < SCOPE_ABI:
        pytest.skip("tier B does not promise that a call ends with the engine where Landlock scopes no signals")
    program = """
        async def go():
            loop = "while :; do echo . >> alive; sleep 0.01; done"
            task = asyncio.create_task(run("/bin/sh", "-c", 'setsid sh -c "$0" & sleep 60', loop))
            while not (place.workspace / "alive").exists():
                await asyncio.sleep(0.01)
            print(json.dumps("begun"), flush=True)
            os.kill(os.getpid(), 9)
        asyncio.run(go())
    """
    root = Path(__file__).parents[2]
    arguments = [json.dumps([str(root / "src"), str(root)]), place.tier.value, str(place.folder), str(place.owner)]
    done = subprocess.run([sys.executable, "-c", PRELUDE + textwrap.dedent(program), *arguments], timeout=60,
                          capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stdout) == (-9, '"begun"\n'), done.stderr
    from tests.conformance.survivors import still_writing

    assert not (still_writing(place) and still_writing(place))
