"""The words of a detector: a window of bytes, and what was found in it.

Rules: a detector finds candidates by a literal anchor (a cheap search), then judges one candidate inside a window
of at most `CAP` bytes. The verdict is a hit, nothing, or `OPEN`: more bytes could still change it. So nothing is
decided by where a chunk happened to end, and what is held back is bounded.

Not here: any shape of a secret (patterns, pem, headers, fields, urls), the stream that joins windows (stream).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final, Literal, Protocol, TypeAlias

from palyra.late import late
from palyra.values import dataclass

CAP: Final = 16 * 1024
"""What is held back for one candidate at most; a longer secret is replaced at once and its rest swallowed."""

CONTEXT: Final = 128
"""Bytes before a candidate that a detector may look at."""


STAND_IN: Final = late(
    rb"(?:\$\{[^}]*\}|\$\([^)]*\)|\$[A-Z_][A-Z0-9_]*|\{\{?[ \w.-]*\}?\}|<[ \w.-]+>|%\(\w+\)s|%[sv]|\*+|\.\.\.|"
    rb"\[redacted:[\w.-]+:[0-9]+\]|true|false|null|none|yes|no|[01])[)\]},.;:]*",
    re.IGNORECASE,
)
"""What is plainly no secret, so that source code and manuals can be read."""


class Swallow(Protocol):
    """Goes on with a secret that was longer than `CAP`: where it stops, and whether it may go on after that."""

    def __call__(self, data: bytes, at: int, *, ended: bool) -> tuple[int, bool]: ...


class Undecided(Enum):
    OPEN = "open"


OPEN: Final = Undecided.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """`data[start:end]` is a secret."""

    kind: str
    start: int
    end: int
    swallow: Swallow | None = None


Verdict: TypeAlias = Hit | Literal[Undecided.OPEN] | None


class Followed:
    """How far a candidate that nothing has decided yet was followed: kept by whoever asks about it again and again."""

    __slots__ = ("body", "offset")

    def __init__(self) -> None:
        self.offset = 0
        """Behind where it begins; all before that is judged for good."""
        self.body = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The bytes one candidate is judged by: `data[at:stop]`, and up to `CONTEXT` bytes before `at`."""

    data: bytes
    at: int
    stop: int
    ended: bool
    """The stream ends at `stop`."""
    edge: bool = False
    """A colour code stood right before `at`: a word may begin here whatever the text before it is."""
    followed: Followed | None = None
    """Where the same candidate is asked about once more, as bytes come."""

    @property
    def capped(self) -> bool:
        return self.stop - self.at >= CAP

    @property
    def full(self) -> bool:
        """Nothing that comes later counts: the candidate must be judged now."""
        return self.ended or self.capped


class Detector(Protocol):
    @property
    def signs(self) -> Sequence[bytes]:
        """Where none of these is, in any case of letters, `find` finds nothing."""

    @property
    def words(self) -> Sequence[bytes]:
        """The same in lower case, few and long enough to be searched for in every output; empty: `find` searches."""

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        """Candidates at or after `pos`, whose anchors lie complete in the data."""

    def judge(self, window: Window) -> Verdict: ...


def ends_of(anchor: re.Pattern[bytes], data: bytes, pos: int) -> list[int]:
    """Where the anchor ends, at or after `pos`; it may have begun in the context before."""
    return [found.end() for found in anchor.finditer(data, max(0, pos - CONTEXT)) if found.end() >= pos]


def swallow_run(alphabet: re.Pattern[bytes]) -> Swallow:
    """Swallow bytes of one alphabet, however many follow."""

    def swallow(data: bytes, at: int, *, ended: bool) -> tuple[int, bool]:
        found = alphabet.match(data, at)
        stop = found.end() if found else at
        return stop, stop == len(data) and not ended

    return swallow


def line_end(window: Window) -> int | None:
    """Where the line of the candidate ends; None while that is still to come."""
    data, at, stop = window.data, window.at, window.stop
    end = min((end for sign in b"\r\n" if (end := data.find(sign, at, stop)) >= 0), default=stop)
    return None if end == stop and not window.full else end
