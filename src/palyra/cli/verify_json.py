"""JSON that somebody else wrote, read for `palyra verify`: one reading, at the cost of its length, or `Malformed`.

Rules: no key twice, nothing deeper or larger than an outcome can be, no number or text that JSON cannot carry; counted
before any value is made. Not here: what the values mean (cli/verify).
"""

from __future__ import annotations

import json
import re

import orjson

from palyra.late import late

MAX_FILE_BYTES = 256 << 20
"""Of what is no export."""
MAX_DEPTH = 64
"""An input has at most 32 levels, and an outcome puts it one or two deeper."""
MAX_VALUES = 1_000_000
_STRING = late(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""One that never ends is taken to the end: otherwise every quote in it would be tried as a beginning."""
_BRACKET = late(rb"[\[\]{}]")


class Malformed(Exception):
    """Something no Palyra wrote: two readers could see two different things in it."""


def parse_json(data: bytes) -> object:
    """JSON in one reading: no key twice, nothing deeper than an outcome can be, no number or text JSON cannot carry."""
    try:
        _check_shape(data)
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
        orjson.dumps(value)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Malformed(
            f"The file is not JSON ({error}). palyra verify takes what palyra run --json writes."
        ) from error
    except (ValueError, RecursionError, TypeError) as error:
        raise Malformed(f"It is not the JSON that Palyra writes: {error}.") from error
    return value


def _check_shape(data: bytes) -> None:
    """Before any value is made: millions of empty lists are a small file and gigabytes of memory."""
    bare = _STRING.sub(b"", data)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MAX_VALUES:
        raise Malformed(f"It holds more than {MAX_VALUES} values.")
    depth = 0
    for found in _BRACKET.finditer(bare):
        depth += 1 if found[0] in (b"[", b"{") else -1
        if depth > MAX_DEPTH:
            raise Malformed(f"It is nested deeper than {MAX_DEPTH} levels.")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed("A key appears twice in one object.")
    return found


def _refuse(name: str) -> object:
    raise Malformed(f"{name} is not JSON.")
