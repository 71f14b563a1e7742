"""Modules of ours are found where they are, as Python itself would find them; what is not there is left to it."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

import palyra
from palyra.cli import finding
from palyra.cli.finding import OwnModules, find_own_first

PACKAGE = Path(palyra.__file__).parent
NAMES = sorted(
    ".".join(("palyra", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for file in PACKAGE.rglob("*.py")
)


@pytest.mark.parametrize("name", NAMES[1:])
def test_each_module_is_found_as_python_finds_it(name: str) -> None:
    folder = PACKAGE.joinpath(*name.split(".")[1:-1])
    theirs, ours = PathFinder.find_spec(name, [str(folder)]), OwnModules.find_spec(name)
    assert theirs is not None
    assert ours is not None
    for what in ("name", "origin", "has_location", "cached", "parent", "submodule_search_locations"):
        assert getattr(ours, what) == getattr(theirs, what)
    assert type(ours.loader) is type(theirs.loader)


@pytest.mark.parametrize("name", ["palyra", "palyrax", "palyra.", "palyra.none", "palyra..errors", "palyra.\0", "json"])
def test_what_is_not_one_of_ours_is_left_to_python(name: str) -> None:
    assert OwnModules.find_spec(name) is None


def test_what_is_no_plain_file_is_left_to_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "compiled.so").touch()
    (tmp_path / "bare").mkdir()
    monkeypatch.setattr(finding, "ROOT", str(tmp_path))
    for name in ("folder", "compiled", "bare"):
        assert OwnModules.find_spec(f"palyra.{name}") is None


def test_asking_twice_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = list(sys.meta_path)
    find_own_first()
    find_own_first()
    assert sys.meta_path == [OwnModules, *before]
    assert importlib.util.find_spec("palyra.cli.nothing") is None
