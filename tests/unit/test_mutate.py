"""The mutation tool's own list: a change that is said to mean nothing still has its place, and its reason."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import mutate


def test_every_change_that_is_not_tried_is_one_that_could_be_made() -> None:
    known = {
        mutant.key
        for room, (modules, _) in mutate.ROOMS.items()
        for name in modules
        for mutant in mutate.mutants_of(room, name)
    }
    listed = mutate.equivalents()
    assert set(listed) <= known, set(listed) - known
    assert all(listed.values())


def test_every_module_and_test_file_it_names_is_there() -> None:
    for room, (modules, tests) in mutate.ROOMS.items():
        assert [name for name in modules if not mutate.path_of(room, name).exists()] == []
        assert [test for test in tests if not (mutate.PROJECT / test).exists()] == []
