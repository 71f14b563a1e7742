"""A request as it is kept beside a call's entry, written around the few attributes that change from call to call.

Exactly the bytes of `Request.as_json` with sorted keys: most of it is the same each time a call is asked, so that it is
written once, with holes. Not here: what a request says (request), which of its texts may be kept (the engine).
"""

from __future__ import annotations

from operator import itemgetter

import orjson

from palyra.policy.request import ATTRIBUTES, CHANGING, Request
from palyra.values import dataclass

_changing = itemgetter(*CHANGING)
_WORDS = {False: b"false", True: b"true"}
_IS_FLAG = tuple(ATTRIBUTES[name] is bool for name in CHANGING)


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
        return self.around % tuple(
            [_WORDS[value] if is_flag else value for value, is_flag in zip(values, _IS_FLAG, strict=True)]
        )


def write_with_holes(request: Request) -> Written:
    whole = request.as_json()
    context = {name: _member(name, value) for name, value in whole.pop("context").items()}
    context |= {
        name: b'"%b":%%b' % name.encode() if ATTRIBUTES[name] is bool else b'"%b":%%d' % name.encode()
        for name in CHANGING
    }
    inner = b"{%b}" % b",".join(context[name] for name in sorted(context))
    members = {name: _member(name, value) for name, value in whole.items()} | {"context": b'"context":' + inner}
    return Written(request.first or request, b"{%b}" % b",".join(members[name] for name in sorted(members)))


def _member(name: str, value: object) -> bytes:
    return (orjson.dumps(name) + b":" + orjson.dumps(value)).replace(b"%", b"%%")
