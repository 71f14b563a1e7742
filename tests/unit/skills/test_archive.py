"""The canonical ZIP: one set of files, one archive, and every other archive refused with its own finding."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.skills.archive import MAX_ENTRIES, MAX_ENTRY_BYTES, check_path, read_zip, write_zip
from palyra.skills.findings import Finding, SkillRefused
from tests.promises import promise

FILES = {"skill.toml": b"a = 1\n", "modules/x.wasm": b"\0asm", "assets/deep/er/file.txt": b""}


def refusal(data: bytes) -> Finding:
    with pytest.raises(SkillRefused) as caught:
        read_zip(data)
    return caught.value.finding


def zip_of(*entries: tuple[str, bytes], method: int = zipfile.ZIP_STORED, mode: int = 0o100644) -> bytes:
    """As the standard library writes one: an honest tool in dishonest hands."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = method
            archive.writestr(info, data)
    return out.getvalue()


def patched(data: bytes, at: int, form: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


def test_what_is_written_is_read_and_other_readers_read_it_too():
    data = write_zip(FILES)
    assert read_zip(data) == FILES
    assert write_zip(dict(reversed(FILES.items()))) == data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == FILES


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("../evil", Finding.ARCHIVE_TRAVERSAL),
        ("a/../../evil", Finding.ARCHIVE_TRAVERSAL),
        ("/etc/passwd", Finding.ARCHIVE_TRAVERSAL),
        ("a\\b", Finding.ARCHIVE_TRAVERSAL),
        ("c:evil", Finding.ARCHIVE_TRAVERSAL),
        ("Skill.toml", Finding.ARCHIVE_CASE),
        ("a//b", Finding.ARCHIVE_PATH),
        ("./a", Finding.ARCHIVE_PATH),
        ("a/", Finding.ARCHIVE_PATH),
        (".hidden", Finding.ARCHIVE_PATH),
        ("a b", Finding.ARCHIVE_PATH),
        ("a.", Finding.ARCHIVE_PATH),
        ("con", Finding.ARCHIVE_PATH),
        ("assets/nul.txt", Finding.ARCHIVE_PATH),
        ("a" * 65, Finding.ARCHIVE_PATH),
        ("/".join("abcdefghi"), Finding.ARCHIVE_PATH),
        ("-rf", Finding.ARCHIVE_PATH),
    ],
)
def test_a_path_that_is_special_anywhere_is_refused_everywhere(name, finding):
    with pytest.raises(SkillRefused) as caught:
        check_path(name)
    assert caught.value.finding is finding


@promise("skills.package-form")
def test_zip_slip_is_refused():
    assert refusal(zip_of(("../../outside.txt", b"x"))) is Finding.ARCHIVE_TRAVERSAL


@promise("skills.package-form")
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_names_are_refused():
    assert refusal(zip_of(("skill.toml", b"good"), ("skill.toml", b"evil"))) is Finding.ARCHIVE_DUPLICATE


@promise("skills.package-form")
def test_names_that_collide_where_case_is_folded_are_refused():
    assert refusal(zip_of(("SKILL.toml", b"evil"), ("skill.toml", b"good"))) is Finding.ARCHIVE_CASE


@promise("skills.package-form")
def test_symbolic_link_is_refused():
    assert refusal(zip_of(("modules/x.wasm", b"/etc/passwd"), mode=0o120777)) is Finding.ARCHIVE_LINK


@promise("skills.package-form")
def test_compression_bomb_is_refused_before_anything_is_unpacked():
    bomb = zip_of(("modules/x.wasm", b"\0" * (8 << 20)), method=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 20_000
    assert refusal(bomb) is Finding.ARCHIVE_COMPRESSED


@promise("skills.package-form")
def test_sizes_that_lie_are_refused():
    data = write_zip({"a": b"12345678", "b": b"x"})
    central = data.index(b"PK\1\2")
    assert refusal(patched(data, central + 20, "<I", 4)) is Finding.ARCHIVE_SIZES  # packed ≠ size
    huge = patched(patched(data, central + 20, "<I", 1 << 20), central + 24, "<I", 1 << 20)
    assert refusal(huge) is Finding.ARCHIVE_SIZES
    claims = patched(patched(data, central + 20, "<I", 1 << 30), central + 24, "<I", 1 << 30)
    assert refusal(claims) is Finding.ARCHIVE_SIZE


@promise("skills.package-form")
def test_prepended_data_is_refused():
    assert refusal(b"#!/bin/sh\nexit\n" + write_zip(FILES)) is Finding.ARCHIVE_PREPENDED
    data = write_zip(FILES)
    moved = b"#!/bin/sh\n" + data  # a careful attacker corrects every offset
    end = len(moved) - 22
    start = struct.unpack_from("<I", moved, end + 16)[0] + 10
    moved = patched(moved, end + 16, "<I", start)
    at = start
    while moved[at : at + 4] == b"PK\1\2":
        offset = struct.unpack_from("<I", moved, at + 42)[0]
        moved = patched(moved, at + 42, "<I", offset + 10)
        at += 46 + struct.unpack_from("<H", moved, at + 28)[0]
    assert zipfile.ZipFile(io.BytesIO(moved)).testzip() is None
    assert refusal(moved) is Finding.ARCHIVE_PREPENDED


@promise("skills.package-form")
def test_appended_archive_is_refused():
    assert refusal(write_zip(FILES) + write_zip({"skill.toml": b"evil"})) is Finding.ARCHIVE_PREPENDED
    assert refusal(write_zip(FILES) + b"tail") is Finding.ARCHIVE_END


def test_archive_comment_extra_fields_and_other_times_are_refused():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("skill.toml"), b"x")
        archive.comment = b"hello"
    assert refusal(out.getvalue()) is Finding.ARCHIVE_END
    late = io.BytesIO()
    with zipfile.ZipFile(late, "w") as archive:
        archive.writestr(zipfile.ZipInfo("skill.toml", (2024, 1, 1, 0, 0, 0)), b"x")
    assert refusal(late.getvalue()) is Finding.ARCHIVE_ENCODING


@promise("skills.package-form")
def test_overlapping_members_are_refused():
    data = write_zip({"a": b"x" * 64, "b": b"x" * 64})
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    assert refusal(patched(data, second + 42, "<I", 0)) is Finding.ARCHIVE_LAYOUT


def test_wrong_checksum_and_other_local_header_are_refused():
    data = write_zip({"a": b"hello"})
    assert refusal(data.replace(b"hello", b"jello")) is Finding.ARCHIVE_CHECKSUM
    local_name = data.replace(b"PK\3\4", b"PK\3\5", 1)
    assert refusal(local_name) is Finding.ARCHIVE_ENCODING
    assert refusal(data.replace(b"ahello", b"bhello", 1)) is Finding.ARCHIVE_ENCODING


def test_too_many_and_too_large_members_are_refused():
    with pytest.raises(SkillRefused) as caught:
        write_zip({f"f{n}": b"" for n in range(MAX_ENTRIES + 1)})
    assert caught.value.finding is Finding.ARCHIVE_SIZE
    with pytest.raises(SkillRefused):
        write_zip({"a": bytes(MAX_ENTRY_BYTES + 1)})
    with pytest.raises(SkillRefused):
        write_zip({})


def test_a_name_that_is_file_and_folder_is_refused():
    with pytest.raises(SkillRefused) as caught:
        write_zip({"assets/a": b"", "assets/a/b": b""})
    assert caught.value.finding is Finding.ARCHIVE_DUPLICATE


@given(st.binary(max_size=200))
def test_no_bytes_but_an_archive_are_read(data):
    with pytest.raises(SkillRefused):
        read_zip(data)


@promise("skills.package-form")
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_one_byte_changed_is_refused(at, difference):
    whole = bytearray(write_zip(FILES))
    at %= len(whole)
    whole[at] ^= difference
    with pytest.raises(SkillRefused):
        read_zip(bytes(whole))


@given(st.dictionaries(st.from_regex(r"[a-z0-9_][a-z0-9_-]{0,5}", fullmatch=True), st.binary(max_size=40), min_size=1))
def test_every_set_of_files_comes_back(files):
    try:
        data = write_zip(files)
    except SkillRefused:
        return
    assert read_zip(data) == files
    assert zlib.crc32(data) == zlib.crc32(write_zip(read_zip(data)))
