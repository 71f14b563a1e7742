"""Canonical JSON bytes (RFC 8785) and digests over them.

Two profiles. `canonical` is plain RFC 8785 and serves values that callers own (a tool's input and output).
`canonical_strict` is the journal's: ASCII keys, no floats, integers below 2^53, depth at most 16
(docs/spec/journal.md); there a fast path through orjson is exact, because with ASCII keys sorting by
UTF-16 code units and by bytes agree, and without floats nothing depends on number formatting.

Not here: reading untrusted JSON (protocol/parse), signatures (signing).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from itertools import compress
from operator import not_
from typing import Any, TypeAlias

import orjson

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, a sequence or a mapping with string keys."""

MAX_INT = 2**53 - 1
MAX_DEPTH = 16

_SORTED_WHOLE = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_MANY = 12
"""From about there on values are asked for their types all at once."""
_LEAVES = frozenset({str, int, bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
_FRACTION = re.compile(rb"[\[:,]-?[0-9]+[.eE]")
_SHORT_ESCAPES = {0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r", 0x22: '\\"', 0x5C: "\\\\"}
_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x20)} | _SHORT_ESCAPES


def canonical(value: Json) -> bytes:
    """RFC 8785 bytes of any JSON value. Raises ValueError for what JSON cannot carry exactly."""
    fast = _fast(value)
    if fast is not None:
        return fast
    parts: list[str] = []
    _write(value, parts)
    try:
        return "".join(parts).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("a string holds a lone surrogate") from error


def _fast(value: Json) -> bytes | None:
    """orjson's own bytes where they are RFC 8785's: all ASCII, so keys sort alike, and no fraction among them.

    A string that looks like a fraction (",1.5") only costs the slow way.
    """
    try:
        data = orjson.dumps(value, option=_SORTED_WHOLE)
    except (orjson.JSONEncodeError, TypeError):
        return None  # another kind of mapping, or what the slow way names with a sentence
    if not data.isascii() or data[0] not in b"{[":
        return None
    if _is_plain(value):
        return data
    if _FRACTION.search(data) is not None or (b"null" in data and _holds_float(value)):  # orjson writes NaN as null
        return None
    return data


def canonical_plain(value: Json) -> bytes | None:
    """The canonical bytes of a value made of nothing but dicts, lists, strings, whole numbers, booleans and null, of
    exactly these types and in ASCII; None for any other. Equal bytes are then equal values."""
    data = sorted_json(value)
    return data if data is not None and data.isascii() and _is_plain(value) else None


def sorted_json(value: Json) -> bytes | None:
    """The canonical bytes of a plain value, without asking whether it is one: None and NaN are written alike, a date
    like its text. So two values with equal bytes are the same only if they are also equal."""
    try:
        return orjson.dumps(value, option=_SORTED_WHOLE)
    except (orjson.JSONEncodeError, TypeError):
        return None


def made_ahead(value: Json) -> orjson.Fragment:
    """A value that will stand in many objects, as its bytes in the journal's profile; for `canonical_around`.
    ValueError also for one that leaves no room for the entry's object and its predicate around it."""
    return orjson.Fragment(canonical_strict([[value]])[2:-2])


def canonical_around(members: Mapping[str, Json], fixed: Mapping[str, orjson.Fragment]) -> bytes | None:
    """An object in the journal's profile, of which some members were made ahead, whatever `members` says of those; None
    where only the whole value can tell how it is written."""
    try:
        data = orjson.dumps({**members, **fixed} if fixed else members, option=_SORTED_WHOLE)
    except (orjson.JSONEncodeError, TypeError):
        return None
    return data if data.isascii() and fits_around(members, fixed) else None


def fits_around(members: Mapping[str, Json], fixed: Mapping[str, orjson.Fragment]) -> bool:
    """Whether orjson writes an object of these, in ASCII, as the journal's profile does, and another around it."""
    for name, value in members.items() if len(members) < _MANY else not_of(members, _LEAVES):
        kind = type(value)
        if kind in _LEAVES or name in fixed or (kind is dict and _LEAVES.issuperset(map(type, value.values()))):
            continue
        # Two levels less: this object is one, and whoever writes another around these bytes adds one.
        if not _is_plain(value, MAX_DEPTH - 2):
            return False
    return True


def not_of(members: Mapping[str, Json], kinds: frozenset[object]) -> list[tuple[str, Json]]:
    """Those whose values are of none of these very types. Asked of thirty at once, before any line of ours runs."""
    return [*compress(members.items(), map(not_, map(kinds.__contains__, map(type, members.values()))))]


def _is_plain(value: Json, most_levels: int = MAX_DEPTH) -> bool:
    """Containers of strings, whole numbers, booleans and nothing else, exactly of these types, at most so many
    levels deep. One question a container, not one a value: every record of a call passes here several times."""
    level = [value]
    for _ in range(most_levels):
        below: list[Json] = []
        for item in level:
            kind = type(item)
            if kind not in _CONTAINERS:
                return False
            inner = item.values() if kind is dict else item
            if not _LEAVES.issuperset(map(type, inner)):
                below += [one for one in inner if type(one) not in _LEAVES]
        if not below:
            return True
        level = below
    return False


def _holds_float(value: Json) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_float, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_holds_float, value))
    return isinstance(value, float)


def canonical_strict(value: Json) -> bytes:
    """The journal's profile; raises ValueError naming the first rule that is broken."""
    try:
        data = orjson.dumps(value, option=_SORTED_WHOLE)
    except (orjson.JSONEncodeError, TypeError):
        data = b""  # the slow way names what is wrong
    if data and data.isascii() and _is_plain(value):
        return data
    _check_strict(value, 0)
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:
        raise ValueError(str(error)) from error


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest(value: Json) -> str:
    """Hex SHA-256 over the RFC 8785 bytes of a value."""
    return sha256_hex(canonical(value))


def _write(value: Json, parts: list[str]) -> None:
    if value is None:
        parts.append("null")
    elif value is True:
        parts.append("true")
    elif value is False:
        parts.append("false")
    elif isinstance(value, str):
        parts.append('"' + value.translate(_ESCAPES) + '"')
    elif isinstance(value, int):
        if abs(value) > MAX_INT:
            raise ValueError(f"integer {value} cannot be carried exactly by JSON readers")
        parts.append(int.__repr__(value))
    elif isinstance(value, float):
        parts.append(_number(value))
    elif isinstance(value, Mapping):
        _write_object(value, parts)
    elif isinstance(value, (list, tuple)):
        _write_array(value, parts)
    else:
        raise ValueError(f"{type(value).__name__} is not a JSON value")


def _write_object(value: Mapping[str, Json], parts: list[str]) -> None:
    parts.append("{")
    for at, key in enumerate(sorted(value, key=_utf16)):
        parts.append(("," if at else "") + '"' + key.translate(_ESCAPES) + '":')
        _write(value[key], parts)
    parts.append("}")


def _write_array(value: list[Json] | tuple[Json, ...], parts: list[str]) -> None:
    parts.append("[")
    for at, item in enumerate(value):
        if at:
            parts.append(",")
        _write(item, parts)
    parts.append("]")


def _utf16(key: str) -> bytes:
    if not isinstance(key, str):
        raise ValueError(f"object key {key!r} is not a string")
    try:
        return key.encode("utf-16-be")
    except UnicodeEncodeError as error:
        raise ValueError("an object key holds a lone surrogate") from error


def _number(value: float) -> str:
    """ECMAScript's Number::toString, which RFC 8785 prescribes; Python's repr is the same shortest digits."""
    if not math.isfinite(value):
        raise ValueError("NaN and Infinity are not JSON")
    if value == 0:
        return "0"
    mantissa, _, exponent_text = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    leading = len(whole + fraction) - len(digits)
    point = len(whole) - leading + int(exponent_text or 0)
    digits = digits.rstrip("0")
    sign = "-" if value < 0 else ""
    return sign + _place(digits, point)


def _place(digits: str, point: int) -> str:
    """Put the decimal point after `point` digits, in the notation ECMAScript chooses."""
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    exponent = point - 1
    tail = "." + digits[1:] if count > 1 else ""
    return f"{digits[0]}{tail}e{'+' if exponent >= 0 else '-'}{abs(exponent)}"


def _check_strict(value: Json, depth: int) -> None:
    if value is None or isinstance(value, (str, bool)):
        return
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise ValueError(f"integer {value} is outside the journal's range")
    elif isinstance(value, float):
        raise ValueError("floats do not enter the journal")
    elif depth >= MAX_DEPTH:
        raise ValueError(f"nesting deeper than {MAX_DEPTH}")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not (isinstance(key, str) and key.isascii()):
                raise ValueError(f"object key {key!r} is not ASCII")
            _check_strict(item, depth + 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_strict(item, depth + 1)
    else:
        raise ValueError(f"{type(value).__name__} is not a JSON value")
