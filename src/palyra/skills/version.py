"""Versions as Semantic Versioning 2.0.0 has them, and their order. Build metadata is refused: two packages would differ
in what does not count."""

from __future__ import annotations

import re
from functools import total_ordering

PATTERN = re.compile(
    r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})"
    r"(?:-((?:0|[1-9][0-9]{0,8}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]{0,8}|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
)
MAX_CHARS = 64


def is_version(text: str) -> bool:
    return len(text) <= MAX_CHARS and PATTERN.fullmatch(text) is not None


@total_ordering
class Version:
    """`text` is a version; compared as the specification orders them, numbers as numbers."""

    __slots__ = ("_order", "text")

    def __init__(self, text: str) -> None:
        found = PATTERN.fullmatch(text)
        if found is None or len(text) > MAX_CHARS:
            raise ValueError(f"{text[:80]!r} is not a semantic version")
        self.text = text
        numbers = tuple(int(part) for part in found.group(1, 2, 3))
        pre = found.group(4)
        # A release comes after every pre-release of it; numbers come before words.
        parts = () if pre is None else tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre.split("."))
        self._order = (numbers, pre is None, parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._order == other._order

    def __lt__(self, other: Version) -> bool:
        return self._order < other._order

    def __hash__(self) -> int:
        return hash(self._order)
