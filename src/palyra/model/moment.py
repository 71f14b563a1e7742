"""A moment as people write it: a date, a time (UTC unless it says otherwise), Unix milliseconds, or how long ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_AGO = re.compile(r"([0-9]{1,6})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_UNIX_MS = re.compile(r"[0-9]{9,16}")
LAST_UNIX_MS = (1 << 53) - 1


def parse_moment(text: str, *, now_unix_ms: int) -> int:
    """Unix milliseconds; ValueError for what is not a time."""
    given = text.strip()
    if ago := _AGO.fullmatch(given):
        return max(0, now_unix_ms - int(ago[1]) * _SECONDS[ago[2]] * 1000)
    if _UNIX_MS.fullmatch(given):
        return min(int(given), LAST_UNIX_MS)
    try:
        at = datetime.fromisoformat(given)
        return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        raise ValueError(f"{given[:40]!r} is not a time") from None
