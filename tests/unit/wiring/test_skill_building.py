"""Packing and signing a project: the same sources give the same bytes, and one key stands for one publisher."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from palyra.config.load import Home
from palyra.errors import StateError
from palyra.signing import SigningKey
from palyra.skills.bundle import read
from palyra.skills.findings import SkillRefused
from palyra.skills.languages import Language
from palyra.skills.project import Project, ProjectError
from palyra.skills.trust import PinnedKey, Trust
from palyra.wiring.skill_building import Built, build_project
from palyra.wiring.skill_keys import publisher_key
from palyra.wiring.skill_workshop import Compiled
from tests.authoring import new_project, place_files

KEY = SigningKey.from_seed(bytes(range(32)))
MODULE = b"\0asm\1\0\0\0"


class Ready:
    """A workshop whose modules are made already."""

    async def compile(self, project: Project, folder: Path) -> Compiled:
        return Compiled(modules={module: MODULE for module, _ in project.sources}, tool="none", tool_sha256="")


def build(folder: Path, *, at_unix_ms: int | None = None) -> Built:
    return asyncio.run(build_project(folder, Ready(), lambda publisher: KEY, at_unix_ms=at_unix_ms))


def test_the_same_sources_give_the_same_bytes_anywhere(tmp_path: Path) -> None:
    files = {**new_project("acme.echo", Language.WAT), "assets/words.txt": "a"}
    one = build(place_files(tmp_path / "one", files), at_unix_ms=1)
    two = build(place_files(tmp_path / "two" / "below", files), at_unix_ms=1)
    assert one.path.read_bytes() == two.path.read_bytes()
    assert one.path == tmp_path / "one" / "dist" / "acme.echo-0.1.0.palyra-skill"


def test_the_time_signed_is_that_of_the_newest_source(tmp_path: Path) -> None:
    folder = place_files(tmp_path, new_project("acme.echo", Language.WAT))
    for path in ("skill.toml", "build.toml"):
        os.utime(folder / path, (1_000, 1_000))
    os.utime(folder / "src" / "main.wat", (2_000, 2_000))
    first = build(folder).path.read_bytes()
    os.utime(folder / "README.md", (3_000, 3_000))
    assert build(folder).path.read_bytes() == first
    trust = Trust(publishers={"acme": (PinnedKey(key=KEY.public),)})
    assert read(first, trust, at_unix_ms=9_000_000).binding.signed_unix_ms == 2_000_000


def test_a_package_says_what_it_was_built_from_and_lists_every_file(tmp_path: Path) -> None:
    folder = place_files(tmp_path, {**new_project("acme.echo", Language.WAT), "assets/words.txt": "a"})
    trust = Trust(publishers={"acme": (PinnedKey(key=KEY.public),)})
    skill = read(build(folder, at_unix_ms=1).path.read_bytes(), trust, at_unix_ms=1)
    definition = skill.provenance["buildDefinition"]
    assert definition["externalParameters"]["language"] == "wat"
    assert [one["name"] for one in definition["resolvedDependencies"]] == [
        *("README.md", "assets/words.txt", "build.toml", "skill.toml", "src/main.wat"),
    ]
    sbom = json.loads(skill.files["sbom.cdx.json"])
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    assert "timestamp" not in sbom["metadata"]
    assert {one["name"] for one in sbom["components"]} == {"assets/words.txt", "modules/main.wasm", "skill.toml"}


def test_a_package_is_not_written_through_a_link(tmp_path: Path) -> None:
    folder = place_files(tmp_path / "project", new_project("acme.echo", Language.WAT))
    (tmp_path / "elsewhere").mkdir()
    (folder / "dist").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProjectError, match="is a link"):
        build(folder)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_publishers_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    key, path = publisher_key(home, "acme")
    assert path == tmp_path / "home" / "publishers" / "acme.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert publisher_key(home, "acme")[0].seed == key.seed
    assert publisher_key(home, "other")[0].seed != key.seed
    assert publisher_key(home, "other", given=path)[0].seed == key.seed


def test_a_key_that_others_could_have_read_signs_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    _, path = publisher_key(home, "acme")
    path.chmod(0o644)
    with pytest.raises(StateError, match="accessible to other users"):
        publisher_key(home, "acme")


def test_a_publishers_name_never_becomes_another_path(tmp_path: Path) -> None:
    with pytest.raises(SkillRefused):
        publisher_key(Home(tmp_path / "home"), "../../etc/x")
