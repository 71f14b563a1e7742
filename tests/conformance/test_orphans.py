"""`palyra gc` ends what a killed launch left, and nothing that lives: real launchers, really killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from palyra.config.load import Home
from palyra.launch import orphans
from palyra.launch.orphans import Orphan, end_orphan, find_orphans, is_our_command
from palyra.launch.survivors import start_ticks
from palyra.wiring import gc
from palyra.wiring.embedded import open_installation
from palyra.wiring.gc import Collector, Kind, sweep_launchers
from tests.conformance.arena import host
from tests.promises import promise

SETTLE_S = 10.0
MARK = ("--dir", "/etc", "--perms", "0444", "--file")


class Launch(NamedTuple):
    outer: int
    inner: int
    """Waits for a word before it has run anything."""


def bwrap() -> str:
    found = host().bubblewrap
    if found is None:
        pytest.skip("no bubblewrap")
    return found.path


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(holds) -> None:
    until = time.monotonic() + SETTLE_S
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


@contextlib.contextmanager
def launch(*, mark: str = "/etc/.palyra-empty") -> Iterator[Launch]:
    """One that is held in its middle. Whoever kills the outer half leaves the inner one, as a kill within the
    microseconds before it asks to die with its launcher does."""
    data, (reading, writing) = os.memfd_create("palyra"), os.pipe()
    os.set_inheritable(data, True)
    os.set_inheritable(reading, True)
    words = [bwrap(), "--as-pid-1", "--unshare-user", "--unshare-pid", "--ro-bind", "/usr", "/usr"]
    words += [*MARK, str(data), mark, "--block-fd", str(reading), "--", "/usr/bin/true"]
    process = subprocess.Popen(words, pass_fds=(data, reading), stderr=subprocess.DEVNULL)
    inner = 0
    try:
        os.close(reading)
        wait_until(lambda: children(process.pid))
        inner = children(process.pid)[0]
        wait_until(lambda: "pipe" in Path(f"/proc/{inner}/wchan").read_text() or _in_read(inner))
        yield Launch(process.pid, inner)
    finally:
        process.kill()
        process.wait()
        if inner:
            with contextlib.suppress(ProcessLookupError):
                os.kill(inner, signal.SIGKILL)
        os.close(writing)
        os.close(data)


def _in_read(pid: int) -> bool:
    return Path(f"/proc/{pid}/syscall").read_text().split()[0] == "0"


def found_now() -> set[int]:
    return {one.pid for one in find_orphans(bwrap(), before_unix_s=time.time() + 60)}


@promise("sandbox.orphans")
def test_a_launch_under_way_is_not_touched():
    with launch() as under_way:
        assert found_now().isdisjoint(under_way)


@promise("sandbox.orphans")
def test_what_a_killed_launcher_left_is_found_and_ended():
    with launch() as left:
        os.kill(left.outer, signal.SIGKILL)
        wait_until(lambda: left.inner in found_now())
        orphan = next(one for one in find_orphans(bwrap(), before_unix_s=time.time() + 60) if one.pid == left.inner)
        assert end_orphan(orphan, bwrap())
        assert start_ticks(left.inner) is None
        assert left.inner not in found_now()


def test_what_lost_its_launcher_is_found_at_any_age():
    """Nothing gives a reparented process its launcher back: it stayed for an hour, or for ever without `palyra gc`."""
    with launch() as left:
        os.kill(left.outer, signal.SIGKILL)
        wait_until(lambda: left.inner in {one.pid for one in find_orphans(bwrap(), before_unix_s=0)})


def test_a_launcher_with_nobody_inside_yet_is_left_alone_for_an_hour(monkeypatch: pytest.MonkeyPatch):
    """It may be about to fork."""
    monkeypatch.setattr(orphans, "_numbers", lambda pid: [pid])
    monkeypatch.setattr(orphans._os, "children", lambda pid: [])
    monkeypatch.setattr(orphans, "_has_no_owner", lambda above: True)
    with launch() as under_way:
        assert under_way.outer in found_now()
        assert under_way.outer not in {one.pid for one in find_orphans(bwrap(), before_unix_s=time.time() - 3600)}


@promise("sandbox.orphans")
def test_a_launch_of_somebody_elses_is_not_ours():
    with launch(mark="/etc/motd") as left:
        os.kill(left.outer, signal.SIGKILL)
        wait_until(lambda: _parent(left.inner) != left.outer)
        assert left.inner not in found_now()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@promise("sandbox.orphans")
def test_a_program_that_only_says_our_words_is_not_ours():
    words = [sys.executable, "-c", "import time; time.sleep(60)", *MARK, "3", "/etc/.palyra-empty"]
    with subprocess.Popen(words) as liar:
        try:
            assert liar.pid not in found_now()
        finally:
            liar.kill()


@promise("sandbox.orphans")
def test_a_number_that_changed_hands_is_nobodys_end():
    with launch() as living:
        ticks = start_ticks(living.inner)
        assert ticks is not None
        assert end_orphan(Orphan(living.inner, ticks - 1), bwrap())  # that one is gone
        assert not end_orphan(Orphan(living.inner, ticks), bwrap()), "it has a launcher, so it is not touched"
        assert start_ticks(living.inner) == ticks


@pytest.mark.parametrize(
    ("words", "ours"),
    [
        (["bwrap", "--file", "9", "/etc/.palyra-empty", "--", "x"], True),
        (["bwrap", "--", "x", "--file", "9", "/etc/.palyra-empty"], False),
        (["bwrap", "--ro-bind", "/home/a/sandbox-etc/0123", "/etc", "--", "x"], True),
        (["bwrap", "--", "x", "--ro-bind", "/home/a/sandbox-etc/0123", "/etc"], False),
        (["bwrap", "/etc/.palyra-empty"], False),
        (["bwrap", "--file", "9"], False),
        (["bwrap", "--ro-bind", "9", "/etc/.palyra-empty"], False),
        ([], False),
    ],
)
def test_our_words_are_those_before_the_program(words, ours):
    assert is_our_command("\0".join([*words, ""]).encode()) is ours


@promise("sandbox.orphans")
def test_gc_tells_and_ends_it(home: Path, monkeypatch: pytest.MonkeyPatch):
    async def collect(left: Launch) -> None:
        installation = await open_installation(Home(home), one_call=True)
        try:
            collector = Collector(installation)
            now = collector.terms()
            mine = [one for one in await collector.find(now) if one.name == f"process {left.inner}"]
            assert [one.kind for one in mine] == [Kind.LAUNCHER]
            assert await collector.remove(mine, now, actor="user:tester") == ()
        finally:
            await installation.close()

    monkeypatch.setattr(gc, "empty_groups", lambda parents, *, before_unix_s: [])
    with launch() as left:
        os.kill(left.outer, signal.SIGKILL)
        wait_until(lambda: left.inner in found_now())
        asyncio.run(collect(left))
        assert start_ticks(left.inner) is None


def test_a_start_ends_what_a_killed_engine_left_and_journals_it(home: Path):
    async def start(left: Launch) -> int:
        installation = await open_installation(Home(home), one_call=True)
        try:
            assert await sweep_launchers(installation) >= 1
            assert start_ticks(left.inner) is None
            (act,) = installation.writer.rows("SELECT body FROM entries ORDER BY idx DESC LIMIT 1")
            assert b"home.collected" in act[0]
            return await sweep_launchers(installation)
        finally:
            await installation.close()

    with launch() as left:
        os.kill(left.outer, signal.SIGKILL)
        wait_until(lambda: left.inner in found_now())
        assert asyncio.run(start(left)) == 0


def test_where_there_is_no_proc_nothing_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(orphans.os.path, "isdir", lambda path: False)
    assert list(find_orphans("/usr/bin/bwrap", before_unix_s=time.time())) == []
