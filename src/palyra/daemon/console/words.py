"""How values read on a page: times, sizes, durations, ids, states. Pure: values in, words out.

Rules: a state is always a word, never a colour alone; a moment is UTC and says so; text of others is bounded here and
made visible by the templates' own `finalize`, which no page can forget. Not here: escaping (the templates).
"""

from __future__ import annotations

from datetime import UTC, datetime

import orjson

from palyra.canon import Json
from palyra.model.visible import spell_spaces
from palyra.values import dataclass

MAX_TEXT_CHARS = 64 * 1024
"""Of one text on a page: a line of a megabyte would keep a browser busy for seconds."""
MAX_LINES = 2000

_TONES = {
    "good": "completed approved active ok allow allowed sound held running granted trusted exited pass promoted",
    "bad": "refused denied broken failed fail timeout trapped tampered forbid deny error lost killed interrupted "
    "revoked",
    "warn": "pending pending_approval waiting ask advice quarantined quota_exceeded out_of_fuel expired degraded warn",
}
_TONE_OF = {word: tone for tone, words in _TONES.items() for word in words.split()}
_SIGNS = {"good": "●", "bad": "✕", "warn": "▲", "plain": "○"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A state as it is shown: a sign, a word and a tone; each says the same."""

    word: str
    tone: str
    sign: str


def mark(state: object) -> Mark:
    word = str(state)
    tone = _TONE_OF.get(word, "plain")
    return Mark(word=word.replace("_", " "), tone=tone, sign=_SIGNS[tone])


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A text cut to what a page bears."""

    text: str
    cut: bool
    chars: int
    lines: int


def bounded(text: str, max_chars: int = MAX_TEXT_CHARS, max_lines: int = MAX_LINES) -> Shown:
    part = text[:max_chars]
    lines = part.split("\n")
    part = "\n".join(lines[:max_lines])
    return Shown(text=part, cut=len(part) < len(text), chars=len(text), lines=text.count("\n") + bool(text))


def short(text: object, chars: int = 96) -> str:
    """For a cell: the beginning, and that there is more."""
    whole = str(text)
    return whole if len(whole) <= chars else f"{whole[: chars - 1]}…"


def moment(unix_ms: int | None) -> str:
    if unix_ms is None:
        return "–"
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a clock that was far off, or a row somebody wrote
        return f"{unix_ms} ms"


def covered(scope: object) -> str:
    """What an approval of this scope lets through, in the words of the form that gives it."""
    return {"once": "this one call", "run": "such calls of its run"}.get(str(scope), "such calls of any run")


def iso(unix_ms: int) -> str:
    """For `datetime=` of a time element."""
    return f"{moment(unix_ms).replace(' ', 'T')}Z"


def clock(unix_ms: int) -> str:
    return moment(unix_ms)[11:16]


def ago(unix_ms: int | None, now_unix_ms: int) -> str:
    if unix_ms is None:
        return "–"
    gap_s = (now_unix_ms - unix_ms) // 1000
    return f"in {_span(-gap_s)}" if gap_s < 0 else "now" if gap_s < 2 else f"{_span(gap_s)} ago"


def _span(seconds: int) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"


def duration(us: int | None) -> str:
    if us is None:
        return "–"
    if us < 1000:
        return f"{us} µs"
    if us < 1_000_000:
        return f"{us / 1000:.1f} ms" if us < 100_000 else f"{us // 1000} ms"
    if us < 120_000_000:
        return f"{us / 1_000_000:.1f} s"
    return f"{us // 60_000_000} min {us // 1_000_000 % 60} s"


def size(count: int | None) -> str:
    if count is None:
        return "–"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def number(count: int | None) -> str:
    return "–" if count is None else f"{count:,}".replace(",", "\u202f")


def amount(name: str, value: int | None) -> str:
    """A budget's figure in its own unit."""
    if value is None:
        return "no limit"
    if name.endswith("_us"):
        return duration(value)
    return size(value) if name.endswith("_bytes") else number(value)


def argv(words: object) -> str:
    """Each word apart and quoted, so that none can look like two, or like the next line."""
    if not isinstance(words, list | tuple):
        return ""
    return " ".join(quoted(str(word)) for word in words)


def quoted(word: str) -> str:
    safe = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{spell_spaces(safe)}"'


def pretty(value: Json) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
