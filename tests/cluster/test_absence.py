"""A server that is away for a while: nothing acknowledged is lost, nothing is done twice, nobody has to start again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from palyra.api import AsyncPalyra
from palyra.budget.store import BudgetStore
from palyra.cluster import postgres
from palyra.cluster.opening import open_writer
from palyra.cluster.verifying import verify_cluster
from palyra.errors import StateError
from palyra.journal.store import JournalStore
from palyra.state.writer import Writer
from tests.cluster.cutting import Cut, cutting
from tests.journaling import NOW, act, closing, opening, run_spec, ulid
from tests.postgres import Server, url_of

AWAY = "server is unreachable"


@pytest.fixture(scope="module")
def started() -> Iterator[Server]:
    made = Server.make()
    made.start()
    yield made
    made.remove()


@pytest.fixture
def server(started: Server) -> Server:
    """Running when a test begins; each test's own to stop and start."""
    if started.process is None:
        started.start()
    return started


@pytest.fixture
def url(server: Server, home: Path) -> str:
    return url_of(home, server.url)


@pytest.fixture
def writer(url: str, home: Path) -> Iterator[Writer]:
    made = open_writer(url, home)
    yield made
    made.close()


@pytest.fixture
def cut(server: Server, url: str, folder: Path) -> Iterator[Cut]:
    with cutting(folder, server.folder, url.partition(" ")[2]) as way:
        yield way


def append(writer: Writer) -> int:
    return writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW))[0]


def terminate(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'palyra'")


def until(works: Callable[[], Any]) -> Any:
    """Its value, as soon as it no longer says that the server is unreachable."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return works()
        except StateError as error:
            if "database in [cluster]" not in (error.hint or "") or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def check(url: str, home: Path, *, entries: int) -> None:
    report = verify_cluster(url, home, is_alive=lambda _: True, every_signature=True)
    assert (report.findings, report.entries) == ((), entries)


# ── connections ──────────────────────────────────────────────────────────────


def test_a_connection_that_was_ended_is_made_anew_and_nobody_notices(writer, url, home):
    append(writer)
    terminate(url)
    assert append(writer) == 1
    terminate(url)
    assert writer.rows("SELECT count(*) FROM entries") == [(2,)]
    check(url, home, entries=2)


def test_work_whose_connection_ends_in_the_middle_is_done_once(writer, url, home):
    runs: list[int] = []

    def work(tx: Any) -> int:
        index = tx.append(act(), at_unix_ms=NOW)
        runs.append(index)
        if len(runs) == 1:
            terminate(url)
            tx.rows("SELECT 1")
        return index

    assert writer.commit_now(work)[0] == 0
    assert runs == [0, 0]
    check(url, home, entries=1)


def test_a_commit_whose_answer_was_lost_is_found_and_not_done_again(cut, url, home):
    writer = open_writer(cut.url, home)
    append(writer)
    for what in ("answer", "commit", "answer"):
        before = writer.rows("SELECT count(*) FROM entries")[0][0]
        cut.next = what
        index, receipt = until(lambda: writer.commit_now(lambda tx: tx.append(act(), at_unix_ms=NOW)))
        assert (index, receipt.index, receipt.tree_size) == (before, before, before + 1)
        assert writer.rows("SELECT count(*) FROM entries") == [(before + 1,)]
    assert cut.cuts == ["answer", "commit", "answer"]
    writer.close()
    check(url, home, entries=4)


def test_many_callers_in_one_lost_commit_each_get_their_own_answer(cut, url, home):
    writer = open_writer(cut.url, home)
    store, run = JournalStore(writer, BudgetStore()), run_spec(ulid(), calls_max=100)

    async def scenario() -> list[Any]:
        calls = [ulid() for _ in range(8)]
        await store.open_call(opening(calls[0], run))
        for what in ("answer", "commit"):
            cut.next = what
            some, calls = calls[1:4], calls[3:]
            await asyncio.gather(*(store.open_call(opening(call_id, run)) for call_id in some))
            cut.next = what
            await asyncio.gather(*(store.close_call(closing(call_id, run)) for call_id in some))
        return [await store.budget(run.run_id)]

    (ledger,) = asyncio.run(scenario())
    assert ledger.counts[0] == 7
    assert len(cut.cuts) == 4
    writer.close()
    check(url, home, entries=13)


def test_a_lost_commit_without_an_entry_is_found_too(cut, home):
    writer = open_writer(cut.url, home)
    for what in ("answer", "commit"):
        runs: list[int] = []

        def work(tx: Any, runs: list[int] = runs) -> None:
            runs.append(1)
            tx.execute(
                "INSERT INTO meta VALUES ('test', '1') ON CONFLICT (name) DO UPDATE SET value = meta.value || '1'"
            )

        cut.next = what
        writer.commit_now(work)
        assert len(runs) == {"answer": 1, "commit": 2}[what]
    assert writer.rows("SELECT value FROM meta WHERE name = 'test'") == [("11",)]
    writer.close()


def test_somebody_elses_commit_in_the_meantime_is_not_taken_for_ours(cut, url, home):
    writer, other = open_writer(cut.url, home), open_writer(url, home)
    append(writer)
    writer.database._seeking._not_before = time.monotonic() + 1  # it does not come back at once
    cut.next = "commit"
    done: list[Any] = []
    waiting = threading.Thread(target=lambda: done.append(append(writer)))
    waiting.start()
    while not cut.cuts:
        time.sleep(0.01)
    assert append(other) == 1
    waiting.join(30)
    assert done == [2]
    for one in (writer, other):
        one.close()
    check(url, home, entries=3)


def test_a_daemon_that_stands_still_in_its_turn_is_cut_off_and_goes_on_later(url, home, monkeypatch):
    monkeypatch.setattr(postgres, "TURN_S", 1)
    still, other = open_writer(url, home), open_writer(url, home)
    assert still.database.try_begin("SELECT 1")
    assert append(other) == 0
    still.database.let_go()
    assert until(lambda: append(still)) == 1
    for one in (still, other):
        one.close()


# ── the server ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGQUIT])
def test_while_the_server_is_away_nothing_new_is_taken_and_what_has_run_waits_for_it(server, writer, url, home, sign):
    """SIGQUIT is a crash: what was acknowledged has to be there after its recovery."""
    store, run = JournalStore(writer, BudgetStore()), run_spec(ulid())
    call_id = ulid()

    async def scenario() -> None:
        await store.open_call(opening(call_id, run))
        server.stop(sign)
        with pytest.raises(StateError, match=AWAY):
            await store.open_call(opening(ulid(), run))
        ran = asyncio.ensure_future(store.close_call(closing(call_id, run)))
        await asyncio.sleep(0.5)
        assert not ran.done()
        with pytest.raises(StateError, match=AWAY):  # others are told though somebody waits
            await store.open_call(opening(ulid(), run))
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(30):
            recorded = await ran
        assert recorded.receipt.tree_size == 2

    asyncio.run(scenario())
    assert until(lambda: append(writer)) == 2
    check(url, home, entries=3)


def test_a_server_that_was_set_back_while_it_was_away_is_not_written(server, writer, url, home):
    """Restored from an older copy: what was acknowledged is gone, and going on would hide it."""
    append(writer)
    server.stop()
    shutil.copytree(server.folder / "data", server.folder / "older", symlinks=True)
    server.start()
    assert until(lambda: append(writer)) == 1
    server.stop()
    shutil.rmtree(server.folder / "data")
    (server.folder / "older").rename(server.folder / "data")
    for path in (server.folder / "data", *(server.folder / "data").rglob("*")):
        owner = server.folder.stat()
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    server.start()
    with pytest.raises(StateError, match="set back"):
        until(lambda: append(writer))
    with pytest.raises(StateError, match="set back"):
        append(writer)


def test_an_installation_goes_on_after_its_server_was_restarted(server, home, url, workspace):
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / "palyra.toml").write_text(f'[cluster]\ndatabase = "{url}"\n')

    async def scenario() -> list[Any]:
        async with AsyncPalyra.open(str(home)) as palyra:
            run = palyra.run(principal="agent:demo", workspace=str(workspace))
            first = await run.call("palyra.echo", {"text": "before"})
            running = asyncio.ensure_future(run.call("palyra.process.run", {"command": "sleep", "args": ["1"]}))
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.stop)
            refused = await palyra.run(principal="agent:demo", workspace=str(workspace)).call(
                "palyra.echo", {"text": "x"}
            )
            await asyncio.sleep(1)
            await asyncio.to_thread(server.start)
            ran = await running
            again = refused
            async with asyncio.timeout(30):
                while not again.success:
                    again = await run.call("palyra.echo", {"text": "after"})
            return [first, refused, ran, again]

    first, refused, ran, again = asyncio.run(scenario())
    assert [one.success for one in (first, refused, ran, again)] == [True, False, True, True]
    assert (refused.status, refused.reason) == ("refused", "JOURNAL_DOWN")
    assert "database in [cluster]" in refused.hint
    report = verify_cluster(url, home, is_alive=lambda _: False, every_signature=True)
    assert report.findings == ()


# ── somebody who has the database ────────────────────────────────────────────


def test_a_forged_turn_does_not_make_a_lost_commit_pass_for_kept(cut, url, home):
    """Who writes the database may say that a commit was kept; the tree does not go on from it."""
    writer = open_writer(cut.url, home)
    append(writer)
    writer.database._seeking._not_before = time.monotonic() + 1
    cut.next = "commit"
    done: list[Any] = []

    def try_it() -> None:
        try:
            done.append(append(writer))
        except StateError as error:
            done.append(error)

    waiting = threading.Thread(target=try_it)
    waiting.start()
    while not cut.cuts:
        time.sleep(0.01)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("UPDATE turns SET turn = turn + 1")
    waiting.join(30)
    with pytest.raises(StateError, match="set back"):
        append(writer)
    writer.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entries SET body = convert_to(replace(convert_from(body, 'UTF8'), 'agent', 'angel'), 'UTF8')",
        "UPDATE entries SET leaf_hash = sha256('x')",
        "DELETE FROM entries WHERE idx = 1",
        "UPDATE entries SET idx = idx + 100 WHERE idx = 2",
        "UPDATE checkpoints SET note = replace(note, 'palyra', 'pylara') WHERE size = 1",
        "UPDATE calls SET principal = 'agent:other'",
        "UPDATE calls SET outcome = NULL",
        "UPDATE blobs SET data = 'x'",
        "UPDATE runs SET next_sequence = next_sequence + 1",
        "UPDATE head SET size = 1",
        "DELETE FROM openings",
        "CREATE VIEW seen AS SELECT * FROM entries",
    ],
)
def test_a_role_with_the_daemons_rights_that_rewrites_rows_is_found(writer, url, home, sql):
    store, run, call_id = JournalStore(writer, BudgetStore()), run_spec(ulid()), ulid()

    async def scenario() -> None:
        await store.open_call(opening(call_id, run))
        await store.close_call(closing(call_id, run))

    asyncio.run(scenario())
    append(writer)
    assert verify_cluster(url, home, is_alive=lambda _: True, every_signature=True).findings == ()
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(sql)
    assert verify_cluster(url, home, is_alive=lambda _: True, every_signature=True).findings != ()
