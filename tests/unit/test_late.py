"""Patterns compiled at their first use: the same as the standard library's from then on, and none of ours is broken."""

from __future__ import annotations

import copy
import pkgutil
import re
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

import palyra
from palyra.late import _Late, late

ELSEWHERE = ("palyra.adapters", "palyra.cluster", "palyra.inside", "palyra.__main__")
"""What needs another's package, or is a program."""


def test_a_pattern_is_compiled_when_it_is_first_asked():
    asked: list[str] = []
    pattern = late(lambda: asked.append("") or r"(\d+)-(\d+)", re.ASCII)  # type: ignore[func-returns-value]
    assert asked == []
    assert pattern.fullmatch("1-2")
    assert pattern.sub(r"\2-\1", "1-2") == "2-1"
    assert (pattern.pattern, pattern.groups, bool(pattern.flags & re.ASCII)) == (r"(\d+)-(\d+)", 2, True)
    assert asked == [""]


def test_what_no_pattern_has_is_not_there():
    pattern = late(b"x")
    with pytest.raises(AttributeError):
        pattern.unheard_of  # type: ignore[attr-defined]  # noqa: B018
    assert copy.copy(pattern).match(b"x")


def _patterns() -> Iterator[tuple[str, _Late[str] | _Late[bytes]]]:
    for found in pkgutil.walk_packages(palyra.__path__, "palyra."):
        if not found.name.startswith(ELSEWHERE) and "_os._windows" not in found.name:
            try:
                import_module(found.name)
            except ImportError:
                continue  # another system's
    for name, module in list(sys.modules.items()):
        for holder in (module, *(one for one in vars(module).values() if isinstance(one, type))):
            if name.startswith("palyra."):
                yield from ((f"{name}.{at}", one) for at, one in vars(holder).items() if isinstance(one, _Late))


def test_every_pattern_of_ours_compiles():
    found = dict(_patterns())
    assert len(found) > 50
    for place, pattern in found.items():
        assert isinstance(pattern.pattern, (str, bytes)), place  # asking for anything compiles it
