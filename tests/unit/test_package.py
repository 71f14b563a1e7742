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
