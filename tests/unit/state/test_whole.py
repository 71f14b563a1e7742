"""A file is there whole or not at all; what a crash leaves is known as unfinished; no link is written through."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palyra.state.whole import write_whole
from palyra.wiring.partial_files import find_partial_files


def test_a_file_is_written_for_its_owner_alone_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    for data in (b"first", b"second"):
        write_whole(tmp_path / "file", data)
        assert (tmp_path / "file").read_bytes() == data
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"kept")
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    write_whole(tmp_path / "file", b"new")
    assert ((tmp_path / "elsewhere").read_bytes(), (tmp_path / "file").is_symlink()) == (b"kept", False)


def test_what_cannot_be_finished_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "file", b"old")

    def full(fd: int) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        write_whole(tmp_path / "file", b"new")
    assert (os.listdir(tmp_path), (tmp_path / "file").read_bytes()) == (["file"], b"old")


def test_what_a_crash_leaves_is_found_as_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)  # nobody's
    for name in ("rename", "unlink"):
        monkeypatch.setattr(Path, name, end)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "file", b"new")
    (left,) = os.listdir(tmp_path)
    assert find_partial_files(tmp_path, before_unix_s=2**33) == [(str(tmp_path / left), 3)]
