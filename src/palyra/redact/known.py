"""Values known to be secret (the vault's, brokered credentials), in every form a program is likely to print them.

Forms: plain, percent-encoded, escaped for JSON, for JSON within JSON and for HTML, in UTF-16, hexadecimal, base64 and
base64url at all three alignments. Line breaks inside a value do not hide it (`base64` folds at 76 columns). Overlapping
secrets are all replaced: no rest of one stays. What is held back is the shortest tail that may still become a secret.

Not here: shapes of unknown secrets (patterns), numbers of placeholders (stream).
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote_from_bytes

from palyra.late import late
from palyra.redact.colours import Track

SHORTEST: Final = 6
"""Shorter values are everywhere in ordinary text; they are not looked for."""

_SAFE_SETS: Final = ("", "/", "!'()*", ";/?:@&=+$,#!'()*")
_QUOTES: Final = (('"', "'"), ("&quot;", "'"), ("&quot;", "&#x27;"), ("&quot;", "&#39;"), ("&#34;", "&#39;"))
"""What the libraries that escape HTML make of them."""
_NEWLINES: Final = b"\r\n"
_NEWLINE = late(rb"[\r\n]")


def forms(value: bytes) -> frozenset[bytes]:
    """Every text that shows this value; newlines are left out, as they are in the text they are looked for in."""
    found: set[bytes] = set()
    for plain in {value, value.strip()}:
        if len(plain) >= SHORTEST:
            found |= {plain, *_percent(plain), *_base64(plain)}
            found |= {plain.hex().encode(), plain.hex().upper().encode()}
            found |= _of_text(plain)
    squeezed = (form.translate(None, _NEWLINES) for form in found)
    return frozenset(form for form in squeezed if len(form) >= SHORTEST)


def _percent(value: bytes) -> Iterator[bytes]:
    quoted = [quote_from_bytes(value, safe) for safe in _SAFE_SETS]
    for text in (*quoted, quoted[0].replace("%20", "+")):
        yield text.encode()
        yield re.sub("%[0-9A-F]{2}", lambda escape: escape.group().lower(), text).encode()


def _of_text(value: bytes) -> set[bytes]:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return set()
    shown = {*_json(text), *_html(text)}
    # Without its outermost byte: that is the same zero in front or behind, and else would be taken from a neighbour.
    wide = {text.encode("utf-16-le")[:-1], text.encode("utf-16-be")[1:]}
    return {form.encode() for form in shown} | wide


def _json(text: str) -> Iterator[str]:
    for escaped in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        yield escaped
        yield escaped.replace("/", "\\/")
        if '"' in escaped or "\\" in escaped:  # a log of JSON that holds JSON
            yield json.dumps(escaped, ensure_ascii=False)[1:-1]


def _html(text: str) -> Iterator[str]:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for double, single in _QUOTES:
        yield escaped.replace('"', double).replace("'", single)


def _base64(value: bytes) -> Iterator[bytes]:
    """The digits that depend on the value alone, whatever stands before and behind it.

    Also without the first of them, which may stand alone at the end of a folded line.
    """
    for before in range(3):
        digits = base64.b64encode(b"\0" * before + value)
        core = digits[(0, 2, 3)[before] : 8 * (before + len(value)) // 6]
        for text in (core, core.translate(bytes.maketrans(b"+/", b"-_"))):
            yield text
            yield text[1:]
        yield quote_from_bytes(core, "").encode()


class KnownValues:
    """A chunk-safe filter. `replace` is asked for the text that stands for the secret with that index."""

    def __init__(self, values: Sequence[bytes], replace: Callable[[int], bytes]) -> None:
        self._needles: dict[bytes, int] = {}
        for index, value in enumerate(values):
            for form in sorted(forms(value)):
                self._needles.setdefault(form, index)
        self._heads = tuple(sorted({needle[:SHORTEST] for needle in self._needles}))
        self._beginnings: dict[bytes, int] = {}
        """The first few bytes of needles, each with the length of the longest needle that begins so."""
        for needle in self._needles:
            for size in range(1, SHORTEST):
                known = self._beginnings.get(needle[:size], 0)
                self._beginnings[needle[:size]] = max(known, len(needle))
        self._replace = replace
        self._held = b""
        self._covered = 0
        """How much at the start of what is held belongs to a secret that was replaced already."""
        self._last = -1
        self._fed = 0
        self.track = Track()

    def feed(self, chunk: bytes) -> bytes:
        self._fed += len(chunk)
        return self._run(self._held + chunk, ended=False) if self._needles else chunk

    @property
    def released(self) -> int:
        """How much of the whole input has come out, or was replaced."""
        return self._fed - len(self._held)

    @property
    def held(self) -> bool:
        return bool(self._held)

    @property
    def held_bytes(self) -> int:
        """That have not come out yet, in any form."""
        return len(self._held) - self._covered

    @property
    def most_held_bytes(self) -> int:
        """However a text is made up: of the longest form, with as many line ends inside as are put up with."""
        return 2 * max(map(len, self._needles), default=0) + 64 if self._needles else 0

    def forget(self) -> None:
        self._held = b""

    def finish(self, last: bytes) -> bytes:
        self._fed += len(last)
        return self._run(self._held + last, ended=True) if self._needles else last

    def _run(self, data: bytes, *, ended: bool) -> bytes:
        squeezed = data.translate(None, _NEWLINES)
        heads = {head for head in self._heads if head in squeezed}
        begun = not ended and any(squeezed[-size:] in self._beginnings for size in range(1, SHORTEST))
        if not (heads or begun or self._covered):
            self._held = b""
            return data
        text = _Text(data, squeezed)
        suspects = [needle for needle in self._needles if needle[:SHORTEST] in heads]
        hold = len(data) if ended else min((text.begun(needle) for needle in suspects), default=len(data))
        if begun:
            hold = min(hold, text.tail(self._beginnings))
        return self._emit(data, self._spans(text, suspects), hold)

    def _spans(self, text: _Text, suspects: list[bytes]) -> list[tuple[int, int, int]]:
        found = [(start, -end, self._needles[needle]) for needle in suspects for start, end in text.occurrences(needle)]
        return [(start, -end, index) for start, end, index in sorted(found)]

    def _emit(self, data: bytes, spans: list[tuple[int, int, int]], hold: int) -> bytes:
        out: list[bytes] = []
        done, base = self._covered, self._fed - len(data)
        for start, end, index in spans:
            if start >= hold:
                break
            if end <= done:
                continue
            out.append(data[done:start])
            shown = self._replace(index) if start >= done or index != self._last else b""
            out.append(shown)
            self.track.replace(base + max(start, done), base + end, len(shown))
            done, self._last = end, index
        out.append(data[done:hold])
        self._held = data[hold:]
        self._covered = max(0, done - hold)
        return b"".join(out)


class _Text:
    """Bytes with and without their line breaks, and the way back from the one to the other."""

    def __init__(self, data: bytes, squeezed: bytes) -> None:
        self._data = data
        self._squeezed = squeezed
        breaks = (found.start() for found in _NEWLINE.finditer(data)) if len(data) != len(squeezed) else ()
        self._breaks = [at - count for count, at in enumerate(breaks)]

    def _place(self, index: int) -> int:
        return index + bisect_right(self._breaks, index)

    def _fits(self, start: int, end: int, length: int) -> bool:
        """Its first two bytes stand together, and it is not stretched by empty lines without bound.

        The first keeps a line that ends in a secret's first letter from being held back with its line break.
        """
        return end - start <= 2 * length + 64 and self._data[start + 1 : start + 2] not in (b"\r", b"\n")

    def occurrences(self, needle: bytes) -> Iterator[tuple[int, int]]:
        at = self._squeezed.find(needle)
        while at >= 0:
            start, end = self._place(at), self._place(at + len(needle) - 1) + 1
            if self._fits(start, end, len(needle)):
                yield start, end
            at = self._squeezed.find(needle, at + 1)

    def begun(self, needle: bytes) -> int:
        """Where the first unfinished occurrence of the needle begins that reaches the end of the data."""
        head = needle[:SHORTEST]
        at = self._squeezed.find(head, max(0, len(self._squeezed) - len(needle) + 1))
        while at >= 0:
            start = self._place(at)
            if needle.startswith(self._squeezed[at:]) and self._fits(start, len(self._data) + 1, len(needle)):
                return start
            at = self._squeezed.find(head, at + 1)
        return len(self._data)

    def tail(self, beginnings: Mapping[bytes, int]) -> int:
        """The same for the last few bytes, too few for a head."""
        size = len(self._squeezed)
        for at in range(max(0, size - SHORTEST + 1), size):
            length = beginnings.get(self._squeezed[at:], 0)
            if length and self._fits(self._place(at), len(self._data) + 1, length):
                return self._place(at)
        return len(self._data)
