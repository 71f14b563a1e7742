"""Daemons that say they live, by the server's clock; one that stood still learns that it was taken for dead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.cluster import leases
from palyra.cluster.leases import Leases
from palyra.cluster.opening import open_writer
from palyra.cluster.verifying import verify_cluster
from palyra.errors import StateError
from palyra.model.record import Owner
from palyra.state.writer import Writer
from palyra.wiring.owners import ProcessOwners
from tests.cluster.operating import palyra, told
from tests.cluster.stopped import LEASE_MS
from tests.journaling import ulid
from tests.postgres import url_of

THERE = Owner("another boot", 7, 7)


class Elsewhere:
    def me(self) -> Owner:
        return THERE

    def is_alive(self, owner: Owner) -> bool:
        raise AssertionError("another machine's process was looked up here")


@pytest.fixture
def writer(home: Path) -> Iterator[Writer]:
    made = open_writer(url_of(home), home)
    yield made
    made.close()


def make_silent(writer: Writer, ms: int) -> None:
    writer.commit_now(lambda tx: tx.execute("UPDATE daemons SET seen_unix_ms = seen_unix_ms - ? WHERE pid = 7", (ms,)))


def now_unix_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_daemon_whose_clock_is_off_is_not_taken_for_dead_nor_takes_others_for_it(writer):
    """A machine an hour ahead, one an hour behind: only the server's clock counts."""
    for skew in (3_600_000, -3_600_000):
        there = Leases(writer, Elsewhere(), lambda skew=skew: now_unix_ms() + skew)  # type: ignore[misc]
        here = Leases(writer, ProcessOwners(), lambda skew=skew: now_unix_ms() - skew)  # type: ignore[misc]
        there.renew()
        assert (here.is_alive(THERE), here.is_gone(THERE), here.living()) == (True, False, [THERE])
        make_silent(writer, leases.LEASE_MS)
        assert (here.is_alive(THERE), here.living()) == (False, [])


@pytest.mark.parametrize("seen", [(1 << 63) - 1, -(1 << 63)])
def test_a_word_that_nobody_can_have_said_keeps_no_dead_daemon_alive(writer, seen):
    """By one row, with a time to come, its open calls were left alone for ever, and verify found none of them."""
    here = Leases(writer, ProcessOwners(), now_unix_ms)
    Leases(writer, Elsewhere(), now_unix_ms).renew()
    writer.commit_now(lambda tx: tx.execute("UPDATE daemons SET seen_unix_ms = ? WHERE pid = 7", (seen,)))
    assert (here.is_alive(THERE), here.living()) == (False, [])
    assert here.is_gone(THERE)
    assert writer.rows("SELECT count(*) FROM daemons") == [(0,)]


def test_a_word_before_the_burial_saves_and_one_after_it_tells(writer):
    there, here = Leases(writer, Elsewhere(), now_unix_ms), Leases(writer, ProcessOwners(), now_unix_ms)
    there.renew()
    make_silent(writer, leases.LEASE_MS)
    assert not here.is_alive(THERE)  # looked at, not buried: whoever only verifies changes nothing
    there.renew()
    assert (here.is_gone(THERE), there.burials()) == (False, 0)
    make_silent(writer, leases.LEASE_MS)
    assert (here.is_gone(THERE), here.is_gone(THERE)) == (True, True)
    assert there.burials() == 0  # it spoke a moment ago, as far as it knows
    there.renew()
    assert there.burials() == 1
    assert (here.is_gone(THERE), here.is_alive(THERE)) == (False, True)


@pytest.mark.parametrize("clock", ["monotonic", "wall"])
def test_a_daemon_that_was_silent_for_long_asks_before_it_answers(writer, monkeypatch, clock):
    """Stopped, its machine suspended, or the server away for so long."""
    ahead = [0]
    there = Leases(writer, Elsewhere(), lambda: now_unix_ms() + (ahead[0] if clock == "wall" else 0))
    monotonic_ns = time.monotonic_ns
    if clock == "monotonic":
        monkeypatch.setattr(leases.time, "monotonic_ns", lambda: monotonic_ns() + ahead[0] * 1_000_000)
    here = Leases(writer, ProcessOwners(), now_unix_ms)
    there.renew()
    make_silent(writer, leases.LEASE_MS)
    assert here.is_gone(THERE)
    ahead[0] = leases.LEASE_MS
    assert there.burials() == 1


def test_without_the_servers_word_a_silent_daemon_knows_nothing(writer, monkeypatch):
    there = Leases(writer, Elsewhere(), now_unix_ms)
    there.renew()
    monkeypatch.setattr(there, "_said", (0, 0))

    def away(_: Any) -> Any:
        raise StateError("The server is away.")

    monkeypatch.setattr(writer, "commit_now", away)
    with pytest.raises(StateError):
        there.burials()


# ── real processes ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("stopped_s", [0.5, LEASE_MS / 1000 + 1])
def test_a_daemon_stopped_for_longer_than_its_lease_and_continued_changes_nothing(home, folder, stopped_s):
    """Its call runs on a node. Another daemon closes the call as interrupted; the one that goes on has the node's
    answer in its hand, and neither the workspace nor the journal hears of it. Stopped for a moment only, it goes on."""
    for name in ("work", "nodes"):
        (folder / name).mkdir()
    home.mkdir(mode=0o700)
    url, call_id = url_of(home), ulid()
    (home / "palyra.toml").write_text(
        "[tool_call.process_runner]\nallowed_executables = ['sh']\nallow_interpreters = true\n"
        f"[cluster]\ndatabase = '{url}'\n"
    )
    given = (str(home), str(folder / "work"), str(folder / "nodes"), call_id)
    argv = [sys.executable, "-m", "tests.cluster.stopped", *given]
    one = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2], env=os.environ)
    try:
        assert one.stdout.readline() == "begun\n"
        one.send_signal(signal.SIGSTOP)
        time.sleep(stopped_s)
        # A daemon of this machine starts, and looks after what others left.
        closing = [sys.executable, "-c", _LOOK, str(home), str(LEASE_MS)]
        subprocess.run(closing, check=True, timeout=60, cwd=Path(__file__).parents[2])
        one.send_signal(signal.SIGCONT)
        said = json.loads(one.communicate(timeout=60)[0])
    finally:
        one.kill()
        one.wait()
    shown = told(palyra(home, "journal", "show", call_id, "--json"))
    was_closed = stopped_s > LEASE_MS / 1000
    assert (shown["status"], len(shown["entries"])) == ("interrupted" if was_closed else "completed", 2)
    assert (folder / "work" / "effect").exists() is not was_closed
    assert said["status"] == shown["status"]
    assert verify_cluster(url, home, is_alive=ProcessOwners().is_alive, every_signature=True).findings == ()


_LOOK = """
import asyncio, sys
from palyra.cluster import leases
from palyra.api import AsyncPalyra
leases.LEASE_MS = int(sys.argv[2])

async def start():
    async with AsyncPalyra.open(sys.argv[1]):
        pass

asyncio.run(start())
"""
