"""A look at a whole workspace: bounded, blind to where links lead, not to be deceived by set-back times."""

from __future__ import annotations

import os
from pathlib import Path

from palyra.guard.look_changes import look_at_workspace
from palyra.model.changes import Changes, compare


def changed(workspace: Path, before: object) -> Changes:
    return compare(before, look_at_workspace(str(workspace)))  # type: ignore[arg-type]


def test_every_change_is_seen(workspace: Path) -> None:
    (workspace / "keep").write_text("keep")
    (workspace / "edit").write_text("edit")
    (workspace / "gone" / "deep").mkdir(parents=True)
    before = look_at_workspace(str(workspace))
    (workspace / "edit").write_text("EDIT")
    (workspace / "gone" / "deep").rmdir()
    (workspace / "gone").rmdir()
    (workspace / "new").symlink_to("/etc/passwd")
    assert changed(workspace, before) == Changes(created=("new",), modified=("edit",), deleted=("gone", "gone/deep"))


def test_reading_changes_nothing(workspace: Path) -> None:
    (workspace / "folder").mkdir()
    (workspace / "folder" / "file").write_text("text")
    before = look_at_workspace(str(workspace))
    (workspace / "folder" / "file").read_text()
    assert changed(workspace, before) == Changes()


def test_a_time_that_was_set_back_hides_no_write(workspace: Path) -> None:
    file = workspace / "file"
    file.write_text("before")
    seen = file.stat()
    before = look_at_workspace(str(workspace))
    with file.open("r+") as handle:
        handle.write("behind")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert file.stat().st_size == seen.st_size
    assert changed(workspace, before) == Changes(modified=("file",))


def test_a_link_to_a_folder_is_an_entry_and_is_not_entered(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "secret-name").touch()
    (workspace / "out").symlink_to(tmp_path)
    assert list(look_at_workspace(str(workspace)).folders) == [""]


def test_a_look_ends_at_its_bounds_and_says_so(workspace: Path) -> None:
    for number in range(10):
        (workspace / f"{number}").touch()
    (workspace / "a" / "b" / "c").mkdir(parents=True)
    assert look_at_workspace(str(workspace)).whole
    assert look_at_workspace(str(workspace), max_entries=5).folders == {}
    assert not look_at_workspace(str(workspace), max_entries=5).whole
    shallow = look_at_workspace(str(workspace), max_depth=1)
    assert (sorted(shallow.folders), shallow.whole) == (["", "a"], False)
    assert not look_at_workspace(str(workspace), max_seconds=-1.0).whole


def test_names_that_are_not_text_are_spelled_out(workspace: Path) -> None:
    (Path(os.fsdecode(os.fsencode(workspace) + b"/\xff"))).touch()
    assert list(look_at_workspace(str(workspace)).folders[""]) == ["\\xff"]


def test_a_workspace_that_is_gone_shows_nothing(tmp_path: Path) -> None:
    seen = look_at_workspace(str(tmp_path / "nowhere"))
    assert (seen.folders, seen.whole) == ({}, False)
