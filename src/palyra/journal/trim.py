"""Making any value fit for an entry: escaped where JSON cannot carry it, cut where it is too long, always in one way.

An entry must never fail its call, whatever a tool, a policy or a caller put into a name. What is left out is counted,
so that a reader sees there was more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palyra.canon import MAX_INT, Json

Cut = tuple[int, int]
"""(items of a list or object, characters of a string) that are kept."""

CUTS: tuple[Cut, ...] = ((256, 2048), (64, 512), (16, 256), (8, 128))
"""Tried in turn until an entry fits."""

_DEEPEST = 8


def trim(value: Any, cut: Cut, depth: int = 0) -> Json:
    items, characters = cut
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return trim_text(value, characters)
    if isinstance(value, int):
        return value if abs(value) <= MAX_INT else trim_text(f"{value:#x}", characters)
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        names = sorted(value, key=str)
        kept = {ascii_name(str(name)): trim(value[name], cut, depth + 1) for name in names[:items]}
        return kept if len(names) <= items else kept | {"omitted": len(names) - items}
    if isinstance(value, (list, tuple)):
        listed = [trim(item, cut, depth + 1) for item in value[:items]]
        return listed if len(value) <= items else [*listed, {"omitted": len(value) - items}]
    return trim_text(repr(value), characters)


def trim_text(text: str, characters: int) -> str:
    clean = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return clean if len(clean) <= characters else f"{clean[:characters]}… ({len(clean) - characters} more)"


def ascii_name(name: str) -> str:
    return name.encode("ascii", "backslashreplace").decode("ascii")[:128]
