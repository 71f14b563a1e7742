"""A form with a file: any split of its bytes is read alike, and nothing that is not quite one is taken for one."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.daemon.routes import Refused
from palyra.daemon.upload import MAX_FIELDS, MAX_HEAD_BYTES, MAX_VALUE_BYTES, Parts, boundary_of

B = b"----formboundary7MA4"
DISPOSITION = b"Content-Disposition: form-data; "


def field(name: bytes, value: bytes) -> bytes:
    return b"--" + B + b"\r\n" + DISPOSITION + b'name="' + name + b'"\r\n\r\n' + value + b"\r\n"


def file(content: bytes, name: bytes = b"package", more: bytes = b"") -> bytes:
    head = DISPOSITION + b'name="' + name + b'"; filename="../../x.sh"' + more
    return b"--" + B + b"\r\n" + head + b"\r\nContent-Type: application/octet-stream\r\n\r\n" + content + b"\r\n"


END = b"--" + B + b"--\r\n"


class Read:
    def __init__(self, *chunks: bytes) -> None:
        self.file = bytearray()
        self.at_file: dict[str, str] | None = None
        self.parts = Parts(B, on_file=self._on_file, write=self.file.extend)
        for chunk in chunks:
            self.parts.feed(chunk)

    def _on_file(self, fields: dict[str, str]) -> None:
        self.at_file = dict(fields)


def test_fields_then_the_file():
    read = Read(field(b"csrf", b"abc") + field(b"tofu", "é".encode()) + file(b"\x00\r\n--package") + END)
    assert (read.parts.fields, bytes(read.file)) == ({"csrf": "abc", "tofu": "é"}, b"\x00\r\n--package")
    assert (read.parts.is_whole, read.parts.file_name) == (True, "package")


def test_the_fields_are_judged_before_a_byte_of_the_file_is_kept():
    kept = bytearray()

    def refuse(fields: dict[str, str]) -> None:
        raise Refused(403, "CSRF", "no")

    parts = Parts(B, on_file=refuse, write=kept.extend)
    with pytest.raises(Refused, match="403 CSRF"):
        parts.feed(field(b"csrf", b"wrong") + file(b"x" * 1000) + END)
    assert kept == b""


@given(content=st.binary(max_size=200), cuts=st.lists(st.integers(0, 600), max_size=8), near=st.booleans())
def test_any_split_is_read_alike(content, cuts, near):
    content = content + (b"\r\n--" + B[:-1] if near else b"")
    whole = field(b"csrf", b"abc") + file(content) + END
    places = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    read = Read(*(whole[start:end] for start, end in pairwise(places)))
    assert (read.at_file, bytes(read.file), read.parts.is_whole) == ({"csrf": "abc"}, content, True)


ONE = field(b"csrf", b"abc")
BAD = {
    "a word before it": b"hello\r\n" + ONE + file(b"x") + END,
    "another boundary": ONE.replace(B, b"other") + file(b"x") + END,
    "two files": ONE + file(b"x") + file(b"y", b"other") + END,
    "a field behind the file": file(b"x") + ONE + END,
    "a field twice": ONE + ONE + file(b"x") + END,
    "too many fields": b"".join(
        field(b"f_" + b"abcdefghijklmnopqrstuvwxyz"[n : n + 1], b"") for n in range(MAX_FIELDS + 1)
    ),
    "a long field": field(b"csrf", b"x" * (MAX_VALUE_BYTES + 1)) + file(b"x") + END,
    "a field that is no text": field(b"csrf", b"\xff") + file(b"x") + END,
    "no name": ONE.replace(b'name="csrf"', b"") + file(b"x") + END,
    "two names": ONE.replace(b"\r\n\r\n", b"\r\n" + DISPOSITION + b'name="other"\r\n\r\n') + END,
    "a name within another header": ONE.replace(DISPOSITION, b"X: " + DISPOSITION) + END,
    "headers without an end": b"--" + B + b"\r\n" + b"x" * (MAX_HEAD_BYTES + 1),
    "more behind the end": ONE + file(b"x") + END + b"more",
    "a mark that goes on": ONE + file(b"x") + b"--" + B + b"x\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_quite_a_form_is_refused(name):
    with pytest.raises(Refused, match="400 MALFORMED"):
        Read(BAD[name])


@given(st.binary(max_size=300))
def test_random_bytes_never_do_more_than_be_refused(data):
    with suppress(Refused):
        assert not Read(data).parts.is_whole


def test_a_form_that_is_cut_off_is_not_whole():
    whole = ONE + file(b"x") + END
    assert [end for end in range(len(whole) - 2) if Read(whole[:end]).parts.is_whole] == []


@pytest.mark.parametrize(
    "sent", ["", "multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=a b",
             "application/json", "multipart/form-data; boundary=" + "x" * 71, "multipart/form-data; boundary=x; x=y"],
)  # fmt: skip
def test_a_type_without_a_boundary_is_refused(sent):
    with pytest.raises(Refused, match="400"):
        boundary_of(sent)


def test_boundaries_as_browsers_spell_them():
    assert boundary_of("multipart/form-data; boundary=----WebKitFormBoundaryabc") == b"----WebKitFormBoundaryabc"
    assert boundary_of('multipart/form-data; boundary="-x-"') == b"-x-"
