"""Header fields other than Authorization that carry credentials: `X-API-Key:` and its like, `Cookie:`, `Set-Cookie:`.

Rules: the field's name stays. Names are compared whole, from a list: `X-Cache-Key`, `Idempotency-Key` and words that
merely contain "key" or "token" are no credentials. Of a cookie that is set, its name and attributes stay too. What
counts as a value is judged as for Authorization: prose, templates and expressions stay.

Not here: Authorization (headers), names in URLs (urls), keys known by their shape (vendors).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palyra.late import late
from palyra.redact.headers import credentials, name_before, starts_line
from palyra.redact.patterns import EDGE
from palyra.redact.verdict import CONTEXT, OPEN, STAND_IN, Hit, Verdict, Window, ends_of, line_end, swallow_run

_NAMES: Final = (
    "x-api-key x-api-token x-auth-token x-auth-key x-access-token x-session-token x-csrf-token x-xsrf-token "
    "x-vault-token x-gitlab-token x-goog-api-key x-amz-security-token x-functions-key x-shopify-access-token "
    "x-rapidapi-key x-token x-secret-key private-token job-token deploy-token api-key "
    "ocp-apim-subscription-key circle-token dd-api-key dd-application-key fastly-key x-access-key"
).split()
_BEFORE: Final = rb"(?P<before>\\{0,3}[\"'])?%s" % EDGE
_QUOTED: Final = rb"(?:\\{0,3}[\"'])?\]?[ \t]{0,4}"
_BEHIND: Final = _QUOTED.replace(b"(?:", b"(?P<after>", 1)
_SIGN: Final = rb"(?::|=>)"
_LONGEST_NAME: Final = CONTEXT - 8


_COOKIES: Final = (b"set-cookie2", b"set-cookie", b"cookie")


class KeyFields:
    signs: Final = (b"-key", b"-token")
    words: Final = (b"key", b"token")
    _names = b"|".join(name.encode() for name in sorted(_NAMES, key=len, reverse=True))
    _anchor = late(rb"-(?:[kK](?:ey|EY)|[tT](?:oken|OKEN))" + _QUOTED + _SIGN)
    """Begins with a single letter, which the search is quick to find."""
    _ending = late(_BEFORE + rb"(?P<name>(?i:" + _names + rb"))" + _BEHIND + _SIGN + rb"\Z")
    _endings = tuple(_names.split(b"|"))
    _rest = staticmethod(swallow_run(late(rb"[^\r\n\"']*+")))

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        return ends_of(self._anchor, data, pos)

    def judge(self, window: Window) -> Verdict:
        data, at = window.data, window.at
        name = name_before(self._ending, self._endings, window, longest=_LONGEST_NAME)
        if name is None:
            return None
        end = line_end(window)
        if end is None:
            return OPEN
        span = credentials(data[at:end], name, at_start=starts_line(data, name.start()))
        if span is None:
            return None
        endless = at + span[1] == window.stop and not window.ended
        return Hit(kind="key-field", start=at + span[0], end=at + span[1], swallow=self._rest if endless else None)


class Cookies:
    """`Cookie: a=1; b=2` loses all of it, `Set-Cookie: a=1; Path=/` the value, a list all behind its bracket."""

    signs: Final = (b"cookie",)
    words: Final = (b"cookie",)
    _anchor = late(rb"[cC](?:ookie|OOKIE)2?" + _QUOTED + _SIGN)
    _ending = late(_BEFORE + rb"(?P<name>(?i:set-cookie2?|cookie))" + _BEHIND + _SIGN + rb"\Z")
    _opening = late(rb"[ \t]*(?P<list>\[[ \t]*)?(?:\\{0,3}[\"'`])?[ \t]*")
    _listed = late(rb"[\w!#$%&*+.^~-]{1,128}=[^\]\r\n]*(?<![\s\"'`\\])")
    _pair = rb"[\w!#$%&*+.^~-]{1,128}=[^\s;,\"'\\`<>]*+"
    _pairs = late(_pair + rb"(?:;[ \t]*" + _pair + rb")*")
    _first = late(rb"[\w!#$%&*+.^~-]{1,128}=(?P<value>[^\s;,\"'\\`<>]++)")
    _rest = staticmethod(swallow_run(late(rb"[^\s;,\"'\\`<>]*+")))

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        return ends_of(self._anchor, data, pos)

    def judge(self, window: Window) -> Verdict:
        data, at = window.data, window.at
        name = name_before(self._ending, _COOKIES, window, longest=_LONGEST_NAME)
        if name is None:
            return None
        end = line_end(window)
        if end is None:
            return OPEN
        begin, listed = at, False
        if (opening := self._opening.match(data, at, end)) is not None:
            begin, listed = opening.end(), opening["list"] is not None
        setting = name["name"].lower() != b"cookie" and not listed
        pairs = self._listed if listed else self._pairs
        found = (self._first if setting else pairs).match(data, begin, end)
        if found is None:
            return None
        values = () if listed else found.group().split(b";")  # a list goes on behind its first: it is not read again
        if values and all(STAND_IN.fullmatch(pair.partition(b"=")[2]) for pair in values):
            return None
        start, stop = found.span("value" if setting else 0)
        endless = stop == window.stop and not window.ended
        return Hit(kind="cookie", start=start, end=stop, swallow=self._rest if endless else None)
