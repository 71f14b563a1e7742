"""How the shape of a key is written down and judged: a prefix, alphabets, lengths.

Rules: every repetition is possessive and every shape begins at an edge, so that hostile text costs linear time and
a blob of base64 is not torn open by chance. A word that merely contains "token" or "sig" is no key.

Not here: the table of keys (vendors), values known in advance (known), private-key blocks (pem), the stream (stream).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final, TypeAlias

from palyra.late import late
from palyra.redact.verdict import OPEN, Hit, Verdict, Window, swallow_run
from palyra.values import dataclass

# Only single signs and sets are repeated possessively: Python 3.11.2 misplaces the end of a repeated group.


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One sign or set of signs, repeated."""

    unit: bytes
    least: int = 1
    most: int | None = 1

    def whole(self) -> bytes:
        return b"%s{%d,%s}+" % (self.unit, self.least, self._bound())

    def begun(self) -> bytes:
        return b"%s{0,%s}+" % (self.unit, self._bound())

    def _bound(self) -> bytes:
        return b"" if self.most is None else b"%d" % self.most


Pieces: TypeAlias = tuple[Piece, ...]


@cache
def _letter(letter: str) -> Piece:
    return Piece(unit=re.escape(letter).encode())


def text(literal: str) -> Pieces:
    return tuple(map(_letter, literal))


def one(signs: str) -> Pieces:
    return (Piece(unit=signs.encode()),)


def run(signs: str, least: int, most: int | None = None) -> Pieces:
    return (Piece(unit=signs.encode(), least=least, most=most),)


def _full(pieces: Pieces) -> bytes:
    return b"".join(piece.whole() for piece in pieces)


def _begun(pieces: Pieces) -> bytes:
    """Every text that is a beginning of the shape, or the whole of it where more could belong to it."""
    pattern = b""
    for piece in reversed(pieces):
        pattern = b"(?:%s|%s%s)" % (piece.begun(), piece.whole(), pattern)
    return pattern


def _edges(before: bytes) -> bytes:
    """Where a key may begin: after `before`, or an escape (\\n, \\u0026, %20). The window tells of colour codes."""
    escapes = rb"(?<=\\[abfnrtv0])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2})"
    return b"(?:%s|%s)" % (before, escapes)


EDGE: Final = _edges(rb"(?<![A-Za-z0-9])")

# A JWT's own alphabet may not stand before it: else "-eyJ-eyJ-eyJ…" is read again from every "eyJ".
JWT_EDGE: Final = _edges(rb"(?<![A-Za-z0-9_-])")


class Form:
    """One shape at an anchor: what is kept (a name before the value) and what is secret."""

    def __init__(self, kind: str, secret: Pieces, *, keep: Pieces = (), exact: bool = False) -> None:
        """`exact`: no further sign of the last alphabet may follow."""
        self.kind = kind
        self._behind = b"(?!" + secret[-1].unit + b")" if exact else b""
        self._keep, self._secret = keep, secret
        self._whole = late(lambda: _full(keep) + b"(?P<secret>" + _full(secret) + b")" + self._behind)
        self._begun = late(self.begun)
        self._rest = swallow_run(late(secret[-1].unit + b"*+"))

    def whole(self) -> bytes:
        return b"(?:%s%s%s)" % (_full(self._keep), _full(self._secret), self._behind)

    def begun(self) -> bytes:
        return _begun(self._keep + self._secret)

    def judge(self, window: Window) -> Verdict:
        goes_on = self._begun.fullmatch(window.data, window.at, window.stop) is not None
        if goes_on and not window.full:
            return OPEN
        found = self._whole.match(window.data, window.at, window.stop)
        if found is None:
            return None
        start = found.start("secret")
        if goes_on and not window.ended:
            return Hit(kind=self.kind, start=start, end=window.stop, swallow=self._rest)
        return Hit(kind=self.kind, start=start, end=start + len(found["secret"].rstrip(b".")))  # a sentence's full stop


_FEW = 2
"""Forms that are as quickly asked one by one."""


class Keys:
    """All forms that begin with (or, with `after`, follow) one of a few literals of equal meaning."""

    def __init__(
        self,
        anchors: Sequence[str],
        *forms: Form,
        search: str | None = None,
        after: bool = False,
        edge: bytes = EDGE,
        coloured: bool = True,
        words: Sequence[bytes] = (),
    ) -> None:
        """`coloured`: a colour code counts as an edge. Not where each further edge would be read to the very end.
        `words`: those of the detectors of names, which are searched for anyway."""
        self.words = words
        self.anchors = tuple(anchor.encode() for anchor in anchors)
        self.after = after
        self._forms = forms
        self._search = late(search.encode()) if search is not None else None
        self._coloured = coloured
        self._edge = late(b"" if after else edge)
        self._any_whole = late(lambda: b"|".join(form.whole() for form in forms))
        self._any_begun = late(lambda: b"|".join(form.begun() for form in forms))

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        if self._search is not None:
            return [found.start() for found in self._search.finditer(data, pos)]
        places: list[int] = []
        for anchor in self.anchors:
            shift = len(anchor) if self.after else 0
            at = data.find(anchor, max(0, pos - shift))
            while at >= 0:
                places.append(at + shift)
                at = data.find(anchor, at + 1)
        return places

    @property
    def signs(self) -> tuple[bytes, ...]:
        return self.anchors

    @property
    def literals(self) -> tuple[bytes, ...]:
        """Where none of these is, `find` finds nothing; empty where another search decides."""
        return () if self._search is not None else self.anchors

    def judge(self, window: Window) -> Verdict:
        if not (window.edge and self._coloured) and self._edge.match(window.data, window.at) is None:
            return None
        if len(self._forms) > _FEW and not self._is_any(window):
            return None
        verdicts = [form.judge(window) for form in self._forms]
        if OPEN in verdicts:
            return OPEN
        return next((verdict for verdict in verdicts if verdict is not None), None)

    def _is_any(self, window: Window) -> bool:
        """Whether any form would say something: an output of nothing but beginnings asks a hundred thousand times."""
        where = window.data, window.at, window.stop
        return self._any_whole.match(*where) is not None or self._any_begun.fullmatch(*where) is not None
