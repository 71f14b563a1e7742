"""A folder that somebody holds is not removed, and one that is being removed is not held."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from palyra.launch.in_use import alone, hold, is_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "it").mkdir()
    return tmp_path / "it"


def test_several_hold_it_and_only_when_all_let_go_is_it_unused(folder: Path) -> None:
    first, second = hold(str(folder)), hold(str(folder))
    for held in (first, second):
        assert held is not None
        with alone(str(folder)) as is_unused:
            assert not is_unused
        os.close(held)
    with alone(str(folder)) as is_unused:
        assert is_unused


def test_who_removes_it_keeps_others_from_holding_it(folder: Path) -> None:
    with alone(str(folder)) as is_unused:
        assert (is_unused, hold(str(folder))) == (True, None)


def test_what_was_renamed_or_replaced_is_not_what_is_held(folder: Path) -> None:
    held = hold(str(folder))
    assert held is not None
    assert is_at(held, str(folder))
    folder.rename(folder.with_name("gone"))
    assert not is_at(held, str(folder))
    folder.mkdir()
    assert not is_at(held, str(folder))
    os.close(held)


def test_a_link_is_not_followed_and_what_is_missing_is_not_held(folder: Path) -> None:
    folder.with_name("link").symlink_to(folder)
    assert (hold(str(folder.with_name("link"))), hold(str(folder.with_name("none")))) == (None, None)


def test_a_file_system_without_locks_holds_nobody_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(fd: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    held = hold(str(folder))
    assert held is not None
    os.close(held)
    with alone(str(folder)) as is_unused:
        assert is_unused
