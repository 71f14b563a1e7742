"""Compiled modules are native code: only bytes this installation wrote itself are ever handed on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palyra.errors import StateError
from palyra.launch.artefacts import ArtefactCache
from tests.promises import promise

NAME = "ab" * 32


def only_file(folder: Path) -> Path:
    (found,) = folder.glob("*.cwasm")
    return found


def test_what_was_written_is_read(tmp_path: Path) -> None:
    ArtefactCache(tmp_path / "cache", meaning="x").write(NAME, b"native code")
    assert ArtefactCache(tmp_path / "cache", meaning="x").read(NAME) == b"native code"
    assert only_file(tmp_path / "cache").stat().st_mode & 0o077 == 0


@promise("guest.compile-cache")
def test_another_version_or_processor_finds_nothing(tmp_path: Path) -> None:
    ArtefactCache(tmp_path, meaning="x").write(NAME, b"native code")
    assert ArtefactCache(tmp_path, meaning="y").read(NAME) is None


@promise("guest.compile-cache")
@pytest.mark.parametrize("at", [0, 31, 32, 40])
def test_a_patched_file_is_refused_and_taken_away(tmp_path: Path, at: int) -> None:
    cache = ArtefactCache(tmp_path, meaning="x")
    cache.write(NAME, b"native code")
    path = only_file(tmp_path)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))
    assert cache.read(NAME) is None
    assert not path.exists()
    cache.write(NAME, b"native code")
    assert cache.read(NAME) == b"native code"


@promise("guest.compile-cache")
def test_one_modules_file_does_not_pass_for_anothers(tmp_path: Path) -> None:
    cache = ArtefactCache(tmp_path, meaning="x")
    cache.write(NAME, b"native code")
    path = only_file(tmp_path)
    os.rename(path, path.with_name(path.name.replace(NAME, "cd" * 32)))
    assert cache.read("cd" * 32) is None


@promise("guest.compile-cache")
def test_a_file_under_another_key_is_refused(tmp_path: Path) -> None:
    cache = ArtefactCache(tmp_path / "mine", meaning="x")
    cache.write("cd" * 32, b"")
    other = ArtefactCache(tmp_path / "theirs", meaning="x")
    other.write(NAME, b"native code")
    theirs = only_file(tmp_path / "theirs")
    (tmp_path / "mine" / theirs.name).write_bytes(theirs.read_bytes())
    (tmp_path / "mine" / theirs.name).chmod(0o600)
    assert cache.read(NAME) is None


@promise("guest.compile-cache")
@pytest.mark.parametrize("damage", ["link", "open to others", "fifo", "cut"])
def test_what_others_could_have_put_there_is_not_read(tmp_path: Path, damage: str) -> None:
    cache = ArtefactCache(tmp_path, meaning="x")
    cache.write(NAME, b"native code")
    path = only_file(tmp_path)
    data = path.read_bytes()
    match damage:
        case "link":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "open to others":
            path.chmod(0o666)
        case "fifo":
            path.unlink()
            os.mkfifo(path)
        case "cut":
            path.write_bytes(data[:20])
    assert cache.read(NAME) is None


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    ArtefactCache(tmp_path, meaning="x").write(NAME, b"native code")
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(StateError, match="cannot be trusted"):
        ArtefactCache(tmp_path, meaning="x").read(NAME)
