"""What somebody wants of a skill, read out of a sentence or out of what a run did, with no guess that grants anything.

Rules: a host counts only where it is spelled out; one skill reaches one host, and two hosts are two wishes; a secret is
asked for only together with a host, and only to be added to its requests outside; a place to keep things only where the
words say so. Whatever is not understood costs nothing: the skill then has no capability for it.

Not here: the project made from it (candidate), a model's part (model_answer).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from palyra.skills.capabilities import check_host
from palyra.skills.findings import SkillRefused
from palyra.skills.manifest import check_publisher, check_skill_id
from palyra.skills.project import ProjectError

MAX_TEXT = 2000
PUBLISHER = "local"
"""Whose generated skills are, unless the wish is given an id."""

_URL = re.compile(r"\b(https?)://([^\s/?#\"'<>,;]+)(/[A-Za-z0-9._~/%+-]*)?", re.IGNORECASE)
_BARE = re.compile(
    r"(?<![\w@./:-])((?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,24})(/[A-Za-z0-9._~/%+-]*)?(?![\w@-])"
)
_FILES = frozenset("c cfg csv html js json lock log md pdf png py rs sh toml ts txt wasm wat xml yaml yml zip".split())
"""Endings of file names, which look like hosts."""
_KEEPS = re.compile(
    r"\b(cach\w*|keep\w*|remember\w*|stor(?:e|es|ing)|sav(?:e|es|ing)|persist\w*|offline)\b", re.IGNORECASE
)
_SECRET = re.compile(
    r"\b(api[ -]?key|token|credentials?|password|secret|log(?:ged)? in|authenticat\w+|authoriz\w+)\b", re.IGNORECASE
)
_WORD = re.compile(r"[a-z0-9]+")
_STOP = frozenset(
    "a an and api as at be by can for from get gets given i in into is it its make me my of on or our please shall "
    "should skill skills that the their them this to tool use uses using want which with would write "
    "https http www com org net".split()
)


class Shape(StrEnum):
    """What its first code does."""

    PASS = "pass"
    FETCH = "fetch"
    KEEP = "keep"
    FETCH_KEEP = "fetch-keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    text: str
    skill_id: str
    source: str = "template"
    """`template`, or `calls` when it was learned from a run."""
    host: str = ""
    """As a manifest spells it."""
    path: str = "/"
    """What every request's path begins with."""
    secret: bool = False
    keeps: bool = False

    @property
    def shape(self) -> Shape:
        if self.host:
            return Shape.FETCH_KEEP if self.keeps else Shape.FETCH
        return Shape.KEEP if self.keeps else Shape.PASS


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCall:
    """A call of a run, as far as its record tells."""

    tool: str
    url: str = ""
    """That palyra.http.fetch ended at."""


def parse_wish(text: str, *, skill_id: str = "") -> Wish:
    """Raises ProjectError for what no skill can be made of, SkillRefused for a bad id."""
    said = " ".join(unicodedata.normalize("NFC", text).split())
    if not said or len(said) > MAX_TEXT or not said.isprintable():
        raise ProjectError(f"A wish is a sentence of at most {MAX_TEXT} printable characters.")
    host, path = _one_host(_places(said))
    return Wish(
        text=said,
        skill_id=_id(skill_id, said),
        host=host,
        path=path,
        secret=bool(host and _SECRET.search(said)),
        keeps=bool(_KEEPS.search(said)),
    )


def learn_wish(calls: Sequence[SeenCall], *, run_id: str, skill_id: str = "") -> Wish:
    """What a run did over and over, as a wish: the one host its requests went to."""
    places = [place for call in calls if call.url for place in _places(call.url)]
    if not places:
        raise ProjectError(
            "No call of that run shows what a skill could do in its place.",
            "Skills are learned from completed calls of palyra.http.fetch; palyra skills propose TEXT takes words.",
        )
    host, _ = _one_host([(host, "/") for host, _ in places])
    path = _common([path for _, path in places])
    tools = ", ".join(sorted({call.tool for call in calls}))
    text = f"Does what {len(calls)} calls of run {run_id} did ({tools}): fetches pages below {path} of {host}."
    return Wish(text=text, skill_id=_id(skill_id, f"fetch {host} {path}"), source="calls", host=host, path=path)


def _places(said: str) -> list[tuple[str, str]]:
    """(host, path) of everything that is spelled out as an address, in order."""
    found = [(m.start(), _spelled(m[1].lower(), m[2].lower()), m[3] or "/") for m in _URL.finditer(said)]
    spans = [match.span() for match in _URL.finditer(said)]
    for match in _BARE.finditer(said):
        inside = any(start <= match.start() < end for start, end in spans)
        if not inside and match[1].rpartition(".")[2] not in _FILES:
            found.append((match.start(), match[1], match[2] or "/"))
    return [(host, path.rstrip(".")) for _, host, path in sorted(found)]


def _spelled(scheme: str, authority: str) -> str:
    host = authority.rstrip(".").removesuffix(":80" if scheme == "http" else ":443")
    return f"http://{host}" if scheme == "http" else host


def _one_host(places: Sequence[tuple[str, str]]) -> tuple[str, str]:
    hosts = list(dict.fromkeys(host for host, _ in places))
    if len(hosts) > 1:
        raise ProjectError(
            f"The wish names {len(hosts)} hosts: {', '.join(hosts)[:200]}.",
            "Propose one skill for each: what reaches one host cannot carry anything to another.",
        )
    if not hosts:
        return "", "/"
    try:
        return check_host(hosts[0], "host"), _common([path for _, path in places])
    except SkillRefused:
        raise ProjectError(
            f"{hosts[0][:100]!r} is not a host that can be granted.", "Spell it in lower case, as in api.example.com."
        ) from None


def _common(paths: Sequence[str]) -> str:
    """The folder that all of them lie in, or the one path there is."""
    if len(set(paths)) == 1:
        return paths[0]
    first, last = min(paths), max(paths)
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same].rpartition("/")[0] + "/"


def _id(given: str, said: str) -> str:
    if given:
        return check_skill_id(given, check_publisher(given.partition(".")[0]))
    words = [word for word in _WORD.findall(said.lower()) if word not in _STOP][:4]
    name = "-".join(words)[:40].strip("-") or "candidate"
    return check_skill_id(f"{PUBLISHER}.{name}", PUBLISHER)
