from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable

import pytest

from palyra.launch.capture import Capture
from palyra.launch.message import nonce_from
from palyra.model.outcome import StreamName

NONCE = nonce_from(b"\x07" * 16)


class Kept:
    def __init__(self) -> None:
        self.chunks: list[tuple[StreamName, bytes]] = []

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        self.chunks.append((stream, chunk))

    def text(self, stream: StreamName) -> bytes:
        return b"".join(chunk for name, chunk in self.chunks if name is stream)


def run(
    write: Callable[[int, int], None], *, quota: int = 1 << 20, sink: object = None, drain_s: float = 5
) -> tuple[Capture, Kept]:
    """Both pipes, written by a thread that closes them at its end."""

    async def go() -> tuple[Capture, Kept]:
        kept = Kept()
        (out_r, out_w), (err_r, err_w) = os.pipe(), os.pipe()
        capture = Capture(stdout=out_r, stderr=err_r, quota_bytes=quota, sink=sink or kept, nonce=NONCE)
        capture.start()

        def work() -> None:
            try:
                write(out_w, err_w)
            except BrokenPipeError:
                pass
            finally:
                os.close(out_w)
                os.close(err_w)

        writing = asyncio.get_running_loop().run_in_executor(None, work)
        await asyncio.wait({writing, capture.tripped}, return_when=asyncio.FIRST_COMPLETED)
        await capture.drain(drain_s)
        await writing
        return capture, kept

    return asyncio.run(go())


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def test_both_streams_arrive_whole_in_small_chunks() -> None:
    data = os.urandom(300_000)

    def write(out: int, err: int) -> None:
        write_all(out, data)
        write_all(err, data[:5000])

    capture, kept = run(write)
    assert kept.text(StreamName.STDOUT) == data
    assert kept.text(StreamName.STDERR) == data[:5000]
    assert max(len(chunk) for _, chunk in kept.chunks) <= 4096
    assert capture.counts == {StreamName.STDOUT: 300_000, StreamName.STDERR: 5000}
    assert not capture.exceeded


def test_the_quota_counts_both_streams_and_is_never_passed_on() -> None:
    def write(out: int, err: int) -> None:
        write_all(out, b"o" * 600)
        write_all(err, b"e" * 600)
        write_all(out, b"o" * 10_000_000)

    capture, kept = run(write, quota=1000)
    assert capture.exceeded
    assert sum(len(chunk) for _, chunk in kept.chunks) == 1000
    assert sum(capture.counts.values()) > 1000


def test_output_that_just_fits_does_not_exceed() -> None:
    capture, kept = run(lambda out, err: write_all(out, b"x" * 1000), quota=1000)
    assert (capture.exceeded, len(kept.text(StreamName.STDOUT))) == (False, 1000)


def test_a_quota_of_nothing_still_lets_a_silent_program_pass() -> None:
    assert not run(lambda out, err: None, quota=0)[0].exceeded
    assert run(lambda out, err: write_all(err, b"x"), quota=0)[0].exceeded


@pytest.mark.parametrize("cut", range(1, len(NONCE) + 2))
def test_a_nonce_is_taken_out_wherever_it_is_cut(cut: int) -> None:
    said = b"sh: not found\n" + NONCE + b"\n"
    at = len(b"sh: not found\n") + cut

    def write(out: int, err: int) -> None:
        write_all(err, said[:at])
        os.sched_yield()
        write_all(err, said[at:])

    capture, kept = run(write)
    assert capture.launch_failed
    assert kept.text(StreamName.STDERR) == b"sh: not found\n"
    assert capture.last_words == b"sh: not found\n"


def test_what_only_looks_like_a_nonce_is_passed_on() -> None:
    almost = NONCE[:-1] + b"x\n" + NONCE[:10]
    capture, kept = run(lambda out, err: write_all(err, almost))
    assert (capture.launch_failed, kept.text(StreamName.STDERR)) == (False, almost)


def test_a_nonce_on_stdout_means_nothing() -> None:
    capture, kept = run(lambda out, err: write_all(out, NONCE + b"\n"))
    assert (capture.launch_failed, kept.text(StreamName.STDOUT)) == (False, NONCE + b"\n")


def test_a_sink_that_breaks_ends_the_capture_with_its_error() -> None:
    class Broken:
        def feed(self, stream: StreamName, chunk: bytes) -> None:
            raise RuntimeError("full")

    capture, _ = run(lambda out, err: write_all(out, b"x"), sink=Broken())
    with pytest.raises(RuntimeError, match="full"):
        capture.tripped.result()


def test_a_stranger_who_holds_the_pipe_does_not_hold_the_call() -> None:
    async def go() -> bytes:
        kept = Kept()
        (out_r, out_w), (err_r, err_w) = os.pipe(), os.pipe()
        capture = Capture(stdout=out_r, stderr=err_r, quota_bytes=100, sink=kept, nonce=NONCE)
        capture.start()
        os.write(out_w, b"before")
        await capture.drain(0.05)
        os.close(out_w)
        os.close(err_w)
        return kept.text(StreamName.STDOUT)

    assert asyncio.run(go()) == b"before"


class Slow(Kept):
    """Has room for `most` bytes until somebody reads."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.waits: list[asyncio.Future[None]] = []

    def room(self, stream: StreamName) -> asyncio.Future[None] | None:
        if len(self.text(stream)) < self.most:
            return None
        self.waits.append(asyncio.get_running_loop().create_future())
        return self.waits[-1]


def test_a_sink_without_room_makes_the_program_wait_and_only_on_that_stream() -> None:
    async def go() -> tuple[int, int, int]:
        sink = Slow(1)
        (out_r, out_w), (err_r, err_w) = os.pipe(), os.pipe()
        capture = Capture(stdout=out_r, stderr=err_r, quota_bytes=1 << 30, sink=sink, nonce=NONCE)
        capture.start()
        os.set_blocking(out_w, False)
        written = 0
        for _ in range(20):
            with contextlib.suppress(BlockingIOError):
                written += os.write(out_w, b"x" * 65536)
            await asyncio.sleep(0.005)
        waited = written
        os.write(err_w, b"still heard")
        await asyncio.sleep(0.05)
        assert sink.text(StreamName.STDERR) == b"still heard"
        sink.most = 1 << 30
        sink.waits[0].set_result(None)
        await asyncio.sleep(0.05)
        heard = len(sink.text(StreamName.STDOUT))
        os.close(out_w)
        os.close(err_w)
        await capture.drain(5)
        return waited, heard, len(sink.text(StreamName.STDOUT))

    waited, heard, whole = asyncio.run(go())
    assert waited <= 3 * 65536  # what was read once, and what the pipe holds
    assert heard == whole == waited


def test_what_is_left_in_the_pipe_at_the_end_is_read_whether_there_is_room_or_not() -> None:
    data = os.urandom(100_000)
    sink = Slow(1)

    async def go() -> None:
        (out_r, out_w), (err_r, err_w) = os.pipe(), os.pipe()
        capture = Capture(stdout=out_r, stderr=err_r, quota_bytes=1 << 20, sink=sink, nonce=NONCE)
        capture.start()
        writing = asyncio.get_running_loop().run_in_executor(None, write_all, out_w, data)
        await writing
        os.close(out_w)
        os.close(err_w)
        await capture.drain(5)

    asyncio.run(go())
    assert sink.text(StreamName.STDOUT) == data
