"""Artifacts: only digests become paths, and pages put together are the whole."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.artifacts.names import artifact_path_parts, slice_text
from palyra.errors import Rejected


@pytest.mark.parametrize("bad", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65, "0" * 63 + "\n"])
def test_only_a_digest_becomes_a_path(bad):
    with pytest.raises(ValueError, match="SHA-256"):
        artifact_path_parts(bad)


@given(st.binary(max_size=300) | st.text(max_size=200).map(str.encode), st.integers(1, 40))
def test_pages_put_together_are_the_whole(data, size):
    read, at = b"", 0
    while True:
        page = slice_text(data, at, size)
        read += page["text"].encode() if "text" in page else base64.b64decode(page["base64"])
        if page["next_offset_bytes"] is None:
            break
        assert page["next_offset_bytes"] > at
        at = page["next_offset_bytes"]
    assert read == data


def test_an_offset_past_the_end_is_refused():
    with pytest.raises(Rejected):
        slice_text(b"abc", 4, 10)
