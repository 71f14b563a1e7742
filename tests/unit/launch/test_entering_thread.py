"""The thread that enters PID namespaces is back in its own after each, is not asked again when it failed, and not
after a fork."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

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


def test_where_nobody_may_come_back_each_start_has_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a user namespace without a PID namespace of its own: the machine's is not ours to enter."""
    other, own = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC), os.readlink("/proc/self/ns/pid")

    def enter(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}") == own:
            raise PermissionError(errno.EPERM, "setns: not permitted")

    monkeypatch.setattr(_entering, "_enter", enter)
    before = set(threading.enumerate())
    assert [_entering.start_in(other, iter([number]).__next__) for number in range(4)] == [0, 1, 2, 3]
    os.close(other)
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert set(threading.enumerate()) <= before


def test_it_ends_with_an_executor_and_another_is_started_when_somebody_asks(entered: list[str]) -> None:
    fd = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    before, files = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        assert _entering.start_in(fd, lambda: 7) == 7
        _entering.end_thread()
        assert (set(threading.enumerate()), len(os.listdir("/proc/self/fd"))) == (before, files)
    _entering.end_thread()
    os.close(fd)


def test_a_fork_has_a_thread_of_its_own(entered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    first = _entering.start_in(fd, threading.get_native_id)
    thread = _entering._thread
    assert thread is not None
    monkeypatch.setattr(thread, "_pid", -1)
    assert _entering.start_in(fd, threading.get_native_id) != first
    os.close(fd)


def test_without_a_descriptor_to_spare_nobody_waits_for_a_thread_that_never_serves(
    entered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opened its own namespace after it was asked: with none left the engine's loop stood still for good."""

    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(_entering.os, "open", full)
    with pytest.raises(OSError, match="Too many"):
        asked_aside(lambda: _entering.start_in(0, threading.get_ident))
    assert entered == []


def test_whoever_asks_a_thread_that_another_has_ended_gets_a_new_one(entered: list[str]) -> None:
    """Two loops of one process: one's start fails, and the other's waited for ever."""
    fd = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    first = _entering.start_in(fd, threading.get_native_id)
    thread = _entering._thread
    assert thread is not None
    thread.close()
    assert asked_aside(lambda: _entering.start_in(fd, threading.get_native_id)) != first
    os.close(fd)


def asked_aside(ask: Callable[[], int]) -> int:
    """In a thread that may wait for ever, so that a test does not."""
    answers: SimpleQueue[int | OSError] = SimpleQueue()

    def work() -> None:
        try:
            answers.put(ask())
        except OSError as error:
            answers.put(error)

    threading.Thread(target=work, daemon=True).start()
    answer = answers.get(timeout=10)
    if isinstance(answer, OSError):
        raise answer
    return answer
