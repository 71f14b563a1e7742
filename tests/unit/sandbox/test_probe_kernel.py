"""Whether a trial's process has ended is seen on every kernel and left to who started it; and where it is tried."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from palyra.model.host import CgroupFacts
from palyra.sandbox import probe_kernel


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sh", "-c", "read x"], env={}, stdin=subprocess.PIPE) as child:
        yield child
        child.kill()


@pytest.fixture(autouse=True)
def old_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 5.3, and below the filters of some containers, there is no such call."""

    def missing(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing, raising=False)
    monkeypatch.setattr(probe_kernel, "_WAIT_S", 0.1)


def test_a_process_that_was_killed_has_ended_and_is_still_its_starters(waiting: subprocess.Popen[bytes]) -> None:
    waiting.kill()
    assert probe_kernel._ended(waiting.pid)
    assert waiting.wait() == -signal.SIGKILL


def test_a_process_that_goes_on_has_not_ended(waiting: subprocess.Popen[bytes]) -> None:
    assert not probe_kernel._ended(waiting.pid)
    assert waiting.poll() is None


def test_a_process_that_was_taken_by_another_thread_has_ended(waiting: subprocess.Popen[bytes]) -> None:
    waiting.kill()
    waiting.wait()
    assert probe_kernel._ended(waiting.pid)


def test_killing_a_group_is_tried_without_an_error() -> None:
    found = probe_kernel.try_cgroup_kill(CgroupFacts(version=0))
    assert found == "" or os.path.exists(f"{found}/cgroup.procs")


def test_a_call_is_killed_in_the_group_that_bounds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service is bounded by a group beside its own. Killed by one below its own, which it is not in, a call's
    processes went on."""
    tried: list[str] = []

    @contextlib.contextmanager
    def group(parent: str) -> Iterator[str]:
        tried.append(parent)
        yield ""

    monkeypatch.setattr(probe_kernel, "_group", group)
    monkeypatch.setattr(probe_kernel, "_folder", lambda controller: "/slice/service")
    for limits in (
        CgroupFacts(version=0),
        CgroupFacts(version=1, memory="/memory", pids="/pids"),
        CgroupFacts(version=2, memory="/slice", pids="/slice"),
        CgroupFacts(version=2, memory="", pids="/slice"),
    ):
        probe_kernel.try_cgroup_kill(limits)
    assert tried == ["/slice/service", "/slice/service", "/slice", "/slice"]
