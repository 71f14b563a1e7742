"""The thread that enters PID namespaces is back in its own after each, is not asked again when it failed, and not
after a fork."""

from __future__ import annotations

import os
import threading

import pytest

from palyra.launch._os import _entering


@pytest.fixture(autouse=True)
def _own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_entering, "_thread", None)


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where it went, told instead of done: only root may."""
    seen: list[str] = []
    monkeypatch.setattr(_entering, "_enter", lambda fd: seen.append(os.readlink(f"/proc/self/fd/{fd}")))
    return seen


def test_each_start_is_made_inside_and_left_again_by_one_thread(entered: list[str]) -> None:
    other = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    threads = {_entering.start_in(other, threading.get_ident) for _ in range(3)}
    os.close(other)
    own = os.readlink("/proc/self/ns/pid")
    assert entered == [os.readlink("/proc/self/ns/net"), own] * 3
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_start_that_fails_is_told_and_its_thread_is_not_asked_again(entered: list[str]) -> None:
    def fail() -> int:
        raise OSError("no room")

    fd = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    first = _entering.start_in(fd, threading.get_native_id)
    with pytest.raises(OSError, match="no room"):
        _entering.start_in(fd, fail)
    assert _entering.start_in(fd, threading.get_native_id) != first
    os.close(fd)
    assert len(entered) == 6


def test_a_namespace_that_cannot_be_entered_starts_nothing() -> None:
    fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    started: list[int] = []

    def start() -> int:
        started.append(1)
        return 1

    with pytest.raises(OSError, match="setns"):
        _entering.start_in(fd, start)
    os.close(fd)
    assert started == []


def test_a_fork_has_a_thread_of_its_own(entered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    first = _entering.start_in(fd, threading.get_native_id)
    thread = _entering._thread
    assert thread is not None
    monkeypatch.setattr(thread, "_pid", -1)
    assert _entering.start_in(fd, threading.get_native_id) != first
    os.close(fd)
