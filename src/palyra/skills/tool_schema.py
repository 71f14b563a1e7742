"""The JSON Schemas a skill's tools bring along: valid, small, and resolved within themselves.

A reference out of the schema would make whoever compiles it open an address or a file that the skill's author chose, so
`$ref` may point only into the schema itself, and `$schema` may name no other dialect than 2020-12. References never
lead back to where they stand, and followed through they make a schema of bounded size: forty definitions that each name
the next one twice would otherwise keep the engine busy for years over an empty object. Patterns have no look-around and
no back references, whose time has no bound. How much a schema may cost over a value is protocol/schema_cost's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from palyra.canon import Json, canonical
from palyra.model.visible import visible
from palyra.skills.fields import bad

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_BYTES = 64 << 10
MAX_DEPTH = 24
MAX_PATTERNS = 64
MAX_EXPANDED = 20_000
"""Parts of a schema with every reference followed."""
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_NAMING = frozenset({"$id", "$anchor", "$dynamicAnchor", "$vocabulary"})
_COSTLY = frozenset({"unevaluatedProperties", "unevaluatedItems"})
"""Nested in each other, each asks all those within again: eleven of them take ten seconds over two thousand keys."""


def check_schema(value: object, path: str, *, of_object: bool) -> dict[str, Json]:
    """`of_object`: a call's input is always an object, and the schema must say so."""
    if not isinstance(value, dict):
        raise bad(path, "is not a table that holds a JSON Schema")
    _check_values(value, path, depth=0)
    try:
        size = len(canonical(value))
    except ValueError as error:
        raise bad(path, f"cannot be written as JSON: {str(error)[:120]}") from None
    if size > MAX_BYTES:
        raise bad(path, f"is larger than {MAX_BYTES} bytes")
    if of_object and value.get("type") != "object":
        raise bad(path, 'does not say type = "object"')
    _check_expanded(value, path)
    if _count_patterns(value) > MAX_PATTERNS:
        raise bad(path, f"has more than {MAX_PATTERNS} patterns")
    try:
        jsonschema_rs.Draft202012Validator(value, pattern_options=jsonschema_rs.RegexOptions())
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise bad(path, f"is not a JSON Schema: {str(error).splitlines()[0][:120]}") from None
    return value


def _check_values(value: Any, path: str, *, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise bad(path, f"is nested deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_key(key, item, path)
            _check_values(item, path, depth=depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_values(item, path, depth=depth + 1)
    elif isinstance(value, str):
        _check_seen(value, path)
    elif not isinstance(value, (int, float, bool)):
        raise bad(path, "holds a date or a time, which JSON does not have")


def _check_expanded(schema: dict[str, Json], path: str) -> None:
    sizes: dict[str, int] = {}
    under_way: set[str] = set()

    def size_of(value: Any) -> int:
        if isinstance(value, Mapping):
            total = 1 + sum(size_of(item) for key, item in value.items() if key != "$defs")
            return total + sum(of_reference(value[key]) for key in _REFERENCES if isinstance(value.get(key), str))
        return 1 + sum(map(size_of, value)) if isinstance(value, list) else 1

    def of_reference(pointer: str) -> int:
        if pointer in under_way:
            raise bad(path, f"has a reference that leads back to itself: {pointer[:80]}")
        if pointer not in sizes:
            under_way.add(pointer)
            sizes[pointer] = size_of(_at(schema, pointer, path))
            under_way.discard(pointer)
        if sizes[pointer] > MAX_EXPANDED:
            raise bad(path, f"has more than {MAX_EXPANDED} parts with its references followed")
        return sizes[pointer]

    try:
        whole = size_of(schema)
    except RecursionError:
        raise bad(path, "has references that follow each other too far") from None
    if whole > MAX_EXPANDED:
        raise bad(path, f"has more than {MAX_EXPANDED} parts with its references followed")


def _count_patterns(value: Any) -> int:
    if isinstance(value, Mapping):
        return isinstance(value.get("pattern"), str) + sum(
            _count_patterns(item) + (len(item) if key == "patternProperties" and isinstance(item, Mapping) else 0)
            for key, item in value.items()
        )
    return sum(map(_count_patterns, value)) if isinstance(value, list) else 0


def _at(schema: Any, pointer: str, path: str) -> Any:
    """RFC 6901, within the schema. Percent signs are refused: readers disagree about them."""
    found = schema
    for part in pointer.removeprefix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found and "%" not in part:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise bad(path, f"has a reference that leads nowhere: {pointer[:80]}")
    return found


def _check_seen(text: str, path: str) -> None:
    """Agents are given schemas as they are and read every letter of them; people see those that are drawn."""
    if visible(text) != text:
        raise bad(path, "contains invisible characters")


def _check_key(key: str, item: Any, path: str) -> None:
    _check_seen(key, path)
    if key in _REFERENCES and not (isinstance(item, str) and (item == "#" or item.startswith("#/"))):
        raise bad(path, f"has a {key} that leads out of the schema")
    if key in _NAMING and isinstance(item, str):
        raise bad(path, f"has a {key}: references are written as #/$defs/NAME")
    if key in _COSTLY:
        raise bad(path, f"has {key}, which takes too long: use additionalProperties or items")
    if key == "$schema" and item != DIALECT:
        raise bad(path, f"names another dialect than {DIALECT}")
    if key == "x-maxBytes" and (type(item) is not int or item < 0):
        raise bad(path, "has an x-maxBytes that is no whole number")
