"""Terminal colour codes: taken out before secrets are looked for, and put back where they stood.

A key that a program prints with colours inside it (`grep --color`, a coloured diff) is still the key. So the filters
see the text alone; codes inside a secret come out behind its placeholder, every other one where it was. Codes that
are spelled out, as in JSON (`\\u001b[31m`), count too. A code counts as the edge of a word.

Rules: what is held back is the beginning of one code, a few bytes; places are followed through the filters by the
replacements each of them reports. Not here: any secret (known, patterns), the order of filters (stream).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from palyra.late import late

Mark = tuple[int, bytes]
"""A code, and how many bytes of text stand before it in the whole stream."""

_SPELLED = rb"\\(?:u001[bB]|x1[bB]|033|e)"
_INTRODUCER = rb"(?:\x1b|" + _SPELLED + rb")"
_REST = rb"(?:\[[0-9;:?]{0,48}[A-Za-z]|[()*+][A-Za-z0-9])"
# A pattern that begins with one certain sign is searched for many times faster than one that begins with either.
_CODES = {
    (True, False): late(rb"\x1b" + _REST),
    (False, True): late(_SPELLED + _REST),
    (True, True): late(_INTRODUCER + _REST),
}
_BEGUN = late(
    rb"(?:" + _INTRODUCER + rb"(?:\[[0-9;:?]{0,48}|[()*+])?|\\(?:u(?:0(?:01?)?)?|x1?|03?)?)\Z",
)
_LONGEST: Final = 64


class Colours:
    """Splits a stream into its text and its codes."""

    def __init__(self) -> None:
        self._held = b""
        self._count = 0

    def take(self, chunk: bytes, *, ended: bool = False) -> tuple[bytes, bytes, list[Mark]]:
        """What came and is no beginning of a code; the text of it; the codes in it."""
        data = self._held + chunk if self._held else chunk
        self._held = b""
        tail = data[-_LONGEST:]
        if not ended and (b"\\" in tail or b"\x1b" in tail):
            begun = _BEGUN.search(tail)
            if begun is not None:
                cut = len(data) - len(tail) + begun.start()
                data, self._held = data[:cut], data[cut:]
        kinds = (b"\x1b" in data, b"\\" in data)
        codes = [(found.start(), found.group()) for found in _CODES[kinds].finditer(data)] if any(kinds) else []
        if not codes:
            self._count += len(data)
            return data, data, []
        marks: list[Mark] = []
        skipped = -self._count
        for at, code in codes:
            marks.append((at - skipped, code))
            skipped += len(code)
        text = _CODES[kinds].sub(b"", data)
        self._count += len(text)
        return data, text, marks

    def forget(self) -> None:
        self._held = b""


class Track:
    """What one filter replaced, and so where places of its input come to lie in its output."""

    def __init__(self) -> None:
        self._edits: deque[tuple[int, int, int]] = deque()
        self._shift = 0

    @property
    def quiet(self) -> bool:
        """Nothing was replaced since it was last settled."""
        return not self._edits

    def replace(self, start: int, end: int, size: int) -> None:
        """Bytes `start` to `end` of the whole input became `size` bytes."""
        self._edits.append((start, end, size))

    def settle(self, until: int) -> None:
        """No place before `until` will be asked for any more."""
        while self._edits and self._edits[0][1] <= until:
            start, end, size = self._edits.popleft()
            self._shift += size - (end - start)

    def place_all(self, marks: list[Mark]) -> list[Mark]:
        """Marks, in their order, as they stand in the output; inside a replacement: right behind it.

        Codes and replacements are passed once, side by side: a text of nothing but coloured keys has as many of the one
        as of the other, and asking every replacement for every code would hold everybody up for seconds.
        """
        shift = self._shift
        if not self._edits:
            return [(at + shift, code) for at, code in marks] if shift else marks
        placed: list[Mark] = []
        edits = iter(self._edits)
        edit = next(edits, None)
        for at, code in marks:
            while edit is not None and at >= edit[1] and at > edit[0]:
                shift += edit[2] - (edit[1] - edit[0])
                edit = next(edits, None)
            place = edit[0] + edit[2] if edit is not None and edit[0] < at else at
            placed.append((place + shift, code))
        return placed


def taken(marks: deque[Mark], until: int) -> list[Mark]:
    """Take the marks that stand before `until`."""
    if marks and marks[-1][0] <= until:
        found = list(marks)
        marks.clear()
        return found
    found = []
    while marks and marks[0][0] <= until:
        found.append(marks.popleft())
    return found


def put_back(text: bytes, marks: Iterable[Mark], start: int) -> bytes:
    """`text`, which begins at `start` of the whole output, with the codes in their places."""
    parts: list[bytes] = []
    done = 0
    for place, code in marks:
        at = place - start
        if at > done:
            parts.append(text[done:at])
            done = at
        parts.append(code)
    parts.append(text[done:])
    return b"".join(parts)
