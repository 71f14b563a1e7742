"""Nested repositories in an index are found as git has them, in every version of the format."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.guard import look_git
from palyra.guard.gitindex import nested_in
from palyra.guard.look_git import look_at_git
from palyra.model.sights import WorkspaceSight

NAMES = ["a", "a b/c", "deep/er/x", "é", "z" * 70, "z" * 71, "z" * 72]


def git(*words: str, at: Path) -> None:
    environ = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *words], cwd=at, env=environ, check=True, capture_output=True)


@pytest.fixture
def top(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    git("init", "-q", f"--object-format={request.param}", str(tmp_path), at=tmp_path)
    (tmp_path / "file").write_text("x")
    git("add", "file", at=tmp_path)
    digits = 40 if request.param == "sha1" else 64
    for name in NAMES:
        git("update-index", "--add", "--cacheinfo", f"160000,{'1' * digits},{name}", at=tmp_path)
    return tmp_path


@pytest.mark.parametrize("top", ["sha1", "sha256"], indirect=True)
@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_version_of_the_format_is_read(top: Path, version: str) -> None:
    git("update-index", "--index-version", version, at=top)
    if version == "3":
        (top / "new").write_text("x")
        git("add", "--intent-to-add", "new", at=top)
    sha256 = "sha256" in (top / ".git" / "config").read_text()
    found = nested_in((top / ".git" / "index").read_bytes(), sha256=sha256)
    assert sorted(found) == sorted(name.encode() for name in NAMES)


@pytest.mark.parametrize("top", ["sha1"], indirect=True)
def test_an_index_that_is_split_hides_none(top: Path) -> None:
    """What it shares with others stands in another file."""
    (top / "deep" / "er" / "x" / ".git").mkdir(parents=True)
    (top / "deep" / "er" / "x" / ".git" / "config").write_text("[filter.x]clean=id")
    git("update-index", "--split-index", at=top)
    assert nested_in((top / ".git" / "index").read_bytes()) == ()
    assert look_at_git(WorkspaceSight(path=str(top))) == "filter.clean in deep/er/x/.git/config"


@pytest.mark.parametrize("top", ["sha1"], indirect=True)
def test_a_file_that_leads_to_a_nested_repository_is_followed(top: Path) -> None:
    (top / "a").mkdir()
    (top / "a" / ".git").write_text("gitdir: ../elsewhere\n")
    (top / "elsewhere").mkdir()
    (top / "elsewhere" / "config").write_text("[include]path=x")
    assert look_at_git(WorkspaceSight(path=str(top))) == "include.path in elsewhere/config"


@pytest.mark.parametrize("top", ["sha256"], indirect=True)
def test_long_hashes_are_known_by_the_settings(top: Path) -> None:
    (top / "a" / ".git").mkdir(parents=True)
    (top / "a" / ".git" / "config").write_text("[filter.x]clean=id")
    assert look_at_git(WorkspaceSight(path=str(top))) == "filter.clean in a/.git/config"


def _entry(name: bytes, *, mode: int = 0o100644, length: int | None = None) -> bytes:
    flags = len(name) if length is None else length
    entry = bytes(24) + mode.to_bytes(4, "big") + bytes(32) + flags.to_bytes(2, "big") + name
    return entry + bytes(8 - len(entry) % 8)


def _short_entry(name: bytes, *, cut: int, mode: int = 0o100644) -> bytes:
    """As version 4 has them: how much of the name before is cut off, and what follows instead."""
    steps = bytes([cut]) if cut < 0x80 else bytes([0x80 | ((cut >> 7) - 1), cut & 0x7F])
    return bytes(24) + mode.to_bytes(4, "big") + bytes(32) + len(name).to_bytes(2, "big") + steps + name + b"\0"


def _index(*entries: bytes, count: int, behind: bytes = b"", version: int = 2) -> bytes:
    return b"DIRC\0\0\0" + bytes([version]) + count.to_bytes(4, "big") + b"".join(entries) + behind + bytes(20)


def test_a_nested_repository_of_an_odd_mode_is_one() -> None:
    """git looks at the upper bits alone."""
    for mode in (0o160000, 0o160001, 0o160755, 0x1E000):
        assert nested_in(_index(_entry(b"a"), _entry(b"sub", mode=mode), count=2)) == (b"sub",)


def test_a_name_with_a_nul_in_it_hides_no_entry() -> None:
    """To git the first name is as long as its flags say; up to the NUL, it would be followed by a harmless entry."""
    first, harmless = _entry(b"a"), _entry(b"b")
    length = len(first) + len(harmless) - 63
    data = _index(_entry(b"a", length=length), harmless, _entry(b"sub", mode=0o160000), count=2)
    assert nested_in(data) == (b"sub",)


def test_a_table_for_threads_leads_to_no_other_entries() -> None:
    entries = [_entry(b"a"), _entry(b"b")]

    def table(*blocks: int) -> bytes:
        body = b"\0\0\0\1" + b"".join(at.to_bytes(4, "big") + b"\0\0\0\1" for at in blocks)
        return b"IEOT" + len(body).to_bytes(4, "big") + body

    assert nested_in(_index(*entries, count=2, behind=table(12, 12 + len(entries[0])))) == ()
    with pytest.raises(ValueError, match="not an index"):
        nested_in(_index(*entries, count=2, behind=table(12, 40)))


def _repository(place: Path, config: str = "", *nested: bytes) -> None:
    (place / ".git").mkdir(parents=True)
    (place / ".git" / "config").write_text(config)
    entries = [_entry(name, mode=0o160000) for name in nested]
    (place / ".git" / "index").write_bytes(_index(*entries, count=len(entries)))


def test_a_repository_in_a_nested_one_is_looked_at(tmp_path: Path) -> None:
    """`git submodule update --recursive` checks it out, with its own filters."""
    _repository(tmp_path, "", b"x/a")
    _repository(tmp_path / "x/a", "", b"y/b")
    _repository(tmp_path / "x/a/y/b", "[filter.x]smudge=id")
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == "filter.smudge in x/a/y/b/.git/config"


def test_files_in_another_folder_hide_no_nested_repository(tmp_path: Path) -> None:
    _repository(tmp_path, "[core]worktree = ../o", b"a")
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == "core.worktree in .git/config"
    (tmp_path / ".git/config").write_text("[core]worktree = ..")
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == ""


def test_settings_of_a_nested_repository_that_are_elsewhere_are_found(tmp_path: Path) -> None:
    _repository(tmp_path, "", b"a")
    _repository(tmp_path / "a")
    (tmp_path / "a/.git/commondir").write_text("../../elsewhere\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/config").write_text("[filter.x]clean=id")
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == "filter.clean in elsewhere/config"


def test_a_nested_repository_in_the_place_of_a_shared_file_is_found(tmp_path: Path) -> None:
    """In a split index what replaces an entry has no name of its own; an honest one is a repository in both."""
    _repository(tmp_path, "", b"")
    (tmp_path / ".git/sharedindex.0").write_bytes(_index(_entry(b"a"), _entry(b"sub"), count=2))
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == ""
    _repository(tmp_path / "sub", "[filter.x]clean=id")
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == "filter.clean in sub/.git/config"


def test_nobody_waits_for_many_indexes_or_many_settings(tmp_path: Path) -> None:
    """Names of one big file cost an agent nothing, and every call of git would read it again for each."""
    _repository(tmp_path)
    whole = _index(*[_entry(b"a")] * 60_000, count=60_000)
    (tmp_path / ".git/sharedindex.0").write_bytes(whole)
    for number in range(1, 100):
        os.link(tmp_path / ".git/sharedindex.0", tmp_path / f".git/sharedindex.{number}")
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == "an index of more than 64 MiB, which is not read"
    names = [f"s{number}".encode() for number in range(9)]
    _repository(tmp_path / "two", "", *names)
    for name in names:
        _repository(tmp_path / "two" / name.decode(), "[a]\n" + "b = c\n" * 30_000)
    assert look_at_git(WorkspaceSight(path=str(tmp_path / "two"))).startswith("more than can be read in s")


@pytest.mark.parametrize("version", [2, 4])
def test_a_nested_repository_behind_many_files_is_found(tmp_path: Path, version: int) -> None:
    """An index was once read for 16 MiB, and an agent's own repository stood behind that."""
    _repository(tmp_path)
    many, last = _entry(b"a" * 1000) * 20_000, _entry(b"sub", mode=0o160000)
    if version == 4:  # of the name before nothing is kept, or all of it is cut
        many = _short_entry(b"a" * 1000, cut=0) + _short_entry(b"a" * 1000, cut=1000) * 19_999
        last = _short_entry(b"sub", cut=1000, mode=0o160000)
    data = _index(many, last, count=20_001, version=version)
    assert len(data) > 16 << 20
    (tmp_path / ".git/index").write_bytes(data)
    _repository(tmp_path / "sub", "[filter.x]clean=id")
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == "filter.clean in sub/.git/config"


def test_an_index_that_is_too_large_to_be_read_is_the_worst_and_says_so(tmp_path: Path) -> None:
    _repository(tmp_path)
    with open(tmp_path / ".git/index", "r+b") as index:
        index.truncate((64 << 20) + 1)
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == "an index of more than 64 MiB, which is not read"


def test_nobody_waits_for_tables_that_overlap() -> None:
    """Two thousand of them, each said to go on to the end of the file, were half a billion blocks."""
    tables, padding = 2_000, bytes(1 << 20)
    total = 12 * tables + len(padding)
    lengths = [(total - 12 * (number + 1)) // 8 * 8 + 4 for number in range(tables)]
    behind = b"".join(b"IEOT" + length.to_bytes(4, "big") + b"\0\0\0\1" for length in lengths) + padding
    with pytest.raises(ValueError, match="not an index"):
        nested_in(_index(count=0, behind=behind))


def test_nobody_waits_for_a_crowd_of_names(tmp_path: Path) -> None:
    _repository(tmp_path, "", *(f"s{number}".encode() for number in range(70_000)))
    assert look_at_git(WorkspaceSight(path=str(tmp_path))).startswith("more than 512 repositories")


@pytest.mark.parametrize("populated", [True, False])
def test_where_git_goes_on_by_itself_all_that_lies_in_a_submodule_is_looked_at(
    tmp_path: Path, *, populated: bool
) -> None:
    """Also in one that is not there yet: its folder can be filled before it comes."""
    _repository(tmp_path, "", b"lib")
    planted = tmp_path / "lib/x/y/z"
    planted.mkdir(parents=True)
    _repository(planted, '[filter "x"]\nsmudge = id', b"")
    if populated:
        _repository(tmp_path / "lib", "", b"")
    (tmp_path / "lib/x/loop").symlink_to(tmp_path / "lib")
    sight = WorkspaceSight(path=str(tmp_path))
    assert look_at_git(sight) == ""
    assert look_at_git(sight, recurses=True) == "filter.smudge in lib/x/y/z/.git/config"


def test_submodules_of_more_folders_than_can_be_looked_through_count_as_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_git, "MAX_FOLDERS", 3)
    _repository(tmp_path, "", b"lib")
    for name in ("a", "b", "c"):
        (tmp_path / "lib" / name).mkdir(parents=True)
    assert look_at_git(WorkspaceSight(path=str(tmp_path)), recurses=True) == look_git.TOO_DEEP


def test_a_submodule_as_git_keeps_it_is_no_program(tmp_path: Path) -> None:
    _repository(tmp_path, "", b"lib")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/.git").write_text("gitdir: ../.git/modules/lib\n")
    (tmp_path / ".git/modules/lib").mkdir(parents=True)
    (tmp_path / ".git/modules/lib/config").write_text("[core]worktree = ../../../lib")
    assert look_at_git(WorkspaceSight(path=str(tmp_path))) == ""


def test_what_is_no_index_is_an_error_and_an_index_without_any_is_none() -> None:
    assert nested_in(b"") == nested_in(b"DIRC\0\0\0\2" + bytes(100)) == ()
    for bad in (b"\0\0\xe0\0", b"DIRC\0\0\0\2\0\0\0\1" + bytes(24) + b"\0\0\xe0\0"):
        with pytest.raises(ValueError, match="not an index"):
            nested_in(bad)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail_otherwise(data: bytes) -> None:
    for text in (data + b"\0\0\xe0\0", b"DIRC\0\0\0\4\0\0\0\2" + data + b"\0\0\xe0\0" + data):
        with contextlib.suppress(ValueError):
            nested_in(text)
