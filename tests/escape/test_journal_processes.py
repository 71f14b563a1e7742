"""Real processes, real kills, real full disks: nothing acknowledged is lost, nothing half written is believed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.journal.entry import parse_entry
from palyra.journal.store import JournalRows
from palyra.state.connection import snapshot
from palyra.state.db import open_home
from tests.children import PROJECT, child_environ, run_child
from tests.journaling import audit_home, open_store, opening, run_spec, ulid
from tests.promises import promise

WORKER = """
import asyncio, sys
from pathlib import Path
from tests.journaling import *

async def call(store, run):
    call_id = ulid()
    opened = await store.open_call(opening(call_id, run))
    print(opened.receipt.index, flush=True)
    closed = await store.close_call(closing(call_id, run))
    print(closed.receipt.index, flush=True)

async def work(home, callers, rounds):
    writer, store = open_store(Path(home))
    async def caller():
        run = run_spec(ulid())
        for _ in range(rounds):
            await call(store, run)
    await asyncio.gather(*(caller() for _ in range(callers)))
    writer.close()

asyncio.run(work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


def start(home: Path, *, callers: int, rounds: int) -> subprocess.Popen[str]:
    """A process of its own that walks calls through the journal of `home` and prints what was acknowledged."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(home), str(callers), str(rounds)],
        cwd=PROJECT,
        env=child_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def indexes(home: Path) -> list[int]:
    found, connection = open_home(home)
    connection.close()
    with snapshot(found.database) as view:
        return [entry.index for entry in JournalRows(view).entries()]


@pytest.mark.slow
def test_twenty_processes_that_start_at_once_in_no_home_share_one_journal(home: Path) -> None:
    children = [start(home, callers=2, rounds=5) for _ in range(20)]
    outputs = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0] * 20, outputs[0][1]
    acknowledged = sorted(int(line) for output, _ in outputs for line in output.split())
    assert acknowledged == list(range(400)) == indexes(home)
    found, connection = open_home(home)
    connection.close()
    assert audit_home(found, every=True).findings == ()


KILLS = int(os.environ.get("PALYRA_KILLS", "30"))

KILLER = """
import asyncio, json, os, random, signal, sys, time
from pathlib import Path
from palyra.journal.store import JournalRows
from palyra.state.connection import snapshot
from tests.journaling import *

home, kills, callers = Path(sys.argv[1]), int(sys.argv[2]), 64

async def caller(store, pipe):
    run = run_spec(ulid())
    while True:
        call_id = ulid()
        opened = await store.open_call(opening(call_id, run))
        os.write(pipe, b"%d\\n" % opened.receipt.index)
        closed = await store.close_call(closing(call_id, run))
        os.write(pipe, b"%d\\n" % closed.receipt.index)

async def work(pipe):
    _, store = open_store(home)
    await asyncio.gather(*(caller(store, pipe) for _ in range(callers)))

Writer.open(home).close()
acknowledged, chance, rounds = set(), random.Random(7), []
for number in range(kills):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # a fork of its own each time: what a kill leaves is what the next one finds
        import tests.journaling as journaling
        journaling._counter = itertools.count(os.getpid() << 40 | number << 30)
        os.close(read)
        try:
            asyncio.run(work(write))
        finally:
            os._exit(1)
    os.close(write)
    said = os.read(read, 1 << 16)
    while said.count(b"\\n") < 33 and (more := os.read(read, 1 << 16)):  # a busy machine takes longer over as many
        said += more
    time.sleep(chance.uniform(0.0, 0.12))
    os.kill(pid, signal.SIGKILL)
    while more := os.read(read, 1 << 16):
        said += more
    os.close(read)
    os.waitpid(pid, 0)
    lines = said.split(b"\\n")[:-1]  # the last line may have been cut by the kill itself
    acknowledged |= {int(line) for line in lines}
    writer, _ = open_store(home)
    with snapshot(writer.home.database) as view:
        there = [entry.index for entry in JournalRows(view).entries()]
    assert there == list(range(len(there)))
    assert acknowledged <= set(there), sorted(acknowledged - set(there))[:5]
    rounds.append(len(lines))
    if number % 10 == 9 or number == kills - 1:
        assert audit_home(writer.home, alive=True, every=number == kills - 1).findings == ()
    writer.close()
print(json.dumps({"kills": len(rounds), "acknowledged": len(acknowledged), "entries": len(there)}))
"""


@promise("journal.killed-process")
@pytest.mark.slow
def test_nothing_acknowledged_is_lost_to_thirty_sigkills_under_sixty_four_callers(home: Path) -> None:
    said = json.loads(run_child(KILLER, str(home), str(KILLS)))
    assert said["kills"] == KILLS
    assert said["entries"] >= said["acknowledged"] > 64 * KILLS // 2


@promise("journal.killed-process")
@pytest.mark.slow
def test_calls_that_a_kill_left_open_are_listed_with_their_owner(home: Path) -> None:
    child = start(home, callers=4, rounds=10**6)
    assert child.stdout is not None
    for _ in range(20):
        child.stdout.readline()
    child.kill()
    child.communicate(timeout=60)
    writer, store = open_store(home)
    left = asyncio.run(store.open_calls())
    report = audit_home(writer.home, alive=False)
    assert sorted(call.intent_index or 0 for call in left) == sorted(f.index or 0 for f in report.findings)
    assert {finding.code for finding in report.findings} <= {"DANGLING"}
    writer.close()


FULL = """
import asyncio, sys
from pathlib import Path
from palyra.errors import StateError
from tests.journaling import *

LIMIT = "limit" in sys.argv

async def work(home):
    writer, store = open_store(Path(home))
    run = run_spec(ulid())
    opened = []
    if LIMIT:
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    try:
        for _ in range(5000):
            call_id = ulid()
            await store.open_call(opening(call_id, run, details=ulid().encode() * 400))
            opened.append(call_id)
            if len(opened) > 3:
                await store.close_call(closing(opened.pop(0), run))
        print("never full")
    except StateError as error:
        print("refused", error.detail)
    refusals = 0
    for _ in range(500):
        try:
            await store.close_call(closing(ulid(), run, opened=False, outcome=ulid().encode() * 100))
            refusals += 1
        except StateError:
            pass
    closed = 0
    for call_id in opened:
        try:
            await store.close_call(closing(call_id, run))
            closed += 1
        except StateError:
            pass
    print("closed", closed, "of", len(opened), "and refused", refusals)
    try:
        await store.open_call(opening(ulid(), run))
        print("opened again")
    except StateError:
        print("stopped")

asyncio.run(work(sys.argv[1]))
"""


def fill(home: Path, *arguments: str, wrap: tuple[str, ...] = ()) -> list[str]:
    return run_child(FULL, str(home), *arguments, wrap=wrap, timeout_s=120).splitlines()


@promise("journal.power-cut")
@pytest.mark.slow
def test_a_write_that_the_system_refuses_stops_the_journal_and_leaves_it_sound(home: Path) -> None:
    refused, closed, stopped = fill(home, "limit")
    assert refused.startswith("refused The journal could not be written")
    assert closed.startswith("closed 0 of")
    assert stopped == "stopped"
    found, connection = open_home(home)
    connection.close()
    assert audit_home(found, alive=True).findings == ()
    writer, store = open_store(home)
    assert asyncio.run(store.open_call(opening(ulid(), run_spec(ulid())))).receipt.index > 0
    writer.close()


@promise("journal.full-disk-endings")
@pytest.mark.slow
def test_on_a_disk_that_is_really_full_calls_that_ran_are_still_closed(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = (f"mount -t tmpfs -o size=4m,mode=700 none '{disk}' && \"$@\" && "
             f"cp -r '{disk}/home' '{tmp_path}/copy'")  # fmt: skip
    wrap = (unshare or "", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh")
    if unshare is None or subprocess.run([*wrap[:4], "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here, so no small disk can be mounted")
    refused, closed, stopped = fill(disk / "home", wrap=wrap)
    assert refused.startswith("refused The disk is full")
    assert closed in ("closed 3 of 3 and refused 0", "closed 4 of 4 and refused 0"), "no refusal takes their space"
    assert stopped == "stopped"
    found, connection = open_home(tmp_path / "copy")
    connection.close()
    report = audit_home(found, alive=False)
    assert (report.findings, report.open_calls) == ((), 0)
    with snapshot(found.database) as view:
        last = list(JournalRows(view).entries())[-1]
    assert parse_entry(last.body).kind == "urn:palyra:result:v1"


SHARED_DISK = """
import asyncio, sys
from pathlib import Path
from subprocess import Popen
from palyra.errors import StateError
from tests.journaling import closing, open_store, opening, run_spec, ulid

home, processes = sys.argv[1], int(sys.argv[2])
writer, store = open_store(Path(home))
run, opened, closed = run_spec(ulid(), calls_max=10**6), [], []

async def go_on():
    while True:
        call_id = ulid()
        await store.open_call(opening(call_id, run, details=b"x" * 3000))
        opened.append(call_id)
        await asyncio.sleep(0.05)  # it runs
        await store.close_call(closing(call_id, run, outcome=b'{"a":"' + b"y" * 3000 + b'"}'))
        closed.append(call_id)

async def work():
    return await asyncio.gather(*(go_on() for _ in range(4)), return_exceptions=True)

others = [Popen([sys.executable, "-c", sys.argv[3], home, "0", ""]) for _ in range(processes)]
said = asyncio.run(work())
assert all(isinstance(one, StateError) and "disk is full" in str(one) for one in said), said
print(len(opened) - len(closed), "of", len(opened), "were left open")
writer.close()
assert [other.wait() for other in others] == [0] * processes
"""


@promise("journal.full-disk-endings")
@pytest.mark.slow
def test_on_a_full_disk_every_process_of_a_home_closes_the_calls_that_ran(tmp_path: Path) -> None:
    """The first one gave the reserve back: new calls of the others, and their copying of the log, took all of it."""
    unshare = shutil.which("unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=20m,mode=700 none '{disk}' && \"$@\""
    wrap = (unshare or "", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh")
    if unshare is None or subprocess.run([*wrap[:4], "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here, so no small disk can be mounted")
    said = run_child(SHARED_DISK, str(disk / "home"), "4", SHARED_DISK, wrap=wrap, timeout_s=300).splitlines()
    assert [line.split()[0] for line in said] == ["0"] * 5, said
