"""Frames come out as they went in, however the pipe cuts them; what is too large or unknown is refused at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.inside.wasm.frames import ANSWER, END, HEADER, LOAD, MAX_HEAD_BYTES, RUN, BadFrame, Frame, Parser

heads = st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4) | st.none(), max_size=3)
sent = st.builds(Frame, st.integers(LOAD, END), heads, st.binary(max_size=40))


@given(st.lists(sent, max_size=5), st.data())
def test_frames_come_out_as_they_went_in_however_they_are_cut(given_frames, data):
    stream = b"".join(frame.pack() for frame in given_frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    parser, found = Parser(max_body_bytes=64), []
    for first, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[first:end])
    assert found == given_frames


def test_a_head_that_comes_again_is_the_same_and_another_is_not():
    parser = Parser(max_body_bytes=64)
    one, again, other = parser.feed(
        Frame(RUN, {"a": 1}, b"x").pack() + Frame(RUN, {"a": 1}, b"y").pack() + Frame(RUN, {"a": 2}).pack()
    )
    assert one.head is again.head
    assert (one.head, other.head) == ({"a": 1}, {"a": 2})


@pytest.mark.parametrize(
    "data",
    [
        HEADER.pack(RUN, MAX_HEAD_BYTES + 1, 0),
        HEADER.pack(RUN, 0, 65),
        HEADER.pack(0, 2, 0),
        HEADER.pack(END + 1, 2, 0),
        HEADER.pack(RUN, 2, 0) + b"[]",
        HEADER.pack(RUN, 1, 0) + b"{",
        HEADER.pack(RUN, 3, 0) + b"nul",
        HEADER.pack(RUN, 2, 0) + b"\xff\xff",
        HEADER.pack(RUN, 100_000, 0) + b"[" * 100_000,
    ],
)
@pytest.mark.parametrize("before", [b"", Frame(ANSWER).pack()])
@pytest.mark.parametrize("in_two", [False, True])
def test_what_does_not_keep_to_the_rules_is_refused(data, before, in_two):
    parser = Parser(max_body_bytes=64)
    first = before + data[:3] if in_two else b""
    assert parser.feed(first) == [Frame(ANSWER)] * (in_two and bool(before))
    with pytest.raises(BadFrame):
        parser.feed(data[3:] if in_two else before + data)
