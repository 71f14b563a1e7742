"""Output that comes through a daemon: a signal ends the wait for a reader, whenever it comes."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from palyra.cli import through_daemon
from palyra.cli.through_daemon import Shown
from palyra.model.outcome import StreamName

MUCH = b"a" * (1 << 20)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Instead of stdout: nobody reads from it but the test."""
    reading, writing = os.pipe()
    write = os.write
    monkeypatch.setattr(through_daemon.os, "write", lambda fd, data: write(writing, data))
    monkeypatch.setattr(through_daemon, "PATIENCE_S", 0.01)
    takes = through_daemon._takes_more
    monkeypatch.setattr(through_daemon, "_takes_more", lambda fd: takes(writing))
    yield reading
    os.close(reading)
    os.close(writing)


def test_a_signal_before_the_reader_stood_still_ends_the_wait_for_it_too(pipe: int) -> None:
    shown = Shown()
    shown.interrupt()
    shown(StreamName.STDOUT, MUCH)
    assert shown.given_up
    assert 0 < len(os.read(pipe, len(MUCH))) < len(MUCH)
    shown(StreamName.STDOUT, b"b")  # nobody is asked again
    os.set_blocking(pipe, False)
    with pytest.raises(BlockingIOError):
        os.read(pipe, 1)


def test_whoever_reads_gets_the_rest_after_a_signal(pipe: int) -> None:
    shown = Shown()
    shown.interrupt()
    shown(StreamName.STDOUT, b"the end\n")
    assert (os.read(pipe, 100), shown.given_up, shown.last) == (b"the end\n", False, b"\n")
