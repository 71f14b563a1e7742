"""A child goes on with a home that its parent used: with the kernel's locks, not only SQLite's memory of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palyra.state.db import read_home
from tests.children import run_child
from tests.journaling import audit_home

FORK = """
import json, os, sys, time
from pathlib import Path
from subprocess import run
from palyra.errors import StateError
from palyra.state.writer import Writer
from tests.journaling import NOW, act

home, how, whose = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def append(tx):
    return tx.append(act(), at_unix_ms=NOW)

def other():  # comes, writes and goes: the last one who is connected, as far as the kernel's locks tell
    return int(run([sys.executable, "-c", OTHER, home], stdout=-1, check=True).stdout)

OTHER = '''
import sys
from pathlib import Path
from palyra.state.writer import Writer
from tests.journaling import NOW, act
writer = Writer.open(Path(sys.argv[1]))
print(writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))[0])
writer.close()
'''
writer = Writer.open(home)
acknowledged = [writer.commit_now(append)[0]]
gone, left = os.pipe()
if os.fork():
    if how == "closed":
        writer.close()
    os._exit(0)
os.close(left)
os.read(gone, 1)  # the parent has ended
mine = writer if whose == "inherited" else Writer.open(home)
for _ in range(3):
    acknowledged += [mine.commit_now(append)[0], other(), mine.commit_now(append)[0]]
mine.close()
print(json.dumps(acknowledged))
"""


@pytest.mark.parametrize("whose", ["inherited", "its own"])
@pytest.mark.parametrize("how", ["closed", "ended"])
def test_a_child_goes_on_beside_others_whose_parent_closed_the_home_or_ended(home: Path, how: str, whose: str) -> None:
    """The child held no lock, and SQLite believed it did: whoever came next removed the log under it, or both went on
    with logs of their own and acknowledged two histories."""
    acknowledged = json.loads(run_child(FORK, str(home), how, whose))
    assert acknowledged == list(range(10))
    report = audit_home(read_home(home))
    assert (report.findings, report.entries) == ((), 10)


BUSY = """
import os, sys, threading
from pathlib import Path
from palyra.state.writer import Writer
from tests.journaling import NOW, act

writer, within = Writer.open(Path(sys.argv[1])), threading.Event()

def append(tx):
    within.set()
    return tx.append(act(), at_unix_ms=NOW)

def slowly(tx):
    within.set()
    forked.wait(1)  # whoever forks comes in the middle of a commit
    return tx.append(act(), at_unix_ms=NOW)

forked = threading.Event()
thread = threading.Thread(target=writer.commit_now, args=(slowly,))
thread.start()
within.wait()
child = os.fork()
forked.set()
if child == 0:
    own = Writer.open(Path(sys.argv[1]))
    print(own.commit_now(append)[0], writer.commit_now(append)[0], flush=True)
    os._exit(0)
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_forked_while_another_thread_commits_can_commit_too(home: Path) -> None:
    """It inherited the memory of a lock that nobody in it would ever give back, and waited half a minute each time."""
    assert sorted(run_child(BUSY, str(home)).split()) == ["1", "2"]
    assert audit_home(read_home(home)).findings == ()


READING = """
import os, sys, threading, time
from pathlib import Path
from subprocess import run
from palyra.errors import StateError
from palyra.state.connection import snapshot
from palyra.state.forking import SHORT_S
from palyra.state.writer import Writer
from tests.journaling import many_acts

OTHERS = '''
import sys
from pathlib import Path
from palyra.state.connection import connect
from palyra.state.writer import Writer
from tests.journaling import many_acts
writer = Writer.open(Path(sys.argv[1]))
beside = connect(writer.home.database)
for _ in range(2):  # the log is begun anew, as it is where it was copied back
    many_acts(writer, 300)
    beside.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
many_acts(writer, 1)
'''
home, length = Path(sys.argv[1]), sys.argv[2]
writer = Writer.open(home)
many_acts(writer, 300)
reading, forked = threading.Event(), threading.Event()

def read():
    with snapshot(writer.home.database) as connection:
        connection.execute("SELECT count(*) FROM entries").fetchone()
        reading.set()
        forked.wait(SHORT_S / 5 if length == "short" else None)

thread = threading.Thread(target=read)
thread.start()
reading.wait()
if length == "long":
    time.sleep(SHORT_S)
began_s = time.monotonic()
child = os.fork()
forked.set()
thread.join()
if child:
    assert time.monotonic() - began_s < 4, "everybody else waited"
    writer.close()
    assert os.waitpid(child, 0)[1] == 0
    os._exit(0)
try:
    with snapshot(home / "state" / "palyra.db") as connection:
        before = connection.execute("SELECT count(*) FROM entries").fetchone()
        run([sys.executable, "-c", OTHERS, home], check=True)
        print(*before, *connection.execute("SELECT count(*) FROM entries").fetchone(), flush=True)
except StateError as error:
    print(error.detail.replace(str(home), "HOME"), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("length", ["long", "short"])
def test_a_child_forked_while_another_thread_reads_sees_no_other_journal_within_one_reading(
    home: Path, length: str
) -> None:
    """It remembered the reader's lock, asked the kernel for none, and the log was begun anew under its own reading."""
    refused = (
        "This process was forked from one that was just using HOME/state/palyra.db, has closed it or ended, and cannot "
        "use it."
    )
    assert run_child(READING, str(home), length).strip() == (refused if length == "long" else "300 300")


INTERRUPTED = """
import os, select, threading
from palyra.state import forking

class Waits:  # a commit of another thread, as Ctrl-C finds whoever waits for it
    def acquire(self, timeout):
        raise KeyboardInterrupt

def waits_for_child():
    raise KeyboardInterrupt

locks = [forking.waited_for(threading.RLock()) for _ in range(20)]
if HOW == "before":
    waits = forking.waited_for(Waits())
    locks += [forking.waited_for(threading.RLock()) for _ in range(20)]
else:
    forking._opened.add("/nowhere/palyra.db")
    select.poll = waits_for_child
child = os.fork()
if not child:
    os._exit(0)
os.waitpid(child, 0)
free = []
thread = threading.Thread(target=lambda: free.extend(lock.acquire(blocking=False) for lock in locks))
thread.start()
thread.join()
print(free.count(False))
"""


@pytest.mark.parametrize("how", ["before", "behind"])
def test_a_fork_that_ctrl_c_breaks_off_keeps_no_commit_waiting_for_ever(how: str) -> None:
    """What it had taken of other threads' locks it never gave back."""
    assert run_child(INTERRUPTED.replace("HOW", repr(how), 1)) == "0\n"
