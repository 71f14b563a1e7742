"""`Authorization:` and `Proxy-Authorization:`: as a header line, in quotes (curl -H '…'), or as a key and a value, as
languages print them: `map[Authorization:[Bearer …]]`, `"Authorization" => "…"`, `('Authorization', 'Bearer …')`.

Rules: the header's name and its scheme are kept, the credentials are replaced. Behind a known scheme, at the start
of a line and between quotes the value counts as credentials; elsewhere (types and expressions in source code) only
what looks like one. Prose, templates and placeholders of ours stay. A header is judged when its line is complete.

Not here: other headers (fields), URLs (urls).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from palyra.late import late
from palyra.redact.patterns import EDGE
from palyra.redact.verdict import OPEN, STAND_IN, Hit, Verdict, Window, ends_of, line_end, swallow_run

_NAME: Final = (
    rb"(?P<before>\\{0,3}[\"'])?%s(?P<name>(?:(?i:proxy)[-_])?(?i:authorization))"
    rb"(?P<after>\\{0,3}[\"'])?\]?[ \t]{0,4}[:=,]"
) % EDGE
_LONGEST_NAME: Final = 48
_NAMES: Final = (b"authorization",)
_BEFORE_NAME: Final = 10
"""What may belong to it: a quote and its backslashes, `proxy-`."""
_ANCHOR = late(rb"[uU](?i:thorization)(?:(?:\\{0,3}[\"'])?\]?[ \t]{0,4}[:=]|\\{0,3}[\"'][ \t]{0,4},)")
"""The end of the name, quick to search for; the whole of it is looked at when the value is judged."""
_ENDING = late(_NAME + rb"\Z")

_OPENING = late(rb"[ \t]*(?P<list>\[[ \t]*)?(?:[bfruBFRU]{0,2}(?P<quote>\\{0,3}[\"'`]))?[ \t]*")
_ONE_TOKEN = late(rb"(?:basic|bearer|token|negotiate|ntlm|api-?key|key|aws|sharedkey(?:lite)?)[ \t]+", re.IGNORECASE)
_PARAMETERS = late(rb"(?:digest|oauth|hawk|mac|signature|aws4-[\w-]++|goog4-[\w-]++|googlelogin)[ \t]+", re.IGNORECASE)
_TOKEN68 = late(rb"[A-Za-z0-9._~+/-][^\s\"'\\,;`<>]*+")
_LOOKS_SECRET = late(
    rb"(?:[A-Za-z][\w-]{0,30}[ \t]+)?(?P<token>(?=[\w.~+/=:|-]{0,64}[0-9])[\w.~+/=:|-]{12,}+)(?![(\[])"
)
_EXPRESSION = late(rb"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_WORD = late(rb"[A-Za-z]{1,12}")
_LONG: Final = 12
"""Of a token that only a comma parts from its name: `"Authorization", "Basic auth"` are two texts."""


class Authorization:
    signs: Final = (b"thorization",)
    words: Final = (b"authorization",)
    _rest = staticmethod(swallow_run(late(rb"[^\r\n\"']*+")))

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        return ends_of(_ANCHOR, data, pos)

    def judge(self, window: Window) -> Verdict:
        data, at = window.data, window.at
        end = line_end(window)
        if end is None:
            return OPEN
        name = name_before(_ENDING, _NAMES, window, longest=_LONGEST_NAME)
        if name is None:
            return None
        span = credentials(data[at:end], name, at_start=starts_line(data, name.start()))
        if span is None:
            return None
        endless = at + span[1] == window.stop and not window.ended
        return Hit(kind="authorization", start=at + span[0], end=at + span[1], swallow=self._rest if endless else None)


def name_before(
    ending: re.Pattern[bytes], names: tuple[bytes, ...], window: Window, *, longest: int
) -> re.Match[bytes] | None:
    """What `ending` finds right before the candidate, where one of these names (in small letters, longest first) ends.
    Told by the end alone: a line full of names must not have the pattern tried at each place before each of them."""
    data, at = window.data, window.at
    begin = max(0, at - longest)
    stem = data[begin : at - 1].rstrip(b" \t]\\\"'=").lower()
    for name in names if stem.endswith(names) else ():
        if stem.endswith(name):
            return ending.search(data, max(begin, begin + len(stem) - len(name) - _BEFORE_NAME), at)
    return None


_PREFIX = late(rb"(?:\A|[\r\n])(?:[><|+-][ \t]?)?\Z")


def starts_line(data: bytes, at: int) -> bool:
    """First on its line, or behind an arrow of `curl -v`, the sign of a diff or of a quotation."""
    return _PREFIX.search(data, max(0, at - 3), at) is not None


def credentials(line: bytes, name: re.Match[bytes], *, at_start: bool) -> tuple[int, int] | None:
    """Where in the rest of the line behind the name the credentials stand."""
    paired = is_paired(line, name)
    if paired and not name["after"]:
        return None
    opening = _OPENING.match(line, line[:1] == b">" and bool(paired))
    begin = opening.end() if opening else 0
    quote = (opening.group("quote") if opening else None) or (None if name["after"] else name["before"])
    end = _closing(line, begin, quote) if quote else len(line.rstrip())
    if line[begin : begin + 1] in (b"=", b":", b">"):
        return None
    scheme = _PARAMETERS.match(line, begin, end)
    if scheme is not None:
        return (scheme.end(), end) if b"=" in line[scheme.end() : end] else None
    scheme = _ONE_TOKEN.match(line, begin, end)
    if scheme is not None:
        found = _one_token(line, scheme.end(), end)
        return found if paired != b"," or (found and found[1] - found[0] >= _LONG) else None
    if paired == b",":
        return None  # a list of names of headers: "Authorization", "Content-Type"
    if quote or (at_start and not (opening and opening["list"])):
        return _whole_value(line, begin, end, keyword=not quote and not name["name"].islower())
    looks = _LOOKS_SECRET.match(line, begin, end)
    if looks is None or _EXPRESSION.fullmatch(looks["token"]):
        return None
    return looks.span("token")


def is_paired(line: bytes, name: re.Match[bytes]) -> bytes:
    """By which sign, other than a header's own, name and value stand beside each other; empty for `:` and `=`."""
    sign = name.group()[-1:]
    if sign == b",":
        return sign
    return b"=>" if sign == b">" or (sign == b"=" and line[:1] == b">") else b""


def _closing(line: bytes, begin: int, quote: bytes) -> int:
    found = _closing_quote(quote).search(line, begin)
    return found.start() if found else len(line.rstrip())


@lru_cache(maxsize=32)
def _closing_quote(quote: bytes) -> re.Pattern[bytes]:
    """Of each of the three, with up to three backslashes."""
    return re.compile(rb"(?<!\\)" + re.escape(quote))


def _one_token(line: bytes, begin: int, end: int) -> tuple[int, int] | None:
    found = _TOKEN68.match(line, begin, end)
    if found is None:
        return None
    bare = found.group().rstrip(b")]}")
    return (begin, begin + len(bare)) if bare.lower() != b"token" else None


def _whole_value(line: bytes, begin: int, end: int, *, keyword: bool) -> tuple[int, int] | None:
    """A value without a known scheme. `keyword`: it stands where even a plain word can be one."""
    value = line[begin:end].strip()
    words = value.split()
    if not words or STAND_IN.fullmatch(words[-1]) or value[:1] in (b"{", b"$", b"<", b"%"):
        return None
    if len(words) > 2 and b"=" not in value:
        return None
    if not keyword and _WORD.fullmatch(value.rstrip(b",;")):
        return None
    return begin, begin + len(line[begin:end].rstrip())
