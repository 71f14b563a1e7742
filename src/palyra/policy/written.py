"""A request as it is kept beside a call's entry, written around the few attributes that change from call to call.

Exactly the bytes of `Request.as_json` with sorted keys: most of it is the same each time a call is asked, so that it is
written once, with holes. Not here: what a request says (request), which of its texts may be kept (the engine).
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import orjson

from palyra.policy.request import ATTRIBUTES, CHANGING, Request
from palyra.values import dataclass

_changing = itemgetter(*CHANGING)
_WORDS = {False: b"false", True: b"true"}
_KINDS = tuple(ATTRIBUTES[name] for name in CHANGING)


@dataclass(frozen=True, slots=True)
class Written:
    of: Request
    """The first of those that ask the same."""
    around: bytes

    def bytes_of(self, request: Request) -> bytes | None:
        """None for a request that is not one of them."""
        if request is not self.of and request.first is not self.of:
            return None
        values = _changing(request.context)
        return self.around % tuple([_hole(value, kind) for value, kind in zip(values, _KINDS, strict=True)])


def _hole(value: Any, kind: type) -> Any:
    """Return what fills one place: a number as it is, a flag's word, a text as JSON."""
    return value if kind is int else _WORDS[value] if kind is bool else orjson.dumps(value)


def write_with_holes(request: Request) -> Written:
    whole = request.as_json()
    context = {name: _member(name, value) for name, value in whole.pop("context").items()}
    context |= {
        name: b'"%b":%%d' % name.encode() if ATTRIBUTES[name] is int else b'"%b":%%b' % name.encode()
        for name in CHANGING
    }
    inner = b"{%b}" % b",".join(context[name] for name in sorted(context))
    members = {name: _member(name, value) for name, value in whole.items()} | {"context": b'"context":' + inner}
    return Written(request.first or request, b"{%b}" % b",".join(members[name] for name in sorted(members)))


def _member(name: str, value: object) -> bytes:
    return (orjson.dumps(name) + b":" + orjson.dumps(value)).replace(b"%", b"%%")
