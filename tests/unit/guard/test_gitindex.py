"""Nested repositories in an index are found as git has them, in every version of the format."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    found = nested_in((top / ".git" / "index").read_bytes())
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


def test_what_is_no_index_is_an_error_and_an_index_without_any_is_none() -> None:
    assert nested_in(b"") == nested_in(b"DIRC" + bytes(100)) == ()
    for bad in (b"\0\0\xe0\0", b"DIRC\0\0\0\2\0\0\0\1" + bytes(24) + b"\0\0\xe0\0"):
        with pytest.raises(ValueError, match="not an index"):
            nested_in(bad)


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail_otherwise(data: bytes) -> None:
    for text in (data + b"\0\0\xe0\0", b"DIRC\0\0\0\4\0\0\0\2" + data + b"\0\0\xe0\0" + data):
        with contextlib.suppress(ValueError):
            nested_in(text)
