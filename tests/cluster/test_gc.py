"""`palyra gc` and a cluster's blob store: what no call needs any more goes, what is being put does not."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import orjson
import pytest

from palyra.budget.store import BudgetStore
from palyra.cluster import s3
from palyra.cluster.blobs import BlobFolder
from palyra.cluster.s3 import S3Blobs
from palyra.config.load import Home
from palyra.errors import StateError
from palyra.journal.store import JournalStore
from palyra.wiring import gc_blobs
from palyra.wiring.embedded import Installation, open_installation
from palyra.wiring.gc import Collector, Kind
from tests.cluster.operating import palyra, told
from tests.cluster.stores_of_blobs import ADMIN, now_unix_ms
from tests.journaling import opening, run_spec, ulid
from tests.postgres import url_of

DAYS_MS = 24 * 3600 * 1000


def make_old(folder: Path, name: str, *, days: int = 30) -> None:
    at = now_unix_ms() / 1000 - days * 24 * 3600
    os.utime(folder / name[:2] / name, (at, at))


# ── the stores ───────────────────────────────────────────────────────────────


def test_what_is_younger_than_the_term_stays_and_what_is_older_goes(blobs):
    name, now = blobs.put(b"x"), blobs.now_unix_ms()
    assert abs(now - now_unix_ms()) < 5000
    assert (blobs.delete_older(name, now - 60_000), blobs.has(name)) == (False, True)
    assert (blobs.delete_older(name, now + 60_000), blobs.has(name)) == (True, False)
    assert blobs.delete_older(name, now + 60_000) is True


def test_a_put_of_what_is_there_makes_it_young(tmp_path):
    blobs = BlobFolder(tmp_path)
    name = blobs.put(b"x")
    make_old(tmp_path, name)
    before = blobs.now_unix_ms() - 60_000
    assert blobs.put(b"x") == name
    assert (blobs.delete_older(name, before), blobs.get(name, most_bytes=9)) == (False, b"x")


def test_a_put_in_the_moment_of_a_removal_is_never_lost(tmp_path):
    """Either the collection sees that it is young again and puts it back, or the put finds nothing and writes anew."""
    blobs = BlobFolder(tmp_path)
    name = blobs.put(b"x")
    for number in range(400):
        make_old(tmp_path, name)
        before = now_unix_ms() - 60_000
        start = threading.Barrier(2)
        wrong: list[Exception] = []

        def put_and_read(start: threading.Barrier = start, wrong: list[Exception] = wrong) -> None:
            start.wait()
            try:
                blobs.put(b"x")
                blobs.get(name, most_bytes=9)
            except (OSError, StateError) as error:
                wrong.append(error)

        thread = threading.Thread(target=put_and_read)
        thread.start()
        start.wait()
        blobs.delete_older(name, before)
        thread.join()
        assert (wrong, blobs.has(name)) == ([], True), number


def test_a_blob_removed_between_being_found_and_being_renewed_is_written_anew(tmp_path, monkeypatch):
    """Its file gets the time, and has no name any more."""
    blobs, renew = BlobFolder(tmp_path), os.utime
    name = blobs.put(b"x")
    make_old(tmp_path, name)

    def late(path: Path) -> None:
        fd = os.open(path, os.O_RDONLY)
        assert blobs.delete_older(name, now_unix_ms() - 60_000)
        renew(fd)
        os.close(fd)

    monkeypatch.setattr(os, "utime", late)
    assert blobs.put(b"x") == name
    assert blobs.get(name, most_bytes=9) == b"x"


def test_what_was_half_written_goes_when_it_is_old_and_no_other_file_is_touched(tmp_path):
    blobs = BlobFolder(tmp_path)
    name = blobs.put(b"x")
    half = f".{name}.{'0' * 16}"
    strangers = [tmp_path / "readme", tmp_path / name[:2] / "notes", tmp_path / name[:2] / f".{name}"]
    for place in (tmp_path / name[:2] / half, *strangers):
        place.write_bytes(b"half")
    assert {one.name for one in blobs.kept()} == {name, half}
    for one in blobs.kept():
        assert blobs.delete_older(one.name, now_unix_ms() + 60_000)
    assert list(blobs.kept()) == []
    assert all(place.exists() for place in strangers)
    for bad in ("../readme", "notes", f".{name}", "", f"{name}/x"):
        with pytest.raises(Exception, match="not a blob"):
            blobs.delete_older(bad, now_unix_ms() + 60_000)


def test_an_old_blob_in_an_s3_store_is_put_again_and_a_young_one_is_not(store_server, monkeypatch):
    """Large ones are asked for first; one that a collection could take is as good as missing."""
    blobs, data = store_server.blobs("again"), b"\0" * (s3.SMALL_BYTES + 1)
    name, sent, says = blobs.put(data), [], ["", ""]
    ask = S3Blobs._ask

    def listening(self: S3Blobs, method: str, *given: Any, **named: Any) -> Any:
        answer = ask(self, method, *given, **named)
        sent.append(method)
        return answer if method != "HEAD" else type(answer)(status=200, body=b"", date=says[0], modified=says[1])

    monkeypatch.setattr(S3Blobs, "_ask", listening)
    for ago_s, methods in ((60, ["HEAD"]), (7200, ["HEAD", "PUT"])):
        says[:] = (formatdate(1_700_000_000 - ago, usegmt=True) for ago in (0, ago_s))
        blobs.forget()
        sent.clear()
        assert (blobs.put(data), blobs.put(data), sent) == (name, name, methods)
    for odd in (("", says[1]), (says[0], ""), ("yesterday", "long ago")):
        says[:] = odd
        blobs.forget()
        sent.clear()
        blobs.put(data)
        assert sent == ["HEAD", "PUT"]  # what tells no time is not known to be young
        assert (blobs.delete_older(name, 1), sent[-1]) == (False, "HEAD")  # nor to be old
    blobs._there[name] -= s3.FRESH_S + 1
    sent.clear()
    blobs.put(data)
    assert sent[0] == "HEAD"  # what this process remembers is remembered for an hour


# ── a home ───────────────────────────────────────────────────────────────────


def configure(home: Path, blobs: str, more: str = "") -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    text = f"{more}\n[cluster]\ndatabase = '{url_of(home)}'\n[cluster.blobs]\n{blobs}"
    (home / "palyra.toml").write_text(text)


def use(home: Path, work: Callable[[Installation], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        installation = await open_installation(Home(home), one_call=True)
        try:
            return await work(installation)
        finally:
            await installation.close()

    return asyncio.run(whole())


def of_blobs(done: Any) -> list[dict[str, Any]]:
    return [one for one in told(done)["items"] if one["kind"] == "workspace_blob"]


def test_gc_says_what_it_would_remove_then_removes_it_and_the_journal_tells(home, tmp_path):
    folder = tmp_path / "blobs"
    configure(home, f"folder = '{folder}'\n")
    blobs = BlobFolder(folder)
    old, young = blobs.put(b"old one"), blobs.put(b"young")
    make_old(folder, old)
    row = {"kind": "workspace_blob", "count": 1, "bytes": 7, "names": [old], "not_removed": []}
    assert of_blobs(palyra(home, "gc", "--dry-run", "--json")) == [row]
    assert blobs.has(old)
    done = palyra(home, "gc")
    assert b"removed 1 files of workspaces in the cluster's blob store past gc.keep_blobs_days (7 bytes)" in done.stdout
    assert (blobs.has(old), blobs.has(young)) == (False, True)
    assert of_blobs(palyra(home, "gc", "--json")) == []
    acts = [line for line in palyra(home, "journal", "tail").stdout.splitlines() if b"blobs.collected" in line]
    assert len(acts) == 1
    assert told(palyra(home, "journal", "verify", "--json"))["ok"] is True


def test_gc_keeps_everything_where_it_is_told_to(home, tmp_path):
    folder = tmp_path / "blobs"
    configure(home, f"folder = '{folder}'\n", "[gc]\nkeep_blobs_days = 0\n")
    make_old(folder, BlobFolder(folder).put(b"old one"))
    assert of_blobs(palyra(home, "gc", "--dry-run", "--json")) == []


def test_nothing_goes_that_a_call_still_open_could_have_put(home, tmp_path):
    folder = tmp_path / "blobs"
    configure(home, f"folder = '{folder}'\n")
    blobs = BlobFolder(folder)
    before, since = blobs.put(b"before it"), blobs.put(b"since then")
    make_old(folder, before, days=30)
    make_old(folder, since, days=10)

    async def work(installation: Installation) -> list[str]:
        call_id, run = ulid(), run_spec(ulid())
        await JournalStore(installation.writer, BudgetStore()).open_call(opening(call_id, run))
        opened = now_unix_ms() - 20 * DAYS_MS
        installation.writer.commit_now(
            lambda tx: tx.execute("UPDATE calls SET opened_unix_ms = ? WHERE call_id = ?", (opened, call_id))
        )
        collector = Collector(installation)
        found = await collector.find(collector.terms())
        return [one.name for one in found if one.kind is Kind.WORKSPACE_BLOB]

    assert use(home, work) == [before]


def test_gc_of_an_s3_store_by_its_own_clock(home, store_server, monkeypatch):
    store = store_server.bucket("collected")
    configure(
        home,
        f"endpoint = '{store.endpoint}'\nbucket = 'collected'\nprefix = '{store.prefix}'\n",
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ADMIN.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ADMIN.secret_key)
    blobs = server_blobs = S3Blobs(store, lambda: ADMIN, now_unix_ms)
    name = blobs.put(b"x" * 10)
    store_server.client().put_object(Bucket="collected", Key="elsewhere/precious", Body=b"y")

    async def collect(installation: Installation) -> list[tuple[str, int]]:
        collector = Collector(installation)
        terms = collector.terms()
        found = await collector.find(terms)
        assert await collector.remove(found, terms, actor="user:tester") == ()
        return [(one.name, one.size_bytes) for one in found if one.kind is Kind.WORKSPACE_BLOB]

    assert use(home, collect) == []
    monkeypatch.setattr(gc_blobs, "DAY_MS", -60_000)  # as if a week and a bit had gone by
    assert use(home, collect) == [(name, 10)]
    assert server_blobs.has(name) is False
    listed = store_server.client().list_objects_v2(Bucket="collected")["Contents"]
    assert [one["Key"] for one in listed] == ["elsewhere/precious"]
    server_blobs.close()


def test_a_call_whose_workspace_was_collected_runs_all_the_same(machines, workspace):
    """Between two calls everything in the store went: the next one puts its workspace again."""
    from palyra.cluster.trees import SMALL
    from tests.cluster.machines import plan_of
    from tests.conformance.arena import Kept

    machines.add("one")
    for number in range(SMALL + 5):
        (workspace / f"f{number}").write_text(str(number))
    executor = machines.executor()
    assert asyncio.run(executor.run(plan_of(workspace, "true"), Kept())).exit_code == 0
    for one in list(machines.blobs.kept()):
        assert machines.blobs.delete_older(one.name, now_unix_ms() + 60_000)
    machines.nodes["one"].copies._idle.clear()
    execution = asyncio.run(executor.run(plan_of(workspace, "cat f7; echo 1 > made"), output := Kept()))
    assert (execution.exit_code, output.stdout, (workspace / "made").read_text()) == (0, "7", "1\n")
    assert orjson.loads(execution.ran.envelope)["payloadType"] == "application/vnd.palyra.execution+json"
