"""How long a schema may keep us busy over a value: bounded before it is asked, for a stranger may have written both.

A skill brings schemas for its tools' input and output. Three thousand alternatives for each of sixty thousand items are
two small texts and minutes of work that nothing interrupts. So: a schema has a width, the most of its parts that can
look at one place of a value; width times values has a bound, where there are patterns width times letters too, and what
is beyond is refused. For schemas of ordinary width the bounds on inputs are reached long before this one.

Not here: references that lead back to themselves, which no skill's schema may have (skills/tool_schema).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palyra.canon import Json
from palyra.values import dataclass

MAX_LOOKS = 1_000_000
"""Parts of a schema that look at places of a value, at half a microsecond each."""
MAX_MATCHED = 64_000_000
"""Letters that are held against patterns, each by each, at some nanoseconds."""
_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
_BELOW = frozenset({"items", "additionalProperties", "contains", "propertyNames", "patternProperties"})
_ONE_OF_BELOW = frozenset({"properties", "prefixItems"})
_ENUM_SCALARS = 16
"""Plain values of an enumeration that cost as much as one part."""
_ENDLESS = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaCost:
    width: int
    has_patterns: bool

    def is_affordable(self, value: Json) -> bool:
        """Stops counting as soon as it is too much."""
        looks, matched, waiting = 0, 0, [value]
        patterns = self.width if self.has_patterns else 0
        while waiting:
            one = waiting.pop()
            looks += self.width
            if isinstance(one, str):
                matched += patterns * len(one)
            elif isinstance(one, Mapping):
                matched += patterns * sum(map(len, one))
                waiting += one.values()
            elif isinstance(one, (list, tuple)):
                waiting += one
            if looks > MAX_LOOKS or matched > MAX_MATCHED:
                return False
        return True


def cost_of(schema: Mapping[str, Json]) -> SchemaCost:
    try:
        return SchemaCost(width=max(_Levels(schema).of(schema)), has_patterns=_has_patterns(schema))
    except RecursionError:
        return SchemaCost(width=_ENDLESS, has_patterns=True)


class _Levels:
    """Of a schema: how many parts look at the place itself, at one right below it, and so on."""

    def __init__(self, root: Mapping[str, Json]) -> None:
        self._root = root
        self._known: dict[str, list[int]] = {}

    def of(self, schema: Any) -> list[int]:
        if not isinstance(schema, Mapping):
            return [1]
        found = [1 + _enumerated(schema.get("enum"))]
        for keyword, part in schema.items():
            if keyword in ("$ref", "$dynamicRef") and isinstance(part, str):
                _add(found, self._referred(part), 0)
            elif keyword in _IN_PLACE:
                for one in _parts(keyword, part):
                    _add(found, self.of(one), 0)
            elif keyword in _BELOW:
                for one in _parts(keyword, part):
                    _add(found, self.of(one), 1)
            elif keyword in _ONE_OF_BELOW:
                _add(found, _widest([self.of(one) for one in _parts(keyword, part)]), 1)
        return found

    def _referred(self, pointer: str) -> list[int]:
        """One that leads back to itself, as of a tree, looks at each place once more: it is one part there."""
        if pointer not in self._known:
            self._known[pointer] = [1]
            self._known[pointer] = self.of(_at(self._root, pointer))
        return self._known[pointer]


def _parts(keyword: str, part: Any) -> list[Any]:
    """The schemas that a keyword holds: a list of them, a table of them, or one."""
    if isinstance(part, (list, tuple)):
        return list(part)
    if keyword in ("properties", "patternProperties", "dependentSchemas") and isinstance(part, Mapping):
        return list(part.values())
    return [part]


def _add(found: list[int], more: list[int], below: int) -> None:
    for level, count in enumerate(more, below):
        if level < len(found):
            found[level] += count
        else:
            found.append(count)


def _widest(each: list[list[int]]) -> list[int]:
    longest = max(map(len, each), default=0)
    return [max(one[level] for one in each if level < len(one)) for level in range(longest)]


def _enumerated(choices: Any) -> int:
    if not isinstance(choices, (list, tuple)):
        return 0
    composed = sum(isinstance(one, (Mapping, list, tuple)) for one in choices)
    return composed + (len(choices) - composed) // _ENUM_SCALARS


def _has_patterns(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return not schema.keys().isdisjoint(("pattern", "patternProperties")) or any(
            map(_has_patterns, schema.values())
        )
    return isinstance(schema, (list, tuple)) and any(map(_has_patterns, schema))


def _at(root: Any, pointer: str) -> Any:
    found = root
    for part in pointer.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, (list, tuple)) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found
