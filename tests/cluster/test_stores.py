"""Several daemons on one server: one order, one budget, one decision; a dead one stops nobody."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from palyra.approvals.store.desk import ApprovalStore, Times
from palyra.budget.store import BudgetStore
from palyra.cluster.opening import open_writer
from palyra.cluster.postgres import CHANNEL
from palyra.errors import Rejected, StateError
from palyra.journal.store import JournalStore
from palyra.state.schema import MIGRATIONS
from palyra.state.writer import Writer
from tests.approving import NO, YES, question
from tests.journaling import NOW, act, audit_home, closing, opening, run_spec, ulid
from tests.postgres import url_of

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def url(home: Path) -> str:
    return url_of(home)


@pytest.fixture
def opened() -> Iterator[Callable[..., Writer]]:
    """`open_writer`, and everything it opened is closed afterwards."""
    writers: list[Writer] = []

    def open_one(url: str, root: Path, **options: Any) -> Writer:
        writers.append(open_writer(url, root, **options))
        return writers[-1]

    yield open_one
    for writer in writers:
        writer.close()


def another(home: Path, number: int) -> Path:
    """The folder of another daemon of the cluster: it holds the cluster's key and nothing else."""
    root = home.with_name(f"daemon{number}")
    (root / "state").mkdir(mode=0o700, parents=True)
    root.chmod(0o700)
    shutil.copy(home / "state" / "installation.key", root / "state" / "installation.key")
    return root


def start(url: str, root: Path, run_id: str, *, calls_max: int, calls: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.cluster.appending", url, str(root), run_id, str(calls_max), str(calls)]
    process = subprocess.Popen(argv, cwd=PROJECT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    return process


def go(*processes: subprocess.Popen[str]) -> list[list[int]]:
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return [[int(word) for word in process.communicate(timeout=120)[0].split()] for process in processes]


def test_the_journal_of_three_daemons_verifies_as_one_and_none_overspends(home, url, opened):
    writer = opened(url, home)
    run_id = ulid()
    roots = [home, another(home, 1), another(home, 2)]
    told = go(*(start(url, root, run_id, calls_max=100, calls=60) for root in roots))
    assert sum(done for done, _ in told) == 100
    assert sum(refused for _, refused in told) == 80
    assert all(done for done, _ in told)
    assert BudgetStore().read_ledger(writer, run_id).counts[0] == 100
    report = audit_home(writer.home, every=True)
    assert (report.findings, report.entries) == ((), 200)


def test_a_daemon_that_dies_in_the_middle_gives_its_turn_back(home, url, opened):
    writer = opened(url, home)
    for number in range(3):
        dying = start(url, another(home, number + 1), ulid(), calls_max=10**6, calls=10**6)
        dying.stdin.write("\n")
        dying.stdin.flush()
        time.sleep(0.3)
        dying.send_signal(signal.SIGKILL)
        dying.communicate()
        writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))
    findings = audit_home(writer.home, alive=True).findings
    assert findings == ()


def test_two_daemons_never_decide_an_approval_twice(home, url, opened):
    def desk(root: Path) -> ApprovalStore:
        times = Times(request_ms=60_000, grant_ms=30_000, max_pending=10)
        return ApprovalStore(
            opened(url, root), times=times, new_id=ulid, now_unix_ms=lambda: NOW, announce=lambda _: None
        )

    first = desk(home)
    second = desk(another(home, 1))

    async def scenario() -> list[Any]:
        asked = await first.ask(question())
        ways = (first.decide(asked.approval_id, YES), second.decide(asked.approval_id, NO))
        return list(await asyncio.gather(*ways, return_exceptions=True))

    answers = asyncio.run(scenario())
    assert sum(isinstance(answer, Rejected) for answer in answers) == 1
    assert audit_home(first._writer.home).findings == ()


def test_a_daemon_without_the_clusters_key_does_not_start(home, url, opened):
    opened(url, home)
    with pytest.raises(StateError, match="does not hold the cluster's key"):
        opened(url, home.with_name("stranger"))
    other = url_of(home.with_name("other"))
    opened(other, home.with_name("other"))
    with pytest.raises(StateError, match="key is not the one"):
        opened(url, home.with_name("other"))


def test_first_starts_at_once_agree_on_one_journal(home, url, opened):
    argv = [sys.executable, "-m", "tests.cluster.appending", url, str(home), ulid(), "9", "1"]
    many = [
        subprocess.Popen(argv, cwd=PROJECT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)
    ]
    assert [process.communicate("\n", timeout=60)[0] for process in many] == ["ready\n1 0\n"] * 4


def test_a_newer_schema_is_refused_and_an_older_one_migrated(home, url, opened):
    opened(url, home, migrations=MIGRATIONS[:-1])
    opened(url, home)
    with pytest.raises(StateError, match="knows up to"):
        opened(url, home, migrations=MIGRATIONS[:-1])


def test_a_head_set_back_behind_our_back_is_not_signed_on(home, url, opened):
    writer = opened(url, home)
    for _ in range(2):
        writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))
    with psycopg.connect(url) as other:
        other.execute("DELETE FROM checkpoints WHERE size = 2")
        other.execute("DELETE FROM entries WHERE idx = 1")
        other.execute("UPDATE head SET size = 1, frontier = (SELECT leaf_hash FROM entries WHERE idx = 0)")
    with pytest.raises(StateError, match="set back"):
        writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))


def test_whoever_follows_the_journal_hears_of_another_daemons_commit(home, url, opened):
    opened(url, home)
    other = opened(url, another(home, 1))

    with psycopg.connect(url, autocommit=True) as follower:
        follower.execute(f"LISTEN {CHANNEL}")
        other.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))
        assert next(follower.notifies(timeout=20)).channel == CHANNEL


def test_texts_that_a_server_cannot_keep_are_refused_and_hurt_nobody(home, url, opened):
    writer = opened(url, home)
    store = JournalStore(writer, BudgetStore())
    odd = run_spec(ulid(), principal="agent:a\0b")
    plain = run_spec(ulid())
    good = ulid()

    async def scenario() -> list[Any]:
        works = [store.open_call(opening(ulid(), odd)), store.open_call(opening(good, plain))]
        return await asyncio.gather(*works, return_exceptions=True)

    refused, opened = asyncio.run(scenario())
    assert isinstance(refused, Exception)
    assert opened.budget.calls_used == 1
    asyncio.run(store.close_call(closing(good, plain)))
    assert audit_home(writer.home).findings == ()
