"""Private-key blocks, from BEGIN to END, also on one line with escaped line breaks, indented, or cut off.

Rules: a block is followed line by line. It ends at END, or before the first line that cannot belong to a key; a
block without END is replaced as far as it goes. After `CAP` bytes the placeholder is written and what still looks
like key material is swallowed, so that an endless block neither grows in memory nor leaks. A BEGIN line with
no key material behind it (source code that looks for one, documentation) stays as it is.

Not here: certificates and public keys, which are no secrets.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from palyra.late import late
from palyra.redact.verdict import OPEN, Followed, Hit, Verdict, Window
from palyra.values import dataclass

KIND: Final = "private-key"

_LINE = 1024
"""A longer line is judged in pieces of this size."""

_MARK = 128
"""An END mark is shorter."""

_NEAR = 384
"""One odd line so close before END (a short last line with decoration around it) does not end the block."""

_BEGUN = late(rb"----[- ]BEGIN [A-Z0-9 ]{0,64}+-{0,5}+")
_BEGIN = late(rb"----[- ]BEGIN (?=[A-Z0-9 ]{0,48}PRIVATE KEY)[A-Z0-9 ]{0,64}+-{4,5}+")
_END = late(rb"----[- ]END (?=[A-Z0-9 ]{0,48}PRIVATE KEY)[A-Z0-9 ]{0,64}+-{4,5}+")

_DECORATION = b" \t\r\n\"'`,;+\\|>#*"
_MATERIAL = late(rb"[A-Za-z0-9+/]{24}|^[A-Za-z0-9+/=]+(?:\\+[nr])*$|^----[- ]E|\[redacted:")
_HEADER = late(rb"(?:Proc-Type|DEK-Info|Version|Comment|Subject|Hash|Charset|MessageID): ")
_BODY = late(rb"[A-Za-z0-9+/]{16}|\[redacted:")
_LINE_END = late(rb"\n|----[- ]BEGIN ")


class _State(Enum):
    END = "an END mark"
    BROKEN = "a line that cannot be part of a key"
    MORE = "what comes next decides"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    state: _State
    end: int
    body: bool
    """Key material was seen."""


def _walk(data: bytes, at: int, stop: int, *, ended: bool, body: bool) -> _Walk:
    """Follow the lines of a block; a line is judged only when no later byte can change the judgement."""
    while at < stop:
        end, complete = _line(data, at, stop)
        mark = _END.search(data, at, min(stop, end + _MARK))
        if mark is not None and mark.start() < end:
            if mark.end() == stop and not ended:
                return _Walk(state=_State.MORE, end=at, body=body)  # its last dash may follow
            return _Walk(
                state=_State.END, end=mark.end(), body=body or _BODY.search(data, at, mark.start()) is not None
            )
        if not complete and not ended and stop < end + _MARK:
            return _Walk(state=_State.MORE, end=at, body=body)
        if not _may_belong(data[at:end]):
            return _odd_line(data, at, stop, ended=ended) if body else _Walk(state=_State.BROKEN, end=at, body=body)
        body = body or _BODY.search(data, at, end) is not None
        at = end
    return _Walk(state=_State.MORE, end=stop, body=body)


def _line(data: bytes, at: int, stop: int) -> tuple[int, bool]:
    """Where the line ends, and whether that is certain: at a line break, at the next BEGIN, or for its length."""
    limit = at + _LINE
    found = _LINE_END.search(data, at, min(stop, limit + _MARK))
    if found is not None and found.start() < limit:
        return (found.end() if found.group() == b"\n" else found.start()), True
    return min(stop, limit), False


def _odd_line(data: bytes, at: int, stop: int, *, ended: bool) -> _Walk:
    """A line that cannot be part of a key ends the block, unless END is next to it."""
    if not ended and stop < at + _NEAR:
        return _Walk(state=_State.MORE, end=at, body=True)
    mark = _END.search(data, at, min(stop, at + _NEAR))
    if mark is None or _BEGIN.search(data, at, mark.start()):
        return _Walk(state=_State.BROKEN, end=at, body=True)
    return _Walk(state=_State.END, end=mark.end(), body=True)


def _may_belong(line: bytes) -> bool:
    bare = line.strip(_DECORATION)
    if not line:
        return False  # the next BEGIN
    return not bare or _MATERIAL.search(bare) is not None or _HEADER.match(bare) is not None


def _swallow(data: bytes, at: int, *, ended: bool) -> tuple[int, bool]:
    walk = _walk(data, at, len(data), ended=ended, body=True)
    return walk.end, walk.state is _State.MORE and not ended


class PrivateKeys:
    anchors: Final = (b"-----BEGIN ", b"---- BEGIN ")
    signs: Final = (b"BEGIN ",)
    words: Final = ()

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        """Both anchors end alike, so that one search serves for both."""
        places: list[int] = []
        at = data.find(b"BEGIN ", pos)
        while at >= 0:
            if at - 5 >= pos and data[at - 5 : at + 6] in self.anchors:
                places.append(at - 5)
            at = data.find(b"BEGIN ", at + 1)
        return places

    def judge(self, window: Window) -> Verdict:
        data, at, stop = window.data, window.at, window.stop
        if not window.full and _BEGUN.fullmatch(data, at, stop):
            return OPEN
        begin = _BEGIN.match(data, at, stop)
        if begin is None:
            return None
        # A block of thousands of short lines that comes byte by byte is not followed from its beginning for each.
        followed = window.followed or Followed()
        start = max(begin.end(), at + followed.offset)
        walk = _walk(data, start, stop, ended=window.ended, body=followed.body)
        if walk.state is _State.MORE:
            followed.offset, followed.body = walk.end - at, walk.body
        if walk.state is _State.MORE and not window.full:
            return OPEN
        if not walk.body:
            return None
        endless = walk.state is _State.MORE and not window.ended
        return Hit(kind=KIND, start=at, end=walk.end, swallow=_swallow if endless else None)
