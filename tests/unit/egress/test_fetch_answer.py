"""One HTTP answer from bytes: where it ends is never a matter of opinion."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.fetch_answer import MAX_HEAD_BYTES, Answer, BadAnswer
from tests.promises import promise

OK = b"HTTP/1.1 200 OK\r\n"


def read(data: bytes, *, method: str = "GET", most: int = 1000, step: int = 0, closes: bool = True) -> Answer:
    answer = Answer(method=method, max_bytes=most)
    for at in range(0, len(data), step or max(1, len(data))):
        if not answer.done:
            answer.feed(data[at : at + (step or len(data))])
    if closes and not answer.done:
        answer.close()
    return answer


@pytest.mark.parametrize("step", [0, 1, 3])
@pytest.mark.parametrize(
    ("data", "body"),
    [
        (OK + b"Content-Length: 5\r\n\r\nhello", b"hello"),
        (OK + b"content-length:5\r\nContent-Length: 5\r\n\r\nhello and more", b"hello"),
        (OK + b"\r\nuntil the end", b"until the end"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nTrailer: x\r\n\r\n",
            b"hello world",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx", b"x"),
        (b"HTTP/1.0 200\nX: y\n\nbare line feeds", b"bare line feeds"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b""),
        (OK + b"Content-Length: 0\r\n\r\n", b""),
    ],
)
def test_a_body_ends_where_its_framing_says(data: bytes, body: bytes, step: int):
    answer = read(data, step=step)
    assert (answer.done, answer.body, answer.truncated) == (True, body, False)


def test_a_head_is_all_there_is_to_head():
    assert read(OK + b"Content-Length: 9\r\n\r\n", method="HEAD", closes=False).done


def test_names_are_lower_case_and_values_are_trimmed():
    assert read(OK + b"X-A:  b c \r\nContent-Length: 0\r\n\r\n").fields == (("x-a", "b c"), ("content-length", "0"))


@promise("egress.hostile-server")
@pytest.mark.parametrize(
    "data",
    [
        OK + b"Content-Length: 1000000\r\n\r\n" + b"x" * 2000,
        OK + b"\r\n" + b"x" * 2000,
        OK + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n" + b"x" * 2000,
    ],
)
def test_more_than_is_wanted_is_not_waited_for(data: bytes):
    answer = read(data, closes=False)
    assert (answer.done, len(answer.body), answer.truncated) == (True, 1000, True)


@promise("egress.hostile-server")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 99 x\r\n\r\n",
        b"HTTP/1.1 600 x\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 103 x\r\n\r\n" * 20,
        OK + b"Content-Length: 5\r\n\r\nhel",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: +1\r\n\r\nx",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        OK + b"Content-Length: 1, 2\r\n\r\nxx",
        OK + "Content-Length: ²\r\n\r\nxx".encode("latin-1"),
        OK + b"Content-Length: 9999999999999999999\r\n\r\n",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 300,
        OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 200,
        OK + b"bad field\r\n\r\n",
        OK + b"bad name : x\r\n\r\n",
        OK + b" folded: x\r\n\r\n",
        OK + b"a: \x01\r\n\r\n",
        OK + b": x\r\n\r\n",
        OK + b"a: b\r\n" * 200 + b"\r\n",
        OK + b"a: " + b"x" * MAX_HEAD_BYTES,
        b"x" * (MAX_HEAD_BYTES + 10),
    ],
)
def test_an_answer_that_could_be_read_in_two_ways_is_refused(data: bytes):
    with pytest.raises(BadAnswer):
        read(data)


@promise("egress.hostile-server")
def test_a_body_in_tiny_chunks_costs_no_more_than_its_size():
    with pytest.raises(BadAnswer, match="chunks"):
        read(OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 150_000, most=1 << 20, step=65536)


@promise("egress.hostile-server")
@given(
    data=st.binary(max_size=300),
    head=st.sampled_from([b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n"]),
    cut=st.data(),
)
def test_any_split_of_any_bytes_is_read_the_same(data: bytes, head: bytes, cut: st.DataObject):
    whole = head + data
    at = cut.draw(st.integers(0, len(whole)))
    seen = []
    for parts in ((whole,), (whole[:at], whole[at:])):
        answer = Answer(method="GET", max_bytes=64)
        try:
            for part in parts:
                if not answer.done:
                    answer.feed(part)
            with suppress(BadAnswer):
                answer.close()
            seen.append((answer.done, answer.status, answer.fields, answer.body, answer.truncated))
        except BadAnswer as error:
            seen.append((str(error),))
    assert seen[0] == seen[1]
