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
