"""Patterns that are compiled when they are first asked for something.

`re.compile` at the top of a module is paid by every command that imports it, though most of them never come to the
text it is for: for a short command that is a tenth of its life. Once asked, a pattern of these is as fast as one of
the standard library's, whose own methods it then has.

Not here: patterns that every command needs at once, and those of `inside`, which has only the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, AnyStr, Generic, cast

_ASKED = ("fullmatch", "match", "search", "finditer", "findall", "sub", "subn", "split", "pattern", "flags", "groups")


class _Late(Generic[AnyStr]):
    def __init__(self, pattern: AnyStr | Callable[[], AnyStr], flags: int) -> None:
        self._pattern: AnyStr | Callable[[], AnyStr] = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Only for what is not there yet: from the first time on it is found without asking here."""
        if name not in _ASKED:
            raise AttributeError(name)
        made = re.compile(self._pattern() if callable(self._pattern) else self._pattern, self._flags)
        self.__dict__.update({known: getattr(made, known) for known in _ASKED})
        return getattr(made, name)


def late(pattern: AnyStr | Callable[[], AnyStr], flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile`, put off. A mistake in the pattern shows at its first use; a test compiles every one."""
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags))
