"""A folder that a program filled goes whole: no depth, no mode and no link keeps it or leads elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from palyra.launch.removing import remove_tree

_NEST = """
import os
for at in range(2000):
    open("file", "w").close()
    os.mkdir("folder")
    os.chdir("folder")
"""


def test_folders_too_deep_for_any_recursion_are_removed(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    subprocess.run([sys.executable, "-I", "-c", _NEST], cwd=hostile, check=True)
    assert remove_tree(hostile)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_their_owner_may_not_enter_are_removed(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    (hostile / "a" / "b" / "c").mkdir(parents=True)
    (hostile / "a" / "b" / "file").touch()
    for folder in (hostile / "a" / "b", hostile / "a", hostile):
        folder.chmod(0)
    assert remove_tree(hostile)
    assert list(tmp_path.iterdir()) == []


def test_a_link_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    kept, hostile = tmp_path / "kept", tmp_path / "hostile"
    (kept / "inner").mkdir(parents=True)
    (hostile / "a").mkdir(parents=True)
    (hostile / "a" / "link").symlink_to(kept)
    (hostile / "link").symlink_to(kept)
    os.mkfifo(hostile / "fifo")
    assert remove_tree(hostile)
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "inner"]
    (tmp_path / "link").symlink_to(kept)
    assert not remove_tree(tmp_path / "link")
    assert (kept / "inner").is_dir()


def test_what_is_not_there_is_gone(tmp_path: Path) -> None:
    assert remove_tree(tmp_path / "nothing")
