"""FS_ISOLATED while the host mounts and unmounts: what a sandbox shows was verified, and nothing comes along later.

Most hosts share their mounts with whatever is made from them (systemd makes it so), and then a volume that is mounted
below a read-only folder appears in a running sandbox, writable. So each test is a process of its own that shares its
own mounts and may make some.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from palyra.model.call import Tier
from tests.conformance.arena import OWNERS, require
from tests.promises import promise

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PRELUDE = """
import asyncio, json, os, subprocess, sys
from tests.conformance.arena import *

SEE = "ls {0}; echo x 2>/dev/null > {0}/planted && echo planted; grep -c ' master:' /proc/self/mountinfo"

def mount(where):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "volume", str(where)], check=True)
    (where / "private").touch()

def folders(place):
    made = place.folder / "granted" / "volume", place.workspace / "volume"
    for folder in made:
        folder.mkdir(parents=True)
        place.give(folder)
    return made
"""


def run(story: str, *words: str) -> Any:
    """In a process that is root over mounts of its own, which it shares with whatever it starts."""
    require(Tier.C)
    as_root = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *as_root, "--mount", "--propagation", "shared"]
    if subprocess.run([*unshare, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode:
        pytest.skip("no mounts can be made here")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", PRELUDE + textwrap.dedent(story), *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@promise("fs-isolated.late-mounts")
@pytest.mark.parametrize("owner", OWNERS if os.getuid() == 0 else [0])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_nothing_that_the_host_mounts_later_appears_inside(owner: int, closed: bool) -> None:
    """Below a granted folder it was writable; in the workspace it would lie over what was closed there."""
    story = """
        owner, closed = int(sys.argv[1]), sys.argv[2] == "closed"
        with arena(Tier.C, owner) as place:
            granted, inner = folders(place)
            (place.workspace / ".git").mkdir()
            program = "touch began; until [ -e mounted ]; do sleep 0.02; done; "
            program += "; ".join(map(SEE.format, (granted, inner)))
            async def go():
                roots = (str(granted.parent),)
                protected = (str(place.workspace / ".git"),) if closed else ()
                call = asyncio.create_task(place.start(
                    "/bin/sh", "-c", program, read_roots=roots, granted_roots=roots, protected=protected))
                while not (place.workspace / "began").exists():
                    await asyncio.sleep(0.02)
                mount(granted)
                mount(inner)
                (place.workspace / "mounted").touch()
                return await call
            words = asyncio.run(go()).output.stdout.split()
            print(json.dumps([words, sorted(os.listdir(granted)), sorted(os.listdir(inner))]))
            for folder in (granted, inner):
                subprocess.run(["umount", str(folder)], check=True)
    """
    words, granted, inner = run(story, str(owner), "closed" if closed else "open")
    assert words in (["0", "planted", "0"], ["0", "0"])  # what was written lies in the workspace, below the volume
    assert granted == inner == ["private"]


def test_what_the_host_has_mounted_since_is_not_missing_from_a_sandbox_started_before() -> None:
    story = """
        with arena(Tier.C, 0) as place:
            granted, inner = folders(place)
            roots = (str(granted.parent),)
            async def go():
                made = ProcessExecutor(host(), warm=PoolSize(per_template=1, total=1, refill_after_s=0))
                job = place.job("/bin/ls", str(granted), str(inner), read_roots=roots, granted_roots=roots)
                plan = plan_job(job, host())
                await made.run(plan, Kept())
                await made.pool.settled()
                ready = made.pool.idle
                mount(granted)
                mount(inner)
                output = Kept()
                await made.run(plan, output)
                await made.pool.settled()
                elsewhere = place.outside / "volume"
                elsewhere.mkdir()
                mount(elsewhere)  # that is nothing to it: the next one is used
                await made.run(plan, Kept())
                await made.close()
                counts = made.pool.counts
                return [ready, output.stdout.split().count("private"), counts.hits, counts.discarded]
            print(json.dumps(asyncio.run(go())))
            for folder in (granted, inner, place.outside / "volume"):
                subprocess.run(["umount", str(folder)], check=True)
    """
    assert run(story) == [1, 2, 1, 1]


@promise("fs-isolated.remounted-read-only")
@pytest.mark.parametrize("which", ["below", "itself"])
def test_a_mount_that_the_host_has_made_read_only_since_is_not_writable_in_a_sandbox_started_before(which: str) -> None:
    """It was the same mount at the same place, and only its options had changed: the next call could write in it."""
    story = """
        with arena(Tier.C, 0) as place:
            volume = folders(place)[1] if sys.argv[1] == "below" else place.folder
            async def go():
                made = ProcessExecutor(host(), warm=PoolSize(per_template=1, total=1, refill_after_s=0))
                where = place.workspace / "volume" if sys.argv[1] == "below" else place.workspace
                plan = plan_job(place.job("/usr/bin/touch", str(where / "planted")), host())
                await made.run(plan, Kept())
                await made.pool.settled()
                ready = made.pool.idle
                (where / "planted").unlink()
                subprocess.run(["mount", "-o", "remount,bind,ro", str(volume)], check=True)
                await made.run(plan, Kept())
                await made.close()
                return [ready, (where / "planted").exists(), made.pool.counts.hits]
            if sys.argv[1] == "below":
                mount(volume)
            else:
                subprocess.run(["mount", "--bind", str(volume), str(volume)], check=True)
            print(json.dumps(asyncio.run(go())))
            subprocess.run(["umount", str(volume)], check=True)
    """
    assert run(story, which) == [1, False, 0]


@pytest.mark.parametrize("owner", OWNERS if os.getuid() == 0 else [0])
def test_a_volume_below_what_is_closed_keeps_no_sandbox_from_starting_and_is_shown_as_it_is(owner: int) -> None:
    """Dependencies on a volume beside a repository in a folder: nothing ran in such a workspace any more, and it was
    said that the workspace had changed. Below a read-only folder a volume is read-only, too."""
    story = """
        owner, words = int(sys.argv[1]), []
        with arena(Tier.C, owner) as place:
            hooks, closed = place.workspace / "inner" / ".git" / "hooks", place.workspace / ".github"
            volumes = place.workspace / "inner" / "volume", closed / "volume"
            for folder in (*volumes, hooks):
                folder.mkdir(parents=True)
            place.give(*(path for path in place.workspace.rglob("*")))
            for volume in volumes:
                mount(volume)
            program = "; ".join(f"ls {volume}; touch {volume}/new 2>/dev/null && echo written" for volume in volumes)
            program += "; mv inner other 2>/dev/null || echo stays"
            program += "; touch inner/.git/hooks/new 2>/dev/null || echo closed"
            for warm in (False, True):
                place.warm = warm
                result = place.run("/bin/sh", "-c", program, protected=(str(hooks), str(closed)))
                words.append([result.execution.message, *result.output.stdout.split()])
                (volumes[0] / "new").unlink(missing_ok=True)
            print(json.dumps(words))
            for volume in volumes:
                subprocess.run(["umount", str(volume)], check=True)
    """
    assert run(story, str(owner)) == [[None, "private", "written", "private", "stays", "closed"]] * 2


def test_cancelling_while_mounts_are_parted_leaves_no_process() -> None:
    story = """
        from palyra.launch import _os
        with arena(Tier.C, 0) as place:
            async def cancel_after(delay_s):
                call = asyncio.create_task(place.start("/bin/sleep", "30"))
                await asyncio.sleep(delay_s)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            async def go():
                for first in range(0, 60, 4):
                    await asyncio.gather(*(cancel_after(n * 0.0005) for n in range(first, first + 4)))
            asyncio.run(go())
            print(json.dumps([_os.children(os.getpid()), marked_processes(str(place.workspace))]))
    """
    assert run(story) == [[], []]


@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_a_host_that_lets_nothing_be_executed_in_dev_runs_calls_of_uid_0(closed: bool) -> None:
    """Such a flag cannot be taken from a mount in a sandbox. The devices were made read-only with all their flags said
    anew, and that one was not said: every call was refused, as if the workspace had changed."""
    story = """
        subprocess.run(["mount", "-o", "remount,bind,nosuid,noexec", "/dev"], check=True)
        with arena(Tier.C, 0) as place:
            (place.workspace / ".git").mkdir()
            protected = (str(place.workspace / ".git"),) if sys.argv[1] == "closed" else ()
            script = "chmod 666 /dev/null || grep ' /dev/null ' /proc/self/mountinfo"
            seen = place.run("/bin/sh", "-c", script, protected=protected)
            print(json.dumps([seen.execution.message, seen.output.stdout.split()[5:6]]))
    """
    message, options = run(story, "closed" if closed else "open")
    assert (message, [words.split(",")[:3] for words in options]) == (None, [["ro", "nosuid", "noexec"]])
