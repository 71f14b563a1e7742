"""The telling parts of URLs: userinfo, and query values whose names say that they are secret.

Rules: what tells (the URL's scheme and host, the parameter's name) is kept, the value is replaced. Names are
compared whole: `?tokenizer=` and `?design=` stay. A stand-in that is plainly no secret (`${TOKEN}`, `{token}`,
`<token>`, a placeholder of ours) stays too, so that source code and manuals can be read.

Not here: Authorization headers (headers); `password = …` outside URLs: prose and source code are full of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from palyra.late import late
from palyra.redact.verdict import OPEN, Hit, Verdict, Window, ends_of, swallow_run

STAND_IN: Final = late(
    rb"(?:\$\{[^}]*\}|\$\([^)]*\)|\$[A-Z_][A-Z0-9_]*|\{\{?[ \w.-]*\}?\}|<[ \w.-]+>|%\(\w+\)s|%[sv]|\*+|\.\.\.|"
    rb"\[redacted:[\w.-]+:[0-9]+\]|true|false|null|none|yes|no|[01])[)\]},.;:]*",
    re.IGNORECASE,
)


class UserInfo:
    """`https://user:pass@host`. A user alone is a secret for the web (tokens are sent so), a login name elsewhere."""

    signs: Final = (b"://", rb":\/\/")
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


_NAMES: Final = (
    "access_key access_token account_key api_key api_secret api_token app_secret assertion auth auth_key auth_token "
    "authorization bearer_token client_assertion client_secret credential credentials github_token id_token "
    "id_token_hint jwt oauth_token oauth_token_secret pass passphrase passwd password private_key private_token pwd "
    "refresh_token secret secret_access_key secret_key security_token session_id session_key session_token sig "
    "signature subscription_key token x_amz_security_token x_amz_signature x_api_key x_goog_signature"
).split()
"""Compared without case; "_" stands for itself, for "-" and for nothing."""


def _trie(names: set[str]) -> str:
    """One regex for all names that looks at each letter once."""
    branches = []
    for first in sorted({name[0] for name in names if name}):
        rest = _trie({name[1:] for name in names if name[:1] == first})
        branches.append((f"[{first}{first.upper()}]" if first.isalpha() else first) + rest)
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){'?' if '' in names else ''}"


def _query_anchor() -> bytes:
    names = {name.replace("_", sign) for name in _NAMES for sign in ("_", "-", "")}
    return rb"(?:\?|&(?:amp;)?|\\u0026|#(?=(?:access|id|refresh)_token=))%s=" % _trie(names).encode()


class QueryValues:
    """`?token=…`, `&password=…`, also behind `&amp;` and `\\u0026`, and in fragments as OAuth returns them."""

    signs: Final = (b"?", b"&", b"_token=", rb"\u0026")
    _anchor = late(_query_anchor)
    _value = late(rb"[^\x00-\x20\x7f&#\"'<>\\`|^]*+")
    _rest = staticmethod(swallow_run(_value))

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        # Where none of these is, the anchor cannot be: a cheaper search.
        if b"?" in data or b"&" in data or b"_token=" in data or rb"\u0026" in data:
            return ends_of(self._anchor, data, pos)
        return ()

    def judge(self, window: Window) -> Verdict:
        data, at = window.data, window.at
        found = self._value.match(data, at, window.stop)
        end = found.end() if found else at
        touches = end == window.stop
        if touches and not window.full:
            return OPEN
        value = data[at:end]
        if not value or STAND_IN.fullmatch(value):
            return None
        if touches and not window.ended:
            return Hit(kind="url-query", start=at, end=end, swallow=self._rest)
        bare = value.rstrip(b")]},.;:")
        return Hit(kind="url-query", start=at, end=at + len(bare)) if bare else None
