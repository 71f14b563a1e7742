"""The thread that confines itself: it never kills where it is not confined, and the engine stays free."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from palyra.launch._os import _confine as under_test
from palyra.launch._os._confine import Confinement, Domain, open_without_links, start_confined
from palyra.model.plan import LandlockRules
from palyra.sandbox.probe_kernel import try_landlock

ABI = try_landlock()
needs_scopes = pytest.mark.skipif(ABI < 6, reason="this kernel's Landlock does not scope signals")


def rules(workspace: Path) -> LandlockRules:
    system = ("/usr", "/bin", "/lib", "/lib64")
    return LandlockRules(
        abi=ABI, writable=str(workspace), runnable=system, readable=(), devices=("/dev/null",), tcp=True
    )


def sleeper() -> int:
    return os.posix_spawn("/bin/sleep", ["sleep", "60"], {})


def test_a_thread_that_is_not_confined_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one mistake that must never be made: everyone on the machine would be gone."""
    sent: list[tuple[int, int]] = []

    class Library:
        open = staticmethod(under_test._libc.open)

        @staticmethod
        def kill(pid: int, number: int) -> int:
            sent.append((pid, number))
            return 0

    monkeypatch.setattr(under_test, "_libc", Library)
    domain = Domain(scoped=True)
    assert domain.kill_all() is False
    assert Domain(scoped=False).kill_all() is False
    assert sent == []
    domain.close()


@needs_scopes
def test_everyone_inside_and_nobody_else_is_killed(tmp_path: Path) -> None:
    beside = sleeper()
    try:
        confined = start_confined(Confinement(drop_capabilities=False, landlock=rules(tmp_path)), sleeper)
        assert confined.domain is not None
        assert confined.domain.inside([confined.pid, beside, os.getpid(), 1]) == [confined.pid]
        assert confined.domain.kill_all()
        assert os.waitstatus_to_exitcode(os.waitpid(confined.pid, 0)[1]) == -signal.SIGKILL
        assert confined.domain.inside([confined.pid]) == []
        assert os.waitpid(beside, os.WNOHANG) == (0, 0)
        confined.domain.close()
    finally:
        os.kill(beside, signal.SIGKILL)
        os.waitpid(beside, 0)


@needs_scopes
def test_no_thread_is_left_where_the_child_can_reach_it(tmp_path: Path) -> None:
    """Only one that stays outside of the child's domain."""
    before = set(os.listdir("/proc/self/task"))
    confined = start_confined(Confinement(drop_capabilities=False, landlock=rules(tmp_path)), sleeper)
    assert confined.domain is not None
    assert len(set(os.listdir("/proc/self/task")) - before) == 1
    assert confined.domain.kill_all()
    os.waitpid(confined.pid, 0)
    confined.domain.close()


@needs_scopes
def test_the_engine_keeps_its_rights_and_its_threads_end(tmp_path: Path) -> None:
    before = threading.active_count()
    confined = start_confined(Confinement(drop_capabilities=False, landlock=rules(tmp_path)), sleeper)
    assert os.listdir("/")
    assert gc.isenabled()
    assert confined.workspace == (tmp_path.stat().st_dev, tmp_path.stat().st_ino)
    assert confined.domain is not None
    confined.domain.kill_all()
    os.waitpid(confined.pid, 0)
    confined.domain.close()
    for _ in range(100):
        if threading.active_count() == before:
            return
        time.sleep(0.01)
    raise AssertionError("the thread did not end")


@pytest.mark.skipif(ABI < 3, reason="this kernel has no Landlock to speak of")
def test_what_cannot_be_started_raises_and_leaves_nothing(tmp_path: Path) -> None:
    gc.collect()  # what other tests left in circles is not closed in the midst of this one
    before, files = threading.active_count(), len(os.listdir("/proc/self/fd"))

    def missing() -> int:
        return os.posix_spawn("/bin/palyra-does-not-exist", ["x"], {})

    with pytest.raises(FileNotFoundError):
        start_confined(Confinement(drop_capabilities=False, landlock=rules(tmp_path)), missing)
    with pytest.raises(FileNotFoundError):
        start_confined(Confinement(drop_capabilities=False, landlock=rules(tmp_path / "missing")), sleeper)
    time.sleep(0.05)
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == (before, files)


def test_a_folder_is_reached_over_no_link(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    fd = open_without_links(str(tmp_path.resolve() / "real" / "inner"))
    assert os.fstat(fd).st_ino == (tmp_path / "real" / "inner").stat().st_ino
    os.close(fd)
    for path in (tmp_path / "link", tmp_path / "link" / "inner", tmp_path / "missing"):
        with pytest.raises(OSError, match=r"."):
            open_without_links(str(path))


@pytest.mark.skipif(ABI < 3, reason="this kernel has no Landlock to speak of")
def test_where_no_thread_is_to_be_had_nothing_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of processes every try left the rules of its files open, until there was no descriptor either."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(OSError, match="no thread"):
        start_confined(Confinement(drop_capabilities=False, landlock=rules(tmp_path)), sleeper)
    assert len(os.listdir("/proc/self/fd")) == before
