"""`curl -u user:password`, also in the argument lists that programs print: `["curl","-u","user:password"]`.

Rules: the option stays, user and password go. Behind curl any password counts; of another program only one that looks
secret: `docker run -u node:node` and `--user 1000:1000` name groups.

Not here: userinfo of URLs (urls); `--password VALUE` (named).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palyra.late import late
from palyra.redact.judged_value import is_stand_in, looks_secret
from palyra.redact.verdict import CONTEXT, OPEN, Hit, Verdict, Window, line_end, swallow_run

_OPTION: Final = (
    rb"-(?:(?<=[\s\"'`]-)(?:(?P<alone>[uU]|-(?:proxy-)?user)|[A-Za-z]{1,6}[uU]))"
    rb"(?:[ \t]{1,8}|=|\\{0,3}[\"'],[ \t\r\n]{0,24}|)"
)


class Logins:
    signs: Final = (b"-u", b"curl")
    words: Final = (b"-u", b"curl")
    _anchor = late(_OPTION + rb"(?=[^\s=,-])")
    _curl = late(rb"(?:\A|[^\w-])curl(?:\.exe)?(?![\w.-])")
    _opening = late(rb"\\{0,3}[\"'`]")
    _login = late(rb"(?P<user>[^\s:/\"'`]{1,64}):(?P<password>.+)")
    _word = late(rb"[^\s\"'`\\]*+")
    _rest = staticmethod(swallow_run(_word))

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        found = self._anchor.finditer(data, max(0, pos - CONTEXT))
        return [
            one.end() for one in found if one.end() >= pos and (one["alone"] or self._is_behind_curl(data, one.end()))
        ]

    def judge(self, window: Window) -> Verdict:
        data, at = window.data, window.at
        end = line_end(window)
        if end is None:
            return OPEN
        opening = self._opening.match(data, at, end)
        if opening is not None:
            at = opening.end()
            close = data.find(opening.group(), at, end)
            stop = close if close >= 0 else end
        else:
            word = self._word.match(data, at, end)
            stop = word.end() if word else at
        found = self._login.fullmatch(data, at, stop)
        if found is None or not self._is_secret(data, window.at, found["user"], found["password"]):
            return None
        endless = stop == window.stop and not window.ended
        return Hit(kind="login", start=at, end=stop, swallow=self._rest if endless else None)

    def _is_secret(self, data: bytes, at: int, user: bytes, password: bytes) -> bool:
        if is_stand_in(password) or (user.isdigit() and password.isdigit()):
            return False
        return self._is_behind_curl(data, at) or looks_secret(password, is_text=True)

    def _is_behind_curl(self, data: bytes, at: int) -> bool:
        return self._curl.search(data, max(0, at - CONTEXT), at) is not None


def is_login(option: str, value: str, *, by_curl: bool) -> bool:
    """The same of an argument and the one before it, in a list."""
    if option not in ("-u", "-U", "--user", "--proxy-user"):
        return False
    user, sign, password = value.encode("utf-8", "surrogatepass").partition(b":")
    if not (sign and user and password) or is_stand_in(password) or (user.isdigit() and password.isdigit()):
        return False
    return by_curl or looks_secret(password, is_text=True)
