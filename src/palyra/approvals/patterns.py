"""Patterns over a program's arguments: an explicit, shown widening of one approval.

Rules: one pattern word matches one argument; `*` inside a word stands for any characters of it, `\\*` for a star; at
its beginning it does not stand for the dash of an option, which would make the program do something else; a last word
`**` stands for any further arguments, options too. The program itself is named in full, and a pattern that opens
everything is refused: it would be an approval of the program alone. Nothing but the arguments is ever open.
"""

from __future__ import annotations

import re
from functools import lru_cache

from palyra.errors import Reason, Rejected

REST = "**"
MAX_WORDS = 129
MAX_WORD_CHARS = 4096
MAX_STARS = 3


def check_pattern(words: tuple[str, ...], program: str) -> None:
    if not words or words[0] != program:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"A pattern begins with the program itself, {program}, spelled in full.",
            f"For example: --pattern '{program} ARG *', where * stands for any one argument.",
        )
    if len(words) > MAX_WORDS or any(len(word) > MAX_WORD_CHARS for word in words):
        raise Rejected(Reason.BAD_ARGUMENTS, "The pattern is too long.")
    if any(word.count("*") > MAX_STARS for word in words):  # each one more multiplies the time a match may take
        raise Rejected(Reason.BAD_ARGUMENTS, f"A word of a pattern has at most {MAX_STARS} stars.")
    if REST in words[:-1]:
        raise Rejected(Reason.BAD_ARGUMENTS, "`**` stands for all further arguments, so it is the last word.")
    if words[1:] and not any(word.strip("*") for word in words[1:]):
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "This pattern leaves every argument open: that would approve the program with any arguments.",
            "Spell out the arguments that matter.",
        )


def matches(words: tuple[str, ...], argv: tuple[str, ...]) -> bool:
    if words and words[-1] == REST:
        words, argv = words[:-1], argv[: len(words) - 1]
    return len(words) == len(argv) and all(
        _compiled(word).fullmatch(text) is not None for word, text in zip(words, argv, strict=True)
    )


@lru_cache(maxsize=256)
def _compiled(word: str) -> re.Pattern[str]:
    parts = re.split(r"(\\\*|\*+)", word)
    spelled = (".*" if part and not part.strip("*") else re.escape(part.replace("\\*", "*")) for part in parts)
    no_option = "(?!-)" if word.startswith("*") else ""
    return re.compile(no_option + "".join(spelled), re.DOTALL)
