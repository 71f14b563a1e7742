"""A path is what it names, with no link followed: neither at its end nor on the way."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from palyra.launch.identity import identity_of


def seen(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path))
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "file").write_text("x")
    (root / "way").symlink_to("a")
    (root / "end").symlink_to("a/b")
    return root


def test_folders_and_files_are_known_by_device_and_inode(tree: Path) -> None:
    for path in (tree, tree / "a" / "b", tree / "a" / "file"):
        assert identity_of(str(path)) == seen(path)


@pytest.mark.parametrize("path", ["way/b", "way/file", "end", "way", "none", "a/file/below"])
def test_a_link_on_the_way_or_at_the_end_is_refused_as_is_what_is_not_there(tree: Path, path: str) -> None:
    with pytest.raises(OSError):  # noqa: PT011
        identity_of(str(tree / path))


@pytest.mark.parametrize("spelling", ["{}/a/b/", "{}//a/b", "{}/a/./b"])
def test_another_spelling_of_the_same_is_the_same(tree: Path, spelling: str) -> None:
    path = spelling.format(tree)
    try:
        assert identity_of(path) == seen(tree / "a" / "b")
    except OSError:
        assert "//" in path  # an empty name is nothing that can be opened


def test_a_folder_of_any_name_is_found(tree: Path) -> None:
    for name in ("with\nlines", "ends (deleted)", os.fsdecode(b"\xff\xfe")):
        (tree / name).mkdir()
        assert identity_of(str(tree / name)) == seen(tree / name)


def test_a_link_to_a_place_of_the_same_name_in_another_mount_namespace_is_refused(tree: Path) -> None:
    """The kernel calls what is reached there by the very path that was asked for."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare")
    place = tree / "a" / "b"
    script = f"mount -t tmpfs none '{tree}' && mkdir -p '{place}' && echo made && exec sleep 60"
    with subprocess.Popen(["unshare", "-Urm", "sh", "-c", script], stdout=subprocess.PIPE) as foreign:
        try:
            assert foreign.stdout is not None
            if foreign.stdout.readline() != b"made\n":
                pytest.skip("no namespaces for this user")
            (tree / "a").rename(tree / "moved")
            (tree / "a").symlink_to(f"/proc/{foreign.pid}/root{tree}/a")
            assert os.path.isdir(place), "the link leads there"
            with pytest.raises(OSError):  # noqa: PT011
                identity_of(str(place))
        finally:
            foreign.kill()
