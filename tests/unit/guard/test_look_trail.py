"""A program that was found before is described anew as soon as anything on the way to it has changed."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.guard.look import Looker
from palyra.guard.look_trail import has_changed, take_trail
from palyra.model.sights import ExecutableSight, LookRequest


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    made = {name: tmp_path / name for name in ("first", "second", "elsewhere", "workspace")}
    for folder in made.values():
        folder.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    write(made["second"] / "tool", "one")
    return made


def write(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n# {text}\n", encoding="utf-8")
    path.chmod(0o755)


def look(looker: Looker, places: dict[str, Path]) -> ExecutableSight:
    search = (str(places["first"]), str(places["second"]))
    request = LookRequest(workspace=str(places["workspace"]), cwd="", command="tool", search_path=search)
    return looker.look(request).executable


def new_looker() -> Looker:
    return Looker(home="", state_home="")


def put_before(places: dict[str, Path]) -> None:
    write(places["first"] / "tool", "planted")


def rewrite(places: dict[str, Path]) -> None:
    write(places["second"] / "tool", "two, and longer")


def relink(places: dict[str, Path]) -> None:
    write(places["elsewhere"] / "tool", "elsewhere")
    (places["second"] / "tool").unlink()
    (places["second"] / "tool").symlink_to(places["elsewhere"] / "tool")


def swap_folder(places: dict[str, Path]) -> None:
    write(places["elsewhere"] / "tool", "in another folder")
    places["second"].rename(places["second"].with_name("gone"))
    places["second"].symlink_to(places["elsewhere"])


def open_folder(places: dict[str, Path]) -> None:
    places["second"].chmod(0o777)


def open_file(places: dict[str, Path]) -> None:
    (places["second"] / "tool").chmod(0o757)


def remove(places: dict[str, Path]) -> None:
    (places["second"] / "tool").unlink()


@pytest.mark.parametrize(
    "change", [put_before, rewrite, relink, swap_folder, open_folder, open_file, remove], ids=lambda f: f.__name__
)
def test_a_change_on_the_way_to_a_program_is_seen_at_the_next_look(
    places: dict[str, Path], change: Callable[[dict[str, Path]], None]
) -> None:
    looker = new_looker()
    before = look(looker, places)
    assert look(looker, places) is before, "nothing changed: nothing is worked out again"
    change(places)
    after = look(looker, places)
    assert after != before
    assert after == look(new_looker(), places), "exactly what somebody sees who never looked before"


def test_a_link_that_leads_through_another_is_followed_anew_when_that_one_changes(places: dict[str, Path]) -> None:
    write(places["elsewhere"] / "tool", "first target")
    middle = places["elsewhere"] / "middle"
    middle.symlink_to("tool")
    (places["first"] / "tool").symlink_to(middle)
    looker = new_looker()
    before = look(looker, places)
    write(places["elsewhere"] / "other", "second target")
    middle.unlink()
    middle.symlink_to("other")
    after = look(looker, places)
    assert after.sha256 == hashlib.sha256((places["elsewhere"] / "other").read_bytes()).hexdigest()
    assert after != before


def test_what_else_lies_in_a_folder_does_not_make_its_programs_new(places: dict[str, Path]) -> None:
    looker = new_looker()
    before = look(looker, places)
    write(places["second"] / "another", "unrelated")
    assert look(looker, places) is before


def test_a_trail_knows_what_is_missing(tmp_path: Path) -> None:
    trail = take_trail([str(tmp_path / "missing" / "file")])
    assert not has_changed(trail)
    os.mkdir(tmp_path / "missing")
    assert has_changed(trail)


def test_what_is_stored_through_an_old_mapping_is_not_attested_under_the_old_digest(places: dict[str, Path]) -> None:
    """Such a store changes no time of the file. Only while the mapping is there can it be known that one may come."""
    tool = places["second"] / "tool"
    with tool.open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)
    mapping[-2:-1] = b"1"  # the page is dirty from here on
    looker, before = new_looker(), os.stat(tool)
    first = look(looker, places)
    mapping[-2:-1] = b"2"
    mapping.close()
    assert (os.stat(tool).st_mtime_ns, os.stat(tool).st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    second = look(looker, places)
    assert (first.sha256 != second.sha256, second.sha256) == (True, hashlib.sha256(tool.read_bytes()).hexdigest())
