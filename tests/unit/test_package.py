"""What is installed is what was locked: hashes for everything, no addresses, one version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import palyra

PROJECT = Path(__file__).parents[2]
LOCKS = ("runtime", "dev", "peers")
PINNED = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>\S+)( ; [^\\]+)?( --hash=sha256:[0-9a-f]{64})+")


def read_lock(name: str) -> list[str]:
    text = (PROJECT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    return re.sub(r" \\\n +", " ", text).splitlines()


def read_pins(name: str) -> dict[str, str]:
    found = [PINNED.fullmatch(line) for line in read_lock(name)]
    return {match["name"]: match["version"] for match in found if match}


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_line_is_one_version_with_hashes_and_no_address(name: str) -> None:
    assert [line for line in read_lock(name) if not PINNED.fullmatch(line)] == []


def test_tests_run_with_the_versions_that_users_get() -> None:
    runtime, dev = read_pins("runtime"), read_pins("dev")
    assert {name: dev.get(name) for name in runtime} == runtime


def test_every_dependency_is_locked() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {re.split(r"[^a-z0-9-]", wanted)[0] for wanted in project["dependencies"]}
    assert named - set(read_pins("runtime")) == set()


def test_the_package_and_its_metadata_agree_on_the_version() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert palyra.__version__ == project["version"]


def test_the_package_says_that_it_is_typed() -> None:
    assert (PROJECT / "src" / "palyra" / "py.typed").is_file()


def test_the_package_names_its_licence_and_carries_the_text() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    text = (PROJECT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "Copyright 2026 The Palyra authors" in text
    assert not [kind for kind in project["classifiers"] if kind.startswith("Private ::")]


def test_the_metadata_holds_no_address() -> None:
    text = (PROJECT / "pyproject.toml").read_text(encoding="utf-8")
    assert re.findall(r"https?://|[\w.]+@[\w.]+", text) == []


def read_changes() -> dict[str, list[str]]:
    """The lines of each version in the changelog, by the version's heading."""
    parts = re.split(r"^## ", (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {part.splitlines()[0]: part.splitlines()[1:] for part in parts}


def test_the_changelog_begins_with_what_comes_and_has_this_version_with_its_date() -> None:
    first, *versions = read_changes()
    assert first == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d", version) for version in versions]
    assert palyra.__version__ in [match and match[1] for match in released]


def test_the_changelog_is_short_enough_to_be_read() -> None:
    changes = read_changes()
    lines = [line for body in changes.values() for line in body]
    assert [line for line in lines if len(line) > 140] == []
    assert [line for line in lines if line.startswith(" ")] == []  # one line each
    assert {version: len(body) for version, body in changes.items() if "0.1.0" in version and len(body) > 60} == {}
