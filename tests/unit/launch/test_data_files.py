"""What launchers read: from its start for everybody, unchangeable, bounded, and gone with whoever kept it."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from palyra.launch import data_files as module
from palyra.launch.data_files import DataFiles


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def read_and_close(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def test_each_reader_begins_at_the_start_whoever_else_reads() -> None:
    files = DataFiles()
    first, second = files.open(b"the same"), files.open(b"the same")
    assert os.read(first, 3) == b"the"
    assert (read_and_close(second), read_and_close(first)) == (b"the same", b" same")
    assert read_and_close(files.open(b"")) == b""


@pytest.mark.parametrize("size", [8, module.MAX_BYTES + 1])
def test_nobody_who_has_one_can_change_what_the_next_one_reads(size: int) -> None:
    files, data = DataFiles(), b"x" * size
    fd = files.open(data)
    with pytest.raises(OSError, match=r"Bad file descriptor|not permitted"):
        os.write(fd, b"y")
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    for change in (lambda: os.write(again, b"y"), lambda: os.ftruncate(again, 0), lambda: os.ftruncate(again, 1 << 20)):
        with pytest.raises(PermissionError):
            change()
    for open_fd in (fd, again):
        os.close(open_fd)
    assert read_and_close(files.open(data)) == data


def test_it_keeps_a_bounded_number_and_nothing_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 3)
    files, before = DataFiles(), open_files()
    for number in range(10):
        assert read_and_close(files.open(b"%d" % number)) == b"%d" % number
    assert len(read_and_close(files.open(b"x" * (module.MAX_BYTES + 1)))) == module.MAX_BYTES + 1
    assert open_files() == before + 3


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_its_end_closes_what_it_kept(how: str) -> None:
    gc.collect()  # what other tests dropped
    before, files = open_files(), DataFiles()
    os.close(files.open(b"kept"))
    assert open_files() == before + 1
    if how == "closed":
        files.close()
        assert read_and_close(files.open(b"kept")) == b"kept"  # and it goes on, should anybody ask
        files.close()
    else:
        del files
        gc.collect()
    assert open_files() == before


@pytest.mark.parametrize("stranger", [b"a secret of somebody's", None])
def test_a_number_that_is_another_files_by_now_is_never_read_for_ours(tmp_path: Path, stranger: bytes | None) -> None:
    """A library that closes every descriptor of the process, and whatever was opened next."""
    files = DataFiles()
    os.close(files.open(b"of a sandbox"))
    fd = files._kept[b"of a sandbox"].fd
    os.close(fd)
    if stranger is None:
        os.close(files.open(b"another"))  # takes the number, most likely
    else:
        (tmp_path / "secret").write_bytes(stranger)
        opened = os.open(tmp_path / "secret", os.O_RDONLY)
        if opened != fd:
            os.dup2(opened, fd)
            os.close(opened)
    assert read_and_close(files.open(b"of a sandbox")) == b"of a sandbox"
    assert read_and_close(files.open(b"of a sandbox")) == b"of a sandbox"
    files.close()
    if stranger is not None:
        assert read_and_close(fd) == stranger, "and it is not closed for them"


def test_what_was_opened_ahead_is_given_once_and_read_from_its_start() -> None:
    files, texts = DataFiles(), [b"one", b"two", b"x" * (module.MAX_BYTES + 1)]
    files.get_ready(texts)
    before = open_files()
    files.get_ready(texts)  # they are there already
    assert open_files() == before
    assert [read_and_close(files.open(data)) for _ in range(2) for data in texts] == texts * 2
    files.get_ready([b"three"])
    files.get_ready([])
    files.close()
    assert open_files() == before - 4


def test_a_fork_does_not_read_on_where_its_parent_stopped() -> None:
    files = DataFiles()
    files.get_ready([b"both read this"])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, read_and_close(files.open(b"both read this")))
        os._exit(0)
    os.waitpid(child, 0)
    assert (read_and_close(read), os.close(write)) == (b"both read this", None)
    assert read_and_close(files.open(b"both read this")) == b"both read this"


def test_one_opened_ahead_that_somebody_closed_is_not_given() -> None:
    files = DataFiles()
    files.get_ready([b"ours"])
    (ready,) = files._ready.values()
    os.close(ready.fd)
    other = os.open("/dev/null", os.O_RDONLY)
    os.dup2(other, ready.fd)
    assert read_and_close(files.open(b"ours")) == b"ours"
    for fd in {other, ready.fd}:
        os.close(fd)


def test_without_a_descriptor_to_spare_nothing_is_opened_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(fd: int) -> int:
        raise OSError(24, "Too many open files")

    files = DataFiles()
    monkeypatch.setattr(module._os, "opened_again", none_left)
    files.get_ready([b"one"])
    monkeypatch.undo()
    assert read_and_close(files.open(b"one")) == b"one"
