"""The log of a background process: offsets hold for ever, what is gone is counted, nothing grows without bound."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.launch import ringlog as module
from palyra.launch.ringlog import RingLog, prune_logs, read_log
from palyra.model.outcome import StreamName
from palyra.model.process import LogChunk, LogPage
from tests.journaling import ulid
from tests.promises import promise

OUT, ERR = StreamName.STDOUT, StreamName.STDERR


def small(tmp_path: Path) -> RingLog:
    """Four files of 25 bytes each: records of up to 20 bytes."""
    return RingLog(tmp_path / "log", principal="agent:a", segment_bytes=25, segments=4)


def text(page: LogPage) -> bytes:
    return b"".join(chunk.data for chunk in page.chunks)


def test_both_streams_come_back_in_the_order_they_were_written(tmp_path):
    log = RingLog(tmp_path / "log", principal="agent:a")
    for stream, data in ((OUT, b"one "), (OUT, b"two "), (ERR, b"oops "), (OUT, b"three")):
        log.write(stream, data)
    assert read_log(tmp_path / "log", offset=0, max_bytes=100) == LogPage(
        offset_bytes=0,
        next_offset_bytes=18,
        dropped_bytes=0,
        total_bytes=18,
        chunks=(LogChunk(OUT, b"one two "), LogChunk(ERR, b"oops "), LogChunk(OUT, b"three")),
    )


def test_one_stream_alone_keeps_the_offsets_of_both(tmp_path):
    log = RingLog(tmp_path / "log", principal="agent:a")
    for stream, data in ((OUT, b"aa"), (ERR, b"bbb"), (OUT, b"cc"), (ERR, b"d")):
        log.write(stream, data)
    page = read_log(tmp_path / "log", offset=1, max_bytes=2, stream=OUT)
    assert (text(page), page.offset_bytes, page.next_offset_bytes) == (b"ac", 1, 6)
    rest = read_log(tmp_path / "log", offset=6, max_bytes=9, stream=OUT)
    assert (text(rest), rest.next_offset_bytes) == (b"c", 8)


def test_the_oldest_is_dropped_and_the_reader_learns_how_much(tmp_path):
    log = small(tmp_path)
    for number in range(10):
        log.write(OUT, b"%020d" % number)
    page = read_log(tmp_path / "log", offset=0, max_bytes=1000)
    assert page == LogPage(
        offset_bytes=120,
        next_offset_bytes=200,
        dropped_bytes=120,
        total_bytes=200,
        chunks=(LogChunk(OUT, b"".join(b"%020d" % n for n in (6, 7, 8, 9))),),
    )
    kept = read_log(tmp_path / "log", offset=139, max_bytes=3)
    assert (text(kept), kept.dropped_bytes, kept.next_offset_bytes) == (b"600", 0, 142)
    assert sum(file.stat().st_size for file in (tmp_path / "log").glob("[0-9]*")) <= 100


@promise("sandbox.cleanup-time")
def test_a_program_that_writes_byte_by_byte_makes_no_page_of_its_log_costly(tmp_path, monkeypatch):
    """Every page looks through one or two files, in the loop that serves everybody: it was half a second's work."""
    monkeypatch.setattr(module, "RECORDS", 50)
    log = RingLog(tmp_path / "log", principal="agent:a")
    for number in range(1000):
        log.write(OUT if number % 2 else ERR, b"%d" % (number % 10))
    sizes = [file.stat().st_size for file in (tmp_path / "log").glob("0*")]
    assert (len(sizes), max(sizes)) == (module.SEGMENTS, 50 * 6)
    page = read_log(tmp_path / "log", offset=0, max_bytes=1000)
    assert (page.dropped_bytes, text(page)) == (800, b"0123456789" * 20)


def test_an_offset_the_log_has_not_reached_is_an_error(tmp_path):
    log = small(tmp_path)
    log.write(OUT, b"abc")
    assert text(read_log(tmp_path / "log", offset=3, max_bytes=9)) == b""
    with pytest.raises(ValueError, match="3 bytes"):
        read_log(tmp_path / "log", offset=4, max_bytes=9)


def test_a_log_that_is_not_there_is_empty(tmp_path):
    assert read_log(tmp_path / "log", offset=0, max_bytes=9) == LogPage(
        offset_bytes=0, next_offset_bytes=0, dropped_bytes=0, total_bytes=0
    )


def test_a_character_is_not_cut_in_two_by_a_page(tmp_path):
    log = RingLog(tmp_path / "log", principal="agent:a")
    log.write(OUT, "aé€𝄞".encode())
    pages, offset = [], 0
    while True:
        page = read_log(tmp_path / "log", offset=offset, max_bytes=4)
        if page.next_offset_bytes == offset:
            break
        pages.append(text(page).decode("utf-8"))
        offset = page.next_offset_bytes
    assert pages == ["aé", "€", "𝄞"]


def test_a_page_too_small_for_a_character_still_gets_on(tmp_path):
    log = RingLog(tmp_path / "log", principal="agent:a")
    log.write(OUT, "€x".encode())
    assert [read_log(tmp_path / "log", offset=at, max_bytes=1).next_offset_bytes for at in range(4)] == [1, 2, 3, 4]


def test_half_a_character_waits_for_its_other_half_while_the_log_grows(tmp_path):
    log = RingLog(tmp_path / "log", principal="agent:a")
    log.write(OUT, "x€".encode()[:2])
    waiting = read_log(tmp_path / "log", offset=0, max_bytes=9, growing=True)
    assert (text(waiting), waiting.next_offset_bytes, waiting.total_bytes) == (b"x", 1, 2)
    assert text(read_log(tmp_path / "log", offset=1, max_bytes=9, growing=True)) == b""
    assert text(read_log(tmp_path / "log", offset=1, max_bytes=9)) == "€".encode()[:1]
    log.write(OUT, "€".encode()[1:])
    assert text(read_log(tmp_path / "log", offset=1, max_bytes=9, growing=True)) == "€".encode()


def test_nobody_else_may_read_a_log(tmp_path):
    before = os.umask(0)
    log = RingLog(tmp_path / "log", principal="agent:a")
    log.write(OUT, b"x")
    os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "log", *(tmp_path / "log").iterdir())]
    assert modes == [0o700, 0o600, 0o600]


def test_a_record_that_a_crash_cut_short_is_not_shown(tmp_path):
    log = RingLog(tmp_path / "log", principal="agent:a")
    log.write(OUT, b"whole")
    log.write(OUT, b"torn")
    (file,) = (tmp_path / "log").glob("[0-9]*")
    file.write_bytes(file.read_bytes()[:-1])
    page = read_log(tmp_path / "log", offset=0, max_bytes=100)
    assert (text(page), page.total_bytes) == (b"whole", 5)


def test_a_disk_that_is_full_costs_output_and_nothing_else(tmp_path, monkeypatch):
    log = RingLog(tmp_path / "log", principal="agent:a")
    log.write(OUT, b"before")
    real = os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for _ in range(10):
        log.write(OUT, b"lost")
    monkeypatch.setattr(os, "write", real)
    log.write(ERR, b"after")
    first = read_log(tmp_path / "log", offset=0, max_bytes=100)
    assert (text(first), first.next_offset_bytes, first.total_bytes) == (b"before", 6, 51)
    rest = read_log(tmp_path / "log", offset=6, max_bytes=100)
    assert (text(rest), rest.dropped_bytes, rest.next_offset_bytes) == (b"after", 40, 51)


@settings(max_examples=60, deadline=None)
@given(
    writes=st.lists(st.tuples(st.sampled_from([OUT, ERR]), st.binary(min_size=1, max_size=60)), max_size=30),
    size=st.integers(1, 40),
)
def test_paging_through_a_log_gives_its_kept_end_exactly(tmp_path_factory, writes, size):
    folder = tmp_path_factory.mktemp("ring") / "log"
    log = RingLog(folder, principal="agent:a", segment_bytes=25, segments=4)
    for stream, data in writes:
        log.write(stream, data)
    log.close()
    whole = b"".join(data for _, data in writes)
    seen, offset = b"", 0
    while offset < len(whole):
        page = read_log(folder, offset=offset, max_bytes=size)
        assert page.next_offset_bytes > offset
        assert whole[page.offset_bytes : page.next_offset_bytes] == text(page)
        assert offset + page.dropped_bytes == page.offset_bytes
        assert len(text(page)) <= size
        seen, offset = seen + text(page), page.next_offset_bytes
    assert whole.endswith(seen)
    assert sum(file.stat().st_size for file in folder.glob("[0-9]*")) <= 100
    if sum(len(data) + 5 for _, data in writes) <= 25:
        assert seen == whole, "what fits is all there"


def test_only_the_newest_logs_are_kept_and_never_one_that_is_in_use_removed(tmp_path):
    ids = [ulid(number) for number in range(1, 7)]
    for name in (*ids, "keeper.log"):
        (tmp_path / name).mkdir()
    prune_logs(tmp_path, keep={ids[0]}, most=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([ids[0], ids[4], ids[5], "keeper.log"])


@promise("daemon.reserved-capacity")
def test_hundreds_of_short_processes_push_out_no_log_of_who_has_fewer(tmp_path):
    names = [ulid(number) for number in range(1, 13)]
    for number, name in enumerate(names):
        RingLog(tmp_path / name, principal="agent:quiet" if number < 3 else "agent:busy").close()
    prune_logs(tmp_path, keep=(), most=6)
    assert sorted(path.name for path in tmp_path.iterdir()) == names[:3] + names[9:]


def test_of_two_who_have_as_many_the_older_log_goes(tmp_path):
    names = [ulid(number) for number in range(1, 5)]
    for number, name in enumerate(names):
        RingLog(tmp_path / name, principal=f"agent:{number % 2}").close()
    prune_logs(tmp_path, keep=(), most=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == names[1:]


def test_who_owns_a_log_is_told_to_its_owner_alone_and_to_no_reader(tmp_path):
    log = RingLog(tmp_path / "log", principal="agent:a")
    log.write(StreamName.STDOUT, b"hello")
    assert (tmp_path / "log" / "owner").stat().st_mode & 0o777 == 0o600
    assert text(read_log(tmp_path / "log", offset=0, max_bytes=100)) == b"hello"
