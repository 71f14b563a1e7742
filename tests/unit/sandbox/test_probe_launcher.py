"""Which file of a launcher's name is run on the host: the system's, or one that no agent can have made."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from palyra.sandbox import probe_launcher as under_test
from palyra.sandbox.probe_launcher import Launcher, find_launcher, is_roots_alone, why_passed_over
from tests.promises import promise

SYSTEMS = next(path for folder in under_test.TOOLS if os.path.isfile(path := f"{folder}/env"))


def plant(folder: Path, name: str = "env") -> Path:
    folder.mkdir(exist_ok=True)
    planted = folder / name
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    return planted


@promise("commands.planted-launcher")
def test_a_launcher_planted_on_the_search_path_is_not_what_runs_outside_of_every_sandbox(tmp_path: Path) -> None:
    """The folder may be `node_modules/.bin` of an agent's workspace: it would run as the operator."""
    planted = plant(tmp_path / "bin")
    assert find_launcher("env", (str(tmp_path / "bin"),)) == Launcher(path=SYSTEMS, passed_over=str(planted))
    alone = plant(tmp_path / "bin", "no-such-launcher")
    found = find_launcher("no-such-launcher", ("bin", str(tmp_path / "bin")))
    assert found == Launcher(passed_over=str(alone))
    assert str(alone) in why_passed_over("no-such-launcher", found.passed_over)[0]


def test_the_systems_own_is_found_by_any_spelling_of_its_folder() -> None:
    assert find_launcher("env", (os.path.dirname(SYSTEMS) + "/",)).path.replace("//", "/") == SYSTEMS
    assert find_launcher("no-such-launcher", ()) == Launcher()


@pytest.mark.parametrize(("uid", "is_used"), [(0, False), (1000, True)])
def test_what_is_roots_own_is_in_reach_of_roots_sandboxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, is_used: bool
) -> None:
    planted = plant(tmp_path / "bin", "no-such-launcher")
    monkeypatch.setattr(under_test, "is_roots_alone", lambda path: True)
    monkeypatch.setattr(os, "getuid", lambda: uid)
    assert find_launcher("no-such-launcher", (str(tmp_path / "bin"),)).path == (str(planted) if is_used else "")


FILE, FOLDER, LINK = stat.S_IFREG | 0o755, stat.S_IFDIR | 0o755, stat.S_IFLNK | 0o777


@promise("commands.planted-launcher")
@pytest.mark.parametrize(
    ("places", "holds"),
    [
        ({"/opt": (0, FOLDER), "/opt/bwrap": (0, FILE)}, True),
        ({"/opt": (0, FOLDER), "/opt/bwrap": (1000, FILE)}, False),
        ({"/opt": (1000, FOLDER), "/opt/bwrap": (0, FILE)}, False),
        ({"/opt": (0, FOLDER | 0o020), "/opt/bwrap": (0, FILE)}, False),
        ({"/opt": (0, FOLDER | 0o1022), "/opt/bwrap": (0, FILE)}, True),
        ({"/opt": (0, FOLDER), "/opt/bwrap": (0, FILE | 0o002)}, False),
        ({"/opt": (0, FOLDER), "/opt/bwrap": (0, LINK, "../lib/it"), "/opt/..": (0, FOLDER), "/opt/../lib": (0, FOLDER),
          "/opt/../lib/it": (0, FILE)}, True),
        ({"/opt": (0, FOLDER), "/opt/bwrap": (0, LINK, "/ws/it"), "/ws": (1000, FOLDER), "/ws/it": (0, FILE)}, False),
        ({"/opt": (0, FOLDER), "/opt/bwrap": (0, LINK, "/opt/bwrap")}, False),
        ({"/opt": (0, FOLDER)}, False),
    ],
)  # fmt: skip
def test_only_what_root_alone_can_change_counts_as_roots(
    monkeypatch: pytest.MonkeyPatch, places: dict[str, tuple[int | str, ...]], holds: bool
) -> None:
    def lstat(path: str) -> SimpleNamespace:
        if path not in places:
            raise FileNotFoundError(path)
        return SimpleNamespace(st_uid=places[path][0], st_mode=places[path][1])

    monkeypatch.setattr(under_test, "os", SimpleNamespace(path=os.path, lstat=lstat, readlink=lambda p: places[p][2]))
    assert is_roots_alone("/opt/bwrap") is holds
