"""When a tier B program that has ended leaves nobody to kill; the killing itself is tested in tests/conformance."""

from __future__ import annotations

import subprocess
import time

import pytest

from palyra.launch import _os
from palyra.launch.ending import _started_nobody
from palyra.launch.held import Held


def begun(last_pid: int, *, ago_s: float = 0.0) -> Held:
    held = Held()
    held.began = last_pid, time.monotonic() - ago_s
    return held


def test_where_nothing_was_started_since_there_is_nobody_to_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_os, "last_pid", lambda: 41)
    assert _started_nobody(begun(41))


def test_any_process_started_since_may_be_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_os, "last_pid", lambda: 42)
    assert not _started_nobody(begun(41))


def test_a_program_that_ran_for_long_may_have_brought_the_numbers_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_os, "last_pid", lambda: 41)
    assert not _started_nobody(begun(41, ago_s=1.0))


def test_a_kernel_that_does_not_say_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_os, "last_pid", lambda: 0)
    assert not _started_nobody(begun(0))


def test_every_process_and_thread_moves_the_number() -> None:
    before = _os.last_pid()
    if not before:
        pytest.skip("this kernel does not say")
    subprocess.run(["/bin/sh", "-c", ":"], check=True)
    assert _os.last_pid() != before
