"""The first question about a short text: whether any detector would look at it at all. One search answers it.

Where no literal that a detector starts from stands, nothing is found; asking each detector by itself takes many
times as long as a short text is worth. Compiling the one pattern takes as long as some hundred answers, so that a
short command does without. A long text is searched faster literal by literal. Not here: the detectors (stream).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from palyra.redact.verdict import Detector

SHORT_BYTES = 512
ASKED_BEFORE_COMPILED = 200


class Signs:
    """Those of some detectors together."""

    def __init__(self, detectors: Iterable[Detector]) -> None:
        self._detectors = tuple(detectors)
        self._asked = 0
        self._pattern: re.Pattern[bytes] | None = None

    def are_none_in(self, data: bytes) -> bool:
        """False may also mean: not sure."""
        if len(data) > SHORT_BYTES:
            return False
        if self._pattern is None:
            self._asked += 1
            if self._asked < ASKED_BEFORE_COMPILED:
                return False
            self._pattern = compile_signs({sign.lower() for one in self._detectors for sign in one.signs})
        return self._pattern.search(data.lower()) is None


def compile_signs(signs: set[bytes]) -> re.Pattern[bytes]:
    """One pattern that looks at each byte once; what goes on from another sign needs no branch of its own."""
    return re.compile(_branches(signs))


def _branches(signs: set[bytes]) -> bytes:
    if b"" in signs:
        return b""
    firsts = sorted({sign[:1] for sign in signs})
    branches = [re.escape(first) + _branches({sign[1:] for sign in signs if sign[:1] == first}) for first in firsts]
    return branches[0] if len(branches) == 1 else b"(?:%b)" % b"|".join(branches)
