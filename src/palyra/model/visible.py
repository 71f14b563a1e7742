"""How text of others is spelled before people read it: what hides, reorders or controls is written out.

Tool output, names and paths are hostile: an escape sequence drives a terminal, a bidi override turns a line around, a
zero-width sign makes two names look alike. Every door that shows text to a person, terminal or page, goes through
here. Pure. Not here: escaping for a language (HTML is the templates' own).
"""

from __future__ import annotations

import unicodedata

_KEEP = frozenset("\n\t")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def visible(text: str) -> str:
    """Control, format (bidi, zero-width) and private characters spelled out; everything else as it is."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in _KEEP or unicodedata.category(c) not in _HIDDEN_CATEGORIES else _spell(c) for c in text)


def visible_line(text: str) -> str:
    """As `visible`, for what must stay on its one line: a newline in a name would forge the next line."""
    return visible(text).replace("\n", "\\x0a").replace("\t", "\\x09")


def _spell(char: str) -> str:
    """Of one length for each kind, so that what follows can never be read as part of it."""
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
