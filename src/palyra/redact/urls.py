"""The telling parts of URLs: userinfo, values whose parameter's name calls them secret, segments behind such a name.

Rules: what tells (the URL's scheme and host, the parameter's name) is kept, the value is replaced. Names are decoded
(`pass%77ord`, `user%5Bpassword%5D`), and their last part decides: `?tokenizer=` and `?design=` stay. A separator may be
encoded, once or more, as in a URL within a URL (`%3Ftoken%3D`). A stand-in that is plainly no secret stays.

Not here: Authorization headers (headers); names outside of a query, such as `;token=` and `#password=` (named).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote_to_bytes

from palyra.late import late
from palyra.redact.judged_value import Row, is_secret_parameter, is_secret_segment
from palyra.redact.named import name_of
from palyra.redact.verdict import CONTEXT, OPEN, STAND_IN, Hit, Verdict, Window, swallow_run


class UserInfo:
    """`https://user:pass@host`. A user alone is a secret for the web (tokens are sent so), a login name elsewhere."""

    signs: Final = (b"://", rb":\/\/")
    words: Final = ()
    _authority = late(rb"[^\x00-\x20\x7f/?#\"<>\\`]*+")
    _signed = late(rb":(?://|\\/\\/)(?=[^\x00-\x20\x7f/?#\"<>\\`@]*+@)")
    _closing = late(rb"'(?:[\])}:;,.+&|]|\Z)")
    _scheme = late(rb"(?:https?|wss?|git)(?::|$)", re.IGNORECASE)
    _logins: Final = frozenset({b"git", b"anonymous"})

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        """URLs with an "@" in their authority, and the last one, whose authority may go on in the next chunk."""
        if not (b"://" in data or rb":\/\/" in data):
            return ()
        start = max(0, pos - 5)
        places = [at + len(mark) for mark in self.signs if (at := data.rfind(mark, start)) >= 0]
        if b"@" in data:
            places += [found.end() for found in self._signed.finditer(data, start)]
        return [at for at in places if at >= pos]

    def judge(self, window: Window) -> Verdict:
        data, at = window.data, window.at
        authority = self._authority.match(data, at, window.stop)
        end = authority.end() if authority else at
        if end == window.stop and not window.full:
            return OPEN
        closing = self._closing.search(data, at, end)
        sign = data.rfind(b"@", at, closing.start() if closing else end)
        if sign <= at:
            return None
        user, _, password = data[at:sign].partition(b":")
        if not password and not self._is_token(data, at, user):
            return None
        if STAND_IN.fullmatch(password or user):
            return None
        return Hit(kind="url-userinfo", start=at, end=sign)

    def _is_token(self, data: bytes, at: int, user: bytes) -> bool:
        before = data[max(0, at - 24) : at].rstrip(rb"\/")
        scheme = re.search(rb"[A-Za-z0-9+.-]*:\Z", before)
        return user not in self._logins and scheme is not None and self._scheme.match(scheme.group()) is not None


_WHOLE_NAMES: Final = frozenset(
    name.replace("_", "").encode()
    for name in (
        "access_key access_token account_key api_key api_secret api_token app_secret assertion auth auth_key "
        "auth_token authorization bearer_token client_assertion client_secret credential credentials github_token "
        "id_token id_token_hint jwt oauth_token oauth_token_secret pass passphrase passwd password private_key "
        "private_token pwd refresh_token secret secret_access_key secret_key security_token session_id session_key "
        "session_token sig signature subscription_key token x_amz_security_token x_amz_signature x_api_key "
        "x_goog_signature"
    ).split()
)
"""Any value of these is secret; compared without case, "_" and "-"."""
_LOOKS_NAMES: Final = frozenset({b"code", b"sid", b"state"})
_SIGN: Final = rb"(?:\?|&(?:amp;)?|\\u0026|#(?=(?:access|id|refresh)_token=))"
_INNER_SIGN: Final = rb"%(?:25)*(?:3[fFbB]|2[36])"


@lru_cache(maxsize=1024)
def _row_of(name: bytes) -> Row | None:
    """By which table a parameter's value is judged."""
    name = unquote_to_bytes(unquote_to_bytes(name)).removesuffix(b"[]").rstrip(b"]")
    if name.lower().translate(None, b"_-") in _WHOLE_NAMES:
        return Row.ANY
    if name.lower() in _LOOKS_NAMES:
        return Row.LOOKS
    found = name_of(name)
    return None if found is None or (found.is_plural and found.row is Row.LOOKS) else Row.NAMED


class QueryValues:
    """`?token=…`, `&user[password]=…`, also behind `&amp;`, `\\u0026` and `%26`, and in fragments as OAuth has them."""

    signs: Final = (b"?", b"&", b"_token=", rb"\u0026", b"%")
    words: Final = ()
    _anchor = late(_SIGN + rb"(?P<name>[^\x00-\x20\x7f=&?#\"'<>`|^{}()]{1,64})=")
    _inner_anchor = late(
        _INNER_SIGN + rb"(?P<name>(?:[\w.~\[\]-]|%(?:25)*[4-7][0-9A-Fa-f]){1,64})(?:=|%(?:25)*3[dD])",
    )
    _value = late(rb"[^\x00-\x20\x7f&#\"'<>\\`|^]*+")
    _inner_end = late(_INNER_SIGN)
    _rest = staticmethod(swallow_run(_value))

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        # Where none of these is, the anchor cannot be: a cheaper search.
        places: list[int] = []
        if b"?" in data or b"&" in data or b"#" in data or b"\\" in data:
            places += self._named(self._anchor, data, pos)
        if b"%" in data:
            places += self._named(self._inner_anchor, data, pos)
        return places

    @staticmethod
    def _named(anchor: re.Pattern[bytes], data: bytes, pos: int) -> list[int]:
        found = anchor.finditer(data, max(0, pos - CONTEXT))
        return [one.end() for one in found if one.end() >= pos and _row_of(one["name"]) is not None]

    def judge(self, window: Window) -> Verdict:
        data, at = window.data, window.at
        found = self._value.match(data, at, window.stop)
        end = found.end() if found else at
        if end == window.stop and not window.full:
            return OPEN
        touches = end == window.stop and not window.ended
        row, is_inner = self._name_before(data, at)
        inner_end = self._inner_end.search(data, at, end) if is_inner else None
        if inner_end is not None:
            end, touches = inner_end.start(), False
        value = data[at:end]
        if row is None or not value or STAND_IN.fullmatch(value) or not is_secret_parameter(row, value):
            return None
        if touches:
            return Hit(kind="url-query", start=at, end=end, swallow=self._rest)
        bare = value.rstrip(b")]},.;:")
        return Hit(kind="url-query", start=at, end=at + len(bare)) if bare else None

    def _name_before(self, data: bytes, at: int) -> tuple[Row | None, bool]:
        begin = max(0, at - CONTEXT)
        for anchor in (self._anchor, self._inner_anchor):
            for found in anchor.finditer(data, begin, at):
                if found.end() == at and (row := _row_of(found["name"])) is not None:
                    return row, anchor is self._inner_anchor
        return None, False


_ENDS: Final = {
    **{noun: (noun + b"/", noun + b"s/") for noun in (b"token", b"secret", b"key", b"credential", b"session")},
    b"pass": (b"password/", b"passwords/"),
    **{verb: (verb,) for verb in (b"hooks/", b"reset/", b"invite/", b"verify/", b"confirm/", b"magic/")},
}
"""How a telling segment ends, by a word that is searched for anyway."""
_LONGEST_PREFIX: Final = 52


class PathSegments:
    """`/reset/token/VALUE`: a segment that names the next one, where that looks secret."""

    signs: Final = tuple(_ENDS)
    words: Final = tuple(_ENDS)
    _before = late(rb"/(?:[A-Za-z0-9]{1,16}[_-]){0,3}\Z")
    _value = late(rb"[A-Za-z0-9_~.=%+-]*+")
    _rest = staticmethod(swallow_run(_value))

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        low = data.lower()
        return self.find_among([word for word in self.words if word in low], data, low, pos)

    def find_among(self, words: Sequence[bytes], data: bytes, low: bytes, pos: int) -> Sequence[int]:
        places, begin = [], max(0, pos - CONTEXT)
        for end_word in {end for word in words for end in _ENDS.get(word, ())}:
            at = low.find(end_word, begin)
            while at >= 0:
                end = at + len(end_word)
                if end >= pos and self._before.search(data, max(0, at - _LONGEST_PREFIX), at):
                    places.append(end)
                at = low.find(end_word, end)
        return places

    def judge(self, window: Window) -> Verdict:
        data, at = window.data, window.at
        found = self._value.match(data, at, window.stop)
        end = found.end() if found else at
        if end == window.stop and not window.full:
            return OPEN
        bare = data[at:end].rstrip(b".")
        if not is_secret_segment(bare):
            return None
        endless = end == window.stop and not window.ended
        end = end if endless else at + len(bare)
        return Hit(kind="url-path", start=at, end=end, swallow=self._rest if endless else None)
