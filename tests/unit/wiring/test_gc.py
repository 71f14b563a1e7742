"""`palyra gc`: what is past its time or left by the dead goes, and is told; what lives is not touched."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from palyra.artifacts.store import ArtifactStore
from palyra.budget.store import BudgetStore
from palyra.config.load import Home
from palyra.errors import Rejected
from palyra.launch import store
from palyra.launch.cgroup import empty_groups
from palyra.model.call import ulid_unix_ms
from palyra.model.process import BackgroundProcess, Lifetime, ProcessOwner, ProcessStatus
from palyra.model.record import Owner
from palyra.state.retention import doom
from palyra.wiring import gc, partial_files
from palyra.wiring.clock import SystemClock, SystemIds
from palyra.wiring.embedded import Installation, open_installation
from palyra.wiring.gc import DAY_MS, UNSETTLED_MS, Collector, Kind, Leftover
from palyra.wiring.partial_files import find_trial_folders
from tests.journaling import run_spec, ulid

LONG_AGO_S = time.time() - 2 * 3600


def with_home(home: Path, work: Callable[[Installation], Awaitable[None]]) -> None:
    async def whole() -> None:
        installation = await open_installation(Home(home), one_call=True)
        try:
            await work(installation)
        finally:
            await installation.close()

    asyncio.run(whole())


@pytest.fixture(autouse=True)
def folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is ahead, what other tests are at work on would look left behind."""
    monkeypatch.setattr(partial_files, "_TRIALS", tuple(f"{one}{tmp_path.name}-" for one in partial_files._TRIALS))
    monkeypatch.setattr(gc, "empty_groups", lambda parents, *, before_unix_s: [])  # found in a test of their own below
    monkeypatch.setattr(gc, "find_orphans", lambda bwrap, *, before_unix_s: [])  # and those in tests/conformance


async def collect(installation: Installation, *, later_ms: int = 0) -> Counter[str]:
    """How many of each kind went, by a clock that is ahead."""
    collector = Collector(installation)
    moved = {
        name: None if value is None else value + later_ms
        for name in ("now_unix_ms", "artifacts_before_unix_ms", "logs_before_unix_ms")
        for value in [getattr(collector.terms(), name)]
    }
    terms = replace(collector.terms(), **moved)
    found = await collector.find(terms)
    assert await collector.remove(found, terms, actor="user:tester") == ()
    return Counter(one.kind.value for one in found for _ in range(one.count))


def artifacts_of(installation: Installation) -> ArtifactStore:
    clock = SystemClock()
    return ArtifactStore(installation.writer, new_id=SystemIds(clock).ulid, now_unix_ms=clock.now_unix_ms)


def files_below(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "artifacts").rglob("*") if path.is_file())


def age(path: Path) -> Path:
    """Two hours old by its own times; the change time needs the clock's help, which `collect` gives."""
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    return path


def process(process_id: str, run_id: str) -> BackgroundProcess:
    return BackgroundProcess(
        process_id=process_id,
        owner=ProcessOwner(run_id, "agent:demo"),
        call_id=ulid(),
        command="sleep",
        lifetime=Lifetime.DETACHED,
        keeper=Owner("", os.getpid(), 0),
        pid=1,
        start_ticks=1,
        cgroups=(),
        started_unix_ms=1,
        expires_unix_ms=2,
        status=ProcessStatus.RUNNING,
    )


def test_an_empty_home_has_nothing_to_collect_and_nothing_is_journaled(home: Path) -> None:
    async def work(installation: Installation) -> None:
        before = installation.writer.rows("SELECT count(*) FROM entries")
        assert await collect(installation) == {}
        assert installation.writer.rows("SELECT count(*) FROM entries") == before

    with_home(home, work)


def test_artifacts_go_when_their_time_is_over_and_not_a_day_before(home: Path) -> None:
    async def work(installation: Installation) -> None:
        run_id = ulid()
        installation.writer.commit_now(lambda tx: BudgetStore().ensure_run(tx, run_spec(run_id)))
        kept = artifacts_of(installation)
        ref = await kept.put(run_id, "stdout", b"old output")
        assert await collect(installation, later_ms=29 * DAY_MS) == {}
        assert (await kept.read(run_id, ref.artifact_id))[1] == b"old output"
        assert await collect(installation, later_ms=31 * DAY_MS) == {"artifact": 1, "blob": 1}
        assert files_below(home) == []
        with pytest.raises(Rejected, match="There is no artifact"):
            await kept.read(run_id, ref.artifact_id)

    with_home(home, work)


def test_content_that_a_younger_artifact_shares_stays(home: Path) -> None:
    async def work(installation: Installation) -> None:
        run_id = ulid()
        installation.writer.commit_now(lambda tx: BudgetStore().ensure_run(tx, run_spec(run_id)))
        kept = artifacts_of(installation)
        old, young = [await kept.put(run_id, "stdout", b"the same") for _ in range(2)]
        past = "UPDATE artifacts SET created_unix_ms = 1 WHERE artifact_id = ?"
        installation.writer.commit_now(lambda tx: tx.execute(past, (old.artifact_id,)))
        assert await collect(installation) == {"artifact": 1}
        assert (await kept.read(run_id, young.artifact_id))[1] == b"the same"

    with_home(home, work)


def test_an_artifact_kept_while_its_file_is_collected_is_written_again(home: Path) -> None:
    async def work(installation: Installation) -> None:
        run_id = ulid()
        installation.writer.commit_now(lambda tx: BudgetStore().ensure_run(tx, run_spec(run_id)))
        kept, thief = artifacts_of(installation), artifacts_of(installation)
        written = kept._write

        def write_and_lose_once(sha256: str, data: bytes) -> None:
            written(sha256, data)
            if not lost:
                lost.append(thief.remove_unnamed([sha256]))

        lost: list[int] = []
        kept._write = write_and_lose_once  # type: ignore[method-assign]
        ref = await kept.put(run_id, "stdout", b"in between")
        assert lost == [1]
        assert (await kept.read(run_id, ref.artifact_id))[1] == b"in between"

    with_home(home, work)


def test_logs_of_running_processes_stay_whatever_their_age(home: Path) -> None:
    async def work(installation: Installation) -> None:
        run_id, writer = ulid(), installation.writer
        writer.commit_now(lambda tx: BudgetStore().ensure_run(tx, run_spec(run_id)))
        running, ended = ulid(), ulid()
        for process_id in (running, ended):
            (home / "logs" / process_id).mkdir(parents=True)
            (home / "logs" / process_id / ("0" * 20)).write_bytes(b"said")
        for row in (process(running, run_id), process(ended, run_id)):
            writer.commit_now(partial(store.insert_process, process=row))
        over = replace(process(ended, run_id), status=ProcessStatus.EXITED, ended_unix_ms=1)
        writer.commit_now(lambda tx: store.end_process(tx, over))
        assert await collect(installation) == {"log": 1}
        assert os.listdir(home / "logs") == [running]
        writer.commit_now(lambda tx: tx.execute("DELETE FROM processes"))

    with_home(home, work)


def test_a_log_nobody_recorded_goes_after_an_hour(home: Path) -> None:
    async def work(installation: Installation) -> None:
        process_id = installation.ports.ids.ulid()
        (home / "logs" / process_id).mkdir(parents=True)
        assert await collect(installation) == {}
        assert await collect(installation, later_ms=2 * UNSETTLED_MS) == {"log": 1}

    with_home(home, work)


def test_half_written_files_go_without_their_writer_and_stay_with_it(home: Path) -> None:
    async def work(installation: Installation) -> None:
        folder = home / "artifacts" / "ab" / "cd"
        folder.mkdir(parents=True)
        dead, digits = 2**22 + 7, "0123456789abcdef"
        gone = [
            folder / f".{dead}-{digits}",
            home / f".probe-{digits}",
            home / "state" / f".palyra.db.v1.backup.{digits}",
        ]
        stay = [folder / f".{os.getpid()}-{digits}", home / ".hidden", home / "policies.txt"]
        for path in (*gone, *stay):
            age(path).touch() if path.exists() else path.write_bytes(b"half")
        assert await collect(installation) == {}
        assert await collect(installation, later_ms=2 * UNSETTLED_MS) == {"file": 3}
        assert [path.exists() for path in (*gone, *stay)] == [False] * 3 + [True] * 3

    with_home(home, work)


def test_a_link_that_looks_like_a_partial_file_leads_nowhere(home: Path, tmp_path: Path) -> None:
    async def work(installation: Installation) -> None:
        (tmp_path / "precious").write_bytes(b"not yours")
        (home / ".0123456789abcdef").symlink_to(tmp_path / "precious")
        (home / "elsewhere").symlink_to(tmp_path)
        (tmp_path / ".0123456789abcdef").write_bytes(b"not yours either")
        assert await collect(installation, later_ms=2 * UNSETTLED_MS) == {}
        assert (tmp_path / ".0123456789abcdef").exists()

    with_home(home, work)


def test_folders_of_killed_probes_and_builds_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed = sorted(str(tmp_path / f"{one}abc") for one in partial_files._TRIALS)
    for folder in killed:
        Path(folder).mkdir()
    (tmp_path / "somebody-else").mkdir()
    assert find_trial_folders(before_unix_s=time.time() - 60) == []
    assert find_trial_folders(before_unix_s=time.time() + 60) == killed


def test_only_empty_groups_of_ours_that_are_old_are_found(tmp_path: Path) -> None:
    for name, members in (("palyra-empty", ""), ("palyra-busy", "4\n"), ("systemd", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text(members)
    assert empty_groups(["", str(tmp_path)], before_unix_s=time.time() - 60) == []
    assert empty_groups(["", str(tmp_path)], before_unix_s=time.time() + 60) == [str(tmp_path / "palyra-empty")]


def test_values_that_a_crash_left_marked_are_overwritten(home: Path) -> None:
    async def work(installation: Installation) -> None:
        writer = installation.writer
        digest, _ = writer.commit_now(lambda tx: tx.keep_blob(b"to be forgotten", at_unix_ms=1))
        writer.commit_now(lambda tx: (doom(tx, "0", ()), tx.execute("INSERT INTO doomed VALUES (?)", (digest,))))
        assert await collect(installation) == {"value": 1}
        assert writer.rows("SELECT count(*) FROM blobs WHERE sha256 = ?", (digest,)) == [(0,)]

    with_home(home, work)


def test_what_is_removed_is_told_before_it_goes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(installation: Installation) -> None:
        path = home / ".0123456789abcdef"
        path.write_bytes(b"half")
        told: list[int] = []

        def count_acts(_: str) -> bool:
            sql = "SELECT count(*) FROM entries WHERE instr(CAST(body AS TEXT), 'home.collected')"
            told.append(installation.writer.rows(sql)[0][0])
            return False

        monkeypatch.setattr("palyra.wiring.gc.remove_path", count_acts)
        collector = Collector(installation)
        terms = replace(collector.terms(), now_unix_ms=collector.terms().now_unix_ms + 2 * UNSETTLED_MS)
        found = await collector.find(terms)
        assert found == (Leftover(kind=Kind.FILE, name=str(path), size_bytes=4),)
        assert await collector.remove(found, terms, actor="user:tester") == found
        assert told == [1]

    with_home(home, work)


def test_an_id_tells_when_it_was_made() -> None:
    clock = SystemClock()
    before = clock.now_unix_ms()
    assert before <= ulid_unix_ms(SystemIds(clock).ulid()) <= clock.now_unix_ms()
