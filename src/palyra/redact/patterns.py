"""The shapes of keys: what clouds and forges hand out, recognised by prefix, alphabet and length.

Rules: every repetition is possessive and every shape begins at an edge, so that hostile text costs linear time and
a blob of base64 is not torn open by chance. A word that merely contains "token" or "sig" is no key.

Not here: values known in advance (known), private-key blocks (pem), headers and URLs (telling), the stream (stream).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from palyra.redact.verdict import OPEN, Hit, Verdict, Window, swallow_run

# Only single signs and sets are repeated possessively: Python 3.11.2 misplaces the end of a repeated group.


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One sign or set of signs, repeated."""

    unit: bytes
    least: int = 1
    most: int | None = 1

    def whole(self) -> bytes:
        return b"%s{%d,%s}+" % (self.unit, self.least, self._bound())

    def begun(self) -> bytes:
        return b"%s{0,%s}+" % (self.unit, self._bound())

    def _bound(self) -> bytes:
        return b"" if self.most is None else b"%d" % self.most


Pieces: TypeAlias = tuple[Piece, ...]


def text(literal: str) -> Pieces:
    return tuple(Piece(unit=re.escape(letter).encode()) for letter in literal)


def one(signs: str) -> Pieces:
    return (Piece(unit=signs.encode()),)


def run(signs: str, least: int, most: int | None = None) -> Pieces:
    return (Piece(unit=signs.encode(), least=least, most=most),)


def _full(pieces: Pieces) -> bytes:
    return b"".join(piece.whole() for piece in pieces)


def _begun(pieces: Pieces) -> bytes:
    """Every text that is a beginning of the shape, or the whole of it where more could belong to it."""
    pattern = b""
    for piece in reversed(pieces):
        pattern = b"(?:%s|%s%s)" % (piece.begun(), piece.whole(), pattern)
    return pattern


def _edges(before: bytes) -> bytes:
    """Where a key may begin: after `before`, an escape (\\n, \\u0026, %20), or a colour code as grep writes it."""
    colours = b"|".join(rb"(?<=\x1b\[%s[mK])" % (b"[0-9;]" * width) for width in range(17))
    escapes = rb"(?<=\\[abfnrtv0])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2})"
    return b"(?:%s|%s|(?<=[mK])(?:%s))" % (before, escapes, colours)


EDGE: Final = _edges(rb"(?<![A-Za-z0-9])")

# A JWT's own alphabet may not stand before it: else "-eyJ-eyJ-eyJ…" is read again from every "eyJ".
_JWT_EDGE = _edges(rb"(?<![A-Za-z0-9_-])")


class Form:
    """One shape at an anchor: what is kept (a name before the value) and what is secret."""

    def __init__(self, kind: str, secret: Pieces, *, keep: Pieces = ()) -> None:
        self.kind = kind
        self._whole = re.compile(_full(keep) + b"(?P<secret>" + _full(secret) + b")")
        self._begun = re.compile(_begun(keep + secret))
        self._rest = swallow_run(re.compile(secret[-1].unit + b"*+"))

    def judge(self, window: Window) -> Verdict:
        goes_on = self._begun.fullmatch(window.data, window.at, window.stop) is not None
        if goes_on and not window.full:
            return OPEN
        found = self._whole.match(window.data, window.at, window.stop)
        if found is None:
            return None
        start = found.start("secret")
        if goes_on and not window.ended:
            return Hit(kind=self.kind, start=start, end=window.stop, swallow=self._rest)
        return Hit(kind=self.kind, start=start, end=start + len(found["secret"].rstrip(b".")))  # a sentence's full stop


class Keys:
    """All forms that begin with (or, with `after`, follow) one of a few literals of equal meaning."""

    def __init__(
        self,
        anchors: Sequence[str],
        *forms: Form,
        search: str | None = None,
        after: bool = False,
        edge: bytes = EDGE,
    ) -> None:
        self.anchors = tuple(anchor.encode() for anchor in anchors)
        self.after = after
        self._forms = forms
        self._search = re.compile(search.encode()) if search is not None else None
        self._edge = re.compile(b"" if after else edge)

    def find(self, data: bytes, pos: int) -> Sequence[int]:
        if self._search is not None:
            return [found.start() for found in self._search.finditer(data, pos)]
        places: list[int] = []
        for anchor in self.anchors:
            shift = len(anchor) if self.after else 0
            at = data.find(anchor, max(0, pos - shift))
            while at >= 0:
                places.append(at + shift)
                at = data.find(anchor, at + 1)
        return places

    def judge(self, window: Window) -> Verdict:
        if self._edge.match(window.data, window.at) is None:
            return None
        verdicts = [form.judge(window) for form in self._forms]
        if OPEN in verdicts:
            return OPEN
        return next((verdict for verdict in verdicts if verdict is not None), None)


# ── The table ────────────────────────────────────────────────────────────────

_ALNUM = "[A-Za-z0-9]"
_WORD = "[A-Za-z0-9_]"
_URL64 = "[A-Za-z0-9_-]"
_DOTTED = "[A-Za-z0-9_.-]"
_GITLAB = "pat dt rt rtr cbt ptt ft imt agent soat oas ffct wt".split()
_SETTING = run(r"""[\\"'\] \t]""", 0, 8) + one("[:=]") + run(r"""[\\"' \t]""", 0, 8)
"""Between the name of a setting and its value: `=`, `: `, `": "`, `\\": \\"`."""

_JWT = text("eyJ") + run(_URL64, 8) + text(".") + run(_URL64, 6) + text(".") + run(_DOTTED, 0)
_OPENAI = tuple(
    Form("openai", text(f"sk-{name}-") + run(_URL64, 20)) for name in ("proj", "svcacct", "admin", "None", "or-v1")
)

# Families that share a first letter share one search, which costs less than one for each.
KEYS: Final = (
    Keys(["eyJ"], Form("jwt", _JWT), edge=_JWT_EDGE),
    Keys(
        ["AKIA", "ASIA", "AIza"],
        Form("aws", text("A") + one("[KS]") + text("IA") + run("[A-Z0-9]", 16)),
        Form("google", text("AIza") + run(_URL64, 35)),
        search="AKIA|ASIA|AIza",
    ),
    Keys(
        ["ecret_access_key", "ECRET_ACCESS_KEY", "ecretAccessKey"],
        Form("aws", run("[A-Za-z0-9/+]", 40), keep=_SETTING),
        after=True,
    ),
    Keys(
        ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", *(f"gl{name}-" for name in _GITLAB)],
        Form("github", text("gh") + one("[pousr]") + text("_") + run(_WORD, 36)),
        Form("github", text("github_pat_") + run(_WORD, 22)),
        Form("gitlab", text("gl") + run("[a-z]", 2) + text("-") + run(_DOTTED, 20)),
        search=f"g(?:h[pousr]_|ithub_pat_|l(?:{'|'.join(_GITLAB)})-)",
    ),
    Keys(
        [*(f"xox{letter}" for letter in "abcdeoprs"), "xapp-"],
        Form("slack", text("xox") + one("[abcdeoprs]") + text("-") + run("[A-Za-z0-9-]", 10)),
        Form("slack", text("xoxe.xox") + one("[bp]") + text("-") + run("[A-Za-z0-9-]", 10)),
        Form("slack", text("xapp-") + run("[A-Za-z0-9-]", 10)),
        search="xox[abcdeoprs]|xapp-",
    ),
    Keys(["hooks.slack.com/"], Form("slack", run("[A-Za-z0-9/_-]", 20)), after=True),
    Keys(["ya29."], Form("google", text("ya29.") + run(_URL64, 20))),
    Keys(["GOCSPX-"], Form("google", text("GOCSPX-") + run(_URL64, 24))),
    Keys(
        ["sk-"],
        Form("anthropic", text("sk-ant-") + run(_URL64, 20)),
        *_OPENAI,
        Form("openai", text("sk-") + run(_ALNUM, 32)),
    ),
    Keys(["npm_"], Form("npm", text("npm_") + run(_ALNUM, 36))),
    Keys(["_authToken="], Form("npm", run("[A-Za-z0-9_.+/=-]", 8)), after=True),
    Keys(["pypi-"], Form("pypi", text("pypi-AgE") + run(_URL64, 32))),
)
