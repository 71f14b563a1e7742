"""Power cuts and failing disks under the real writer: nothing acknowledged is lost, nothing half written is believed.

Each test runs in a process of its own, because the disk stands in front of SQLite for the whole process. One run is
recorded, then the power is cut at many moments of it and every resulting disk is opened, audited and compared with what
had been acknowledged by then. With `synchronous=NORMAL` the same cuts lose entries: the test can fail.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.children import run_child
from tests.promises import promise

CUTS = int(os.environ.get("PALYRA_POWER_CUTS", "200"))
NO_LIBRARY = "Python's SQLite is built in here, so no disk can stand in front of it"

RECORD = """
import asyncio, os, pickle, random, sys
from pathlib import Path
from palyra.state import sqlite as writing
from tests.fake_disk import *
from tests.journaling import *

home, mode, target = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
writing.ENTRIES_PER_COPY_BACK = 24  # the log is copied back several times within the run
Writer.open(home).close()
disk = Disk()
if not disk.install():
    print('{"skip": true}')
    raise SystemExit
before = {path.name: path.read_bytes() for path in (home / "state").glob("palyra.db*")}
acknowledged = []  # (events so far, index)

async def caller(store):
    run = run_spec(ulid())
    for _ in range(6):
        call_id = ulid()
        opened = await store.open_call(opening(call_id, run, details=ulid().encode() * random.randrange(1, 60)))
        acknowledged.append((len(disk.events), opened.receipt.index))
        closed = await store.close_call(closing(call_id, run))
        acknowledged.append((len(disk.events), closed.receipt.index))

async def work():
    writer, store = open_store(home)
    if mode == "normal":
        writer.database.connection.execute("PRAGMA synchronous = NORMAL")
    await asyncio.gather(*(caller(store) for _ in range(6)))
    await asyncio.sleep(0.2)

asyncio.run(work())
target.write_bytes(pickle.dumps((before, [tuple(vars(e).values()) for e in disk.events], acknowledged)))
print('{}', flush=True)
os._exit(0)  # the disk must not go before the connections that use it
"""

JUDGE = """
import asyncio, json, pickle, random, shutil, sys
from pathlib import Path
from palyra.errors import StateError
from palyra.journal.store import JournalRows
from palyra.state.connection import snapshot
from palyra.state.db import open_home
from tests.fake_disk import *
from tests.journaling import *

home, source, cuts = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
before, raw, acknowledged = pickle.loads(source.read_bytes())
events = [Event(*one) for one in raw]

def judge(number, images, known):
    copy = home.parent / f"after-{number}"
    (copy / "state").mkdir(mode=0o700, parents=True)
    for name in ("installation.key", "writer.lock", "reserve"):
        shutil.copy2(home / "state" / name, copy / "state" / name)
    restore(copy / "state", images)
    try:
        writer, store = open_store(copy)
    except StateError as error:
        return "unreadable: " + error.detail
    try:
        report = audit_home(writer.home, alive=True)
        if report.findings:
            return "unsound: " + report.findings[0].detail
        with snapshot(writer.home.database) as view:
            there = {entry.index for entry in JournalRows(view).entries()}
        if known - there:
            return f"lost {len(known - there)}"
        # Whoever was cut off goes on from there.
        index = asyncio.run(store.open_call(opening(ulid(), run_spec(ulid())))).receipt.index
        return "ok" if index == len(there) else f"went on at {index} of {len(there)}"
    finally:
        writer.close()
        shutil.rmtree(copy)

chance, outcomes = random.Random(4711), {}
for number in range(cuts):
    at = chance.randrange(1, len(events) + 1)
    images = cut_power(before, events[:at], chance=random.Random(number))
    outcome = judge(number, images, {index for moment, index in acknowledged if moment <= at})
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
kinds = {(event.file, event.what) for event in events}
print(json.dumps({"outcomes": outcomes, "acknowledged": len(acknowledged), "events": len(events),
                  "copied_back": ("palyra.db", "write") in kinds}))
"""

FAULTS = """
import asyncio, json, os, sys
from pathlib import Path
from palyra.errors import StateError
from tests.fake_disk import *
from tests.journaling import *

home, what, code = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
Writer.open(home).close()
disk = Disk(fail_code=code)
if not disk.install():
    print(json.dumps({"skip": True}))
    raise SystemExit

async def scenario():
    writer, store = open_store(home)
    run, said, done = run_spec(ulid()), [], []
    first = ulid()
    done.append((await store.open_call(opening(first, run))).receipt.index)
    if what == "write":
        disk.fail_write_at = disk.writes + 2
    else:
        disk.fail_sync_at = disk.syncs + 1
    for _ in range(3):
        try:
            done.append((await store.open_call(opening(ulid(), run))).receipt.index)
        except StateError as error:
            said.append(error.detail)
    disk.fail_write_at = disk.fail_sync_at = 1 << 60  # the disk is well again, and nobody trusts it
    try:
        done.append((await store.close_call(closing(first, run))).receipt.index)
    except StateError as error:
        said.append(error.detail)
    writer.close()
    return said, done

said, done = asyncio.run(scenario())
writer, store = open_store(home)
report = audit_home(writer.home, alive=True)
print(json.dumps({"said": said, "done": done, "entries": report.entries,
                  "findings": [f.code for f in report.findings]}), flush=True)
writer.close()
os._exit(0)
"""


def run(program: str, *arguments: str) -> dict:
    said: dict = json.loads(run_child(program, *arguments))
    if "skip" in said:
        pytest.skip(NO_LIBRARY)
    return said


def cut(home: Path, tmp_path: Path, mode: str, cuts: int) -> dict:
    run(RECORD, str(home), mode, str(tmp_path / "events"))
    return run(JUDGE, str(home), str(tmp_path / "events"), str(cuts))


@promise("journal.power-cut")
@pytest.mark.slow
def test_no_power_cut_loses_what_was_acknowledged(home: Path, tmp_path: Path) -> None:
    said = cut(home, tmp_path, "full", CUTS)
    assert said["outcomes"] == {"ok": CUTS}
    assert said["acknowledged"] == 72
    assert said["copied_back"]


@promise("journal.power-cut")
@pytest.mark.slow
def test_the_same_cuts_lose_entries_with_synchronous_normal(home: Path, tmp_path: Path) -> None:
    """The negative control: a journal that does not wait for the disk is caught by the test above."""
    said = cut(home, tmp_path, "normal", 40)
    assert any(outcome.startswith("lost") for outcome in said["outcomes"]), said


@promise("journal.power-cut")
@pytest.mark.slow
@pytest.mark.parametrize(("what", "code"), [("write", 778), ("sync", 1034), ("write", 266)])
def test_a_disk_that_refuses_a_write_or_a_sync_stops_the_journal_for_good(home: Path, what: str, code: int) -> None:
    said = run(FAULTS, str(home), what, str(code))
    assert len(said["said"]) == 4
    assert all(detail.startswith("The journal could not be written") for detail in said["said"])
    assert (said["done"], said["findings"]) == ([0], [])
    assert said["entries"] in (1, 2)  # what failed to sync may be there, and was never acknowledged


@promise("journal.full-disk-endings")
@pytest.mark.slow
def test_a_full_disk_refuses_calls_and_lets_what_ran_be_closed(home: Path) -> None:
    said = run(FAULTS, str(home), "write", "13")
    assert [detail.split(";")[0] for detail in said["said"]] == ["The disk is full"] * 3
    assert (said["done"], said["findings"]) == ([0, 1], [])
