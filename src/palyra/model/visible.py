"""How text of others is spelled before people read it: what hides, reorders or controls is written out.

Tool output, names and paths are hostile: an escape sequence drives a terminal, a bidi override turns a line around, a
zero-width sign makes two names look alike, a heap of marks covers the lines around it. Letters that no font draws
(fillers, joiners, variation selectors) are spelled out like control characters; in words that must be told apart,
spaces of other kinds are too. Every door that shows text to a person, terminal or page, goes through here. Pure.
Not here: escaping for a language (HTML is the templates' own).
"""

from __future__ import annotations

import re
import unicodedata

from palyra.late import late

_KEEP = frozenset("\n\t")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U0001d159")
"""Drawn as nothing, or as a space, though they count as letters and marks."""
_SELECTORS = late("[\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_PICTURES = frozenset("\ufe0e\ufe0f")
"""Behind a sign: drawn as a picture, or not as one."""
_MARKS = frozenset({"Mn", "Me"})
_HIDES, _SELECTS = "hides", "selects"
_TOLD = _MARKS | {_HIDES, _SELECTS}
MAX_MARKS = 4
"""On one letter: no language needs more."""
_OTHER_SPACES = late("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")


def visible(text: str) -> str:
    """Control, format (bidi, zero-width), private and blank characters spelled out; everything else as it is."""
    if text.isascii() and text.isprintable():
        return text
    kinds = {char: _kind(char) for char in set(text)}  # a text has few different letters, and many of them
    if _TOLD.isdisjoint(kinds.values()):
        return text
    out: list[str] = []
    marks, before = 0, ""
    for char in text:
        kind = kinds[char]
        marks = marks + 1 if kind in _MARKS else 0
        shown = kind == _SELECTS and before == "So" and char in _PICTURES
        hidden = kind in (_HIDES, _SELECTS) and not shown
        out.append(_spell(char) if hidden or marks > MAX_MARKS else char)
        before = kind
    return "".join(out)


def _kind(char: str) -> str:
    if char in _KEEP:
        return ""
    if _SELECTORS.match(char):
        return _SELECTS
    category = unicodedata.category(char)
    return _HIDES if char in _BLANK or category in _HIDDEN_CATEGORIES else category


def visible_line(text: str) -> str:
    """As `visible`, for what must stay on its one line: a newline in a name would forge the next line."""
    return visible(text).replace("\n", "\\x0a").replace("\t", "\\x09")


def spell_spaces(text: str) -> str:
    """For one word of a command or a name: a space that is not a space could be taken for one."""
    return text if text.isascii() else _OTHER_SPACES.sub(_spell_found, text)


def _spell_found(found: re.Match[str]) -> str:
    return _spell(found.group())


def _spell(char: str) -> str:
    """Of one length for each kind, so that what follows can never be read as part of it."""
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
