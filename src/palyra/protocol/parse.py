"""Bytes → one strict JSON object. Nothing is guessed, coerced or repaired.

Order: 1 size, before anything is read · 2 UTF-8 · 3 depth, by a linear scan over the brackets outside strings, so that
ten megabytes of `[` never reach a recursive parser · 4 the standard library's parser with hooks: it shows every pair,
so duplicate keys are seen (a fast parser keeps the last one silently: two readers, two calls) · 5 one object.

`check_input` holds a Python mapping from a library caller to the same rules. Not here: schemas (protocol/schema).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson

from palyra.canon import MAX_INT, Json
from palyra.errors import Reason, Rejected

MAX_DEPTH = 32
_SHOWN = 40
_QUOTES_A_VALUE = 8
"""A key and a text have two each; others stand in texts, behind a backslash."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""One that never ends is taken to the end of the text: by a pattern that has to find its second quote, every quote
behind a backslash would be tried as a beginning, and a short text would hold everybody up for hours."""
_BRACKET = re.compile(rb"[\[\]{}]")
_OPENING = frozenset(b"[{")


def parse_input(data: bytes, *, max_bytes: int) -> dict[str, Json]:
    _check_size(len(data), max_bytes)  # 1
    value = parse_value(data)
    if not isinstance(value, dict):  # 5
        raise _malformed("The input must be one JSON object.")
    return value


def parse_value(data: bytes, *, max_depth: int = MAX_DEPTH, max_values: int | None = None) -> Json:
    """Any one JSON value, by the same rules: what a guest says is not trusted either. `max_values`: at most so many in
    it, at every depth together: millions of empty lists are a small text, and seconds of work to everybody behind."""
    if data.startswith(b"\xef\xbb\xbf"):
        raise _malformed("The input begins with a byte order mark.")
    try:
        text = data.decode("utf-8")  # 2
    except UnicodeDecodeError as error:
        raise _malformed(f"The input is not UTF-8: byte {error.start} is wrong.") from None
    _check_shape(data, max_depth, max_values)  # 3
    try:
        value = _DECODER.decode(text)  # 4
    except json.JSONDecodeError as error:
        what = error.msg.lower().removesuffix(" at").removesuffix(" starting")  # some name their own place
        raise _malformed(f"The input is not JSON: {what} at character {error.pos}.") from None
    _check_surrogates(value, data)
    return value


def check_input(value: object, *, max_bytes: int) -> dict[str, Json]:
    """A mapping from Python code: a deep plain copy, by the rules a wire input obeys."""
    if not isinstance(value, Mapping):
        raise _bad("The input must be a mapping.")
    size = _written_bytes(value)
    if size is not None:
        _check_size(size, max_bytes)  # before it is copied, which takes a hundred times as long
    copied = _copy(value, 1)
    assert isinstance(copied, dict)
    if size is None:
        size = _written_bytes(copied)
        if size is None:
            raise _malformed("A string in the input holds a lone surrogate.")
        _check_size(size, max_bytes)
    return copied


def _written_bytes(value: object) -> int | None:
    """How long it is as JSON; None for what cannot be written as it is."""
    try:
        return len(orjson.dumps(value))
    except (orjson.JSONEncodeError, TypeError, RecursionError):
        return None


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise Rejected(
            Reason.TOO_LARGE,
            f"The input has {size} bytes; this tool takes at most {max_bytes}.",
            'Put large data into a file of the workspace, in parts (palyra.process.run with command="tee", args=["-a", '
            '"FILE"] and the next part as stdin), and name the file.',
        )


def _check_shape(data: bytes, max_depth: int, max_values: int | None) -> None:
    if max_values is not None and data.count(b'"') > _QUOTES_A_VALUE * max_values:
        raise _too_many(max_values)
    bare = _STRING.sub(b"", data)
    if max_values is not None and bare.count(b",") + bare.count(b"[") + bare.count(b"{") > max_values:
        raise _too_many(max_values)
    depth = 0
    for found in _BRACKET.finditer(bare):
        if bare[found.start()] in _OPENING:
            depth += 1
            if depth > max_depth:
                raise _malformed(f"The input is nested deeper than {max_depth} levels.")
        else:
            depth -= 1


def _too_many(max_values: int) -> Rejected:
    return Rejected(Reason.TOO_LARGE, f"The input has more than {max_values} values.", "Send less at once.")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # add
        raise _malformed(f"The key {twice[:_SHOWN]!r} appears twice in one object.")
    return found


def _whole(digits: str) -> int:
    if len(digits) > 17 or abs(number := int(digits)) > MAX_INT:
        raise _malformed("An integer is larger than 2^53 - 1, which JSON readers cannot carry exactly.")
    return number


def _fraction(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _malformed("A number is too large.")
    return number


def _constant(name: str) -> NoReturn:
    raise _malformed(f"{name} is not JSON.")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_whole, parse_float=_fraction, parse_constant=_constant, strict=True
)


def _check_surrogates(value: Json, data: bytes) -> None:
    """Only a \\u escape can make one; text with it could not be digested or sent on."""
    if b"\\u" in data:
        try:
            orjson.dumps(value)
        except (orjson.JSONEncodeError, TypeError):
            raise _malformed("A string in the input holds a lone surrogate.") from None


def _copy(value: object, depth: int) -> Json:
    if value is None or isinstance(value, (bool, str)):
        return value if value is None or isinstance(value, bool) else str(value)
    if isinstance(value, int):
        if abs(value) > MAX_INT:
            raise _malformed("An integer is larger than 2^53 - 1, which JSON readers cannot carry exactly.")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _malformed("NaN and Infinity are not JSON.")
        return float(value)
    if depth > MAX_DEPTH:
        raise _malformed(f"The input is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise _bad("Every key of the input must be a string.")
        return {str(key): _copy(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item, depth + 1) for item in value]
    raise _bad(f"The input holds a value of type {type(value).__name__[:_SHOWN]}, which is not JSON.")


def _malformed(detail: str) -> Rejected:
    return Rejected(Reason.MALFORMED, detail, "Send one JSON object as RFC 8259 defines it.")


def _bad(detail: str) -> Rejected:
    return Rejected(Reason.BAD_ARGUMENTS, detail, "An operator can print the schema: palyra tools show TOOL.")
