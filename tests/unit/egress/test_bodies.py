"""Where a body ends, in any pieces; and no second request in a chunk."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palyra.egress.bodies import MAX_LINE, MAX_TRAILERS, Chunked, Counted, UntilClose


def feed(body, data: bytes, step: int) -> tuple[bytes, bytes]:
    out = b""
    for at in range(0, len(data), step):
        mine, rest = body.feed(data[at : at + step])
        out += mine
        if body.done or body.broken:
            return out, rest + data[at + step :]
    return out, b""


def chunked(*chunks: bytes, trailers: bytes = b"") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in chunks) + b"0\r\n" + trailers + b"\r\n"


@given(st.binary(max_size=50), st.binary(max_size=20), st.integers(1, 70))
def test_a_counted_body_ends_after_its_bytes(data, rest, step):
    body = Counted(len(data))
    assert body.done is (not data)
    if data:
        assert feed(body, data + rest, step) == (data, rest)
        assert body.done


@given(st.lists(st.binary(min_size=1, max_size=30), max_size=4), st.binary(max_size=20), st.integers(1, 80))
def test_a_chunked_body_is_the_same_in_any_pieces(chunks, rest, step):
    body, data = Chunked(is_request=True), chunked(*chunks)
    assert feed(body, data + rest, step) == (data, rest)
    assert (body.done, body.broken) == (True, None)


@given(st.binary(max_size=80), st.integers(1, 81), st.booleans())
@example(b"5\r\n" + b"\xff" * 17 + b"h", 4, False)
@example(b"5\r\nhello\rX", 9, True)
def test_any_bytes_give_the_same_in_one_piece_and_in_many(data, step, is_request):
    whole, pieces = Chunked(is_request=is_request), Chunked(is_request=is_request)
    one, many = feed(whole, data, len(data) or 1), feed(pieces, data, step)
    assert one[0] == many[0]
    assert (whole.done, str(whole.broken)) == (pieces.done, str(pieces.broken))


def test_a_body_until_the_end_takes_everything():
    assert UntilClose().feed(b"abc") == (b"abc", b"")


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n", b"x\r\n", b"0x5\r\nhello\r\n", b"+5\r\nhello\r\n", b"-5\r\n", b" 5\r\nhello\r\n", b"5 \r\nhello\r\n",
        b"5;a=b\r\nhello\r\n", b"5\nhello\r\n", b"5\r\nhello", b"5\r\nhelloX\n", b"5\r\nhello\n\n", b"5\r\nhello\rX",
        b"5\r\nhelloGET / HTTP/1.1\r\n", b"f" * 16 + b"\r\n", b"5_0\r\n", b"5\r\r\nhello\r\n", b"\xd9\xa3\r\n",
        b"0\r\nX\r\n\r\n",
        b"0\r\nHost: evil.test\r\n\r\n", b"0\r\nContent-Length: 5\r\n\r\n", b"0\r\nTransfer_Encoding: x\r\n\r\n",
        b"0\r\nAuthorization: x\r\n\r\n", b"0\r\n folded: x\r\n\r\n", b"0\r\nA: b\n\r\n", b"0\r\nA: b\rc\r\n\r\n",
    ],
)  # fmt: skip
def test_a_chunk_with_two_readings_breaks_the_request(data):
    body = Chunked(is_request=True)
    body.feed(data + b"#" * 3)
    assert body.broken is not None
    assert not body.done
    assert body.feed(b"0\r\n\r\n") == (b"", b"")


def test_what_a_host_writes_around_its_chunks_is_dropped():
    body = Chunked(is_request=False)
    assert body.feed(b"00005 ;ext=1\r\nhello\r\n0;x\r\nX-Sum: 1 \r\n\r\nrest") == (
        b"5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n", b"rest",
    )  # fmt: skip


def test_lines_and_trailers_are_bounded():
    for data in (b"0" * (MAX_LINE + 1), b"0\r\n" + b"A: b\r\n" * (MAX_TRAILERS // 2)):
        body = Chunked(is_request=True)
        body.feed(data)
        assert body.broken is not None


def test_ten_thousand_tiny_chunks_in_one_piece_are_one_write():
    data = chunked(*[b"x"] * 10_000)
    assert Chunked(is_request=True).feed(data) == (data, b"")
