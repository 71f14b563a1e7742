"""The words of a program, from a command line to a call: text, in whatever locale they were typed.

Not here: what the engine makes of them (protocol/process_input).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palyra.errors import Rejected


def input_of(argv: tuple[str, ...]) -> dict[str, object] | bytes:
    """Words that are not UTF-8 cannot be JSON: they go in as they are, and the engine refuses and records them."""
    words = [os.fsencode(word) for word in argv]
    try:
        command, *args = [word.decode("utf-8") for word in words]  # also where the locale is one of bytes
    except UnicodeDecodeError:
        return b" ".join(words)
    return {"command": command, "args": args}


def refuse_no_text(argv: tuple[str, ...]) -> Rejected | None:
    """That refusal for people, who wrote no JSON."""
    for at, word in enumerate(argv):
        try:
            os.fsencode(word).decode("utf-8")
        except UnicodeDecodeError:
            from palyra.errors import Reason, Rejected

            what = f"Argument {at}" if at else "The program's name"
            return Rejected(Reason.MALFORMED, f"{what} is not text in UTF-8.", "Give such a file another name.")
    return None
