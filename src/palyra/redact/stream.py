"""The redactor: bytes in, the same bytes out with every secret replaced by `[redacted:kind:N]`.

Rules: (1) colour codes are set aside, then known values are looked for, then headers, URLs, key blocks and key shapes;
(2) any split of the stream into chunks gives the same text and the same counts; (3) what cannot belong to a secret is
released at once, what may is held back, at most `CAP` bytes for a candidate; (4) N is a counter, the same for the same
value, never a digest: a digest of a short secret can be guessed; (5) every other byte is preserved.

Not here: texts and JSON values (values), what a secret looks like (patterns, pem, headers, urls), which values are
known (the vault).
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from palyra.late import late
from palyra.redact.colours import Colours, Mark, Track, put_back, taken
from palyra.redact.fields import Cookies, KeyFields
from palyra.redact.headers import Authorization
from palyra.redact.known import KnownValues
from palyra.redact.logins import Logins
from palyra.redact.named import KIND as NAMED
from palyra.redact.named import NamedValues
from palyra.redact.patterns import EDGE
from palyra.redact.pem import PrivateKeys
from palyra.redact.signs import Signs
from palyra.redact.urls import PathSegments, QueryValues, UserInfo
from palyra.redact.vendors import KEYS, LONG_KEYS, long_keys_from
from palyra.redact.verdict import CAP, CONTEXT, OPEN, Detector, Followed, Hit, Swallow, Verdict, Window

Secrets: TypeAlias = Sequence[tuple[str, bytes]]
"""(name, value): the name is what the placeholder shows."""

_Filter: TypeAlias = Callable[[bytes], bytes]

MAX_NUMBERS: Final = 10_000
"""Different secrets that are told apart; hostile output full of keys must not fill the memory."""

# At the same place the wider one judges first: a whole query value, then a key that begins it.
_KEY_BLOCKS = PrivateKeys()
_DETECTORS: Final[tuple[Detector, ...]] = (
    *(
        _KEY_BLOCKS,
        UserInfo(),
        QueryValues(),
        Authorization(),
        KeyFields(),
        Cookies(),
        NamedValues(),
        PathSegments(),
        Logins(),
    ),
    *KEYS,
    *LONG_KEYS,
)
SIGNS: Final = Signs(_DETECTORS)
_always = tuple(enumerate(_DETECTORS))[: -len(LONG_KEYS)]
_in_long_words = tuple(enumerate(_DETECTORS))[-len(LONG_KEYS) :]

_ALL_KEYS = (*KEYS, *LONG_KEYS)
_HELD_ANCHORS = (*_KEY_BLOCKS.anchors, *(anchor for keys in _ALL_KEYS if not keys.after for anchor in keys.anchors))
_BEGINNINGS = frozenset(anchor[:size] for anchor in _HELD_ANCHORS for size in range(1, len(anchor)))
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS))
_EDGE = late(EDGE)
_NAME_SIGNS = late(r"[^A-Za-z0-9._-]+")
_PLAIN_KEY = late(rb"[A-Za-z0-9._~+/=%:@-]+")
"""One word in the letters of keys. Shells and interpreters need others to do anything."""


_BY_WORDS: Final = tuple((rank, one) for rank, one in _always if isinstance(one, (NamedValues, PathSegments)))
_WORDS: Final = tuple(sorted({word for one in _DETECTORS for word in one.words}))


@lru_cache(maxsize=256)
def _asked(words: tuple[bytes, ...]) -> tuple[tuple[int, Detector], ...]:
    """Those that may find something where these words are, and no other that detectors name."""
    asked = ((rank, one) for rank, one in _always if (rank, one) not in _BY_WORDS)
    return tuple((rank, one) for rank, one in asked if not one.words or not set(words).isdisjoint(one.words))


class _Placeholders:
    """Hands out numbers and counts. Known values have theirs from the start, so that two streams agree on them."""

    def __init__(self, secrets: Secrets) -> None:
        self.counts: Counter[str] = Counter()
        self._numbers: dict[bytes, int] = {}
        self._known = [(_NAME_SIGNS.sub("-", name)[:64] or "secret", value) for name, value in secrets]
        for _, value in secrets:
            self._number(value)

    def known(self, index: int) -> bytes:
        return self.other(*self._known[index])

    def other(self, kind: str, value: bytes) -> bytes:
        self.counts[kind] += 1
        return b"[redacted:%s:%d]" % (kind.encode(), self._number(value))

    def cut(self) -> bytes:
        self.counts["cut"] += 1
        return b"[redacted:cut]"

    def _number(self, value: bytes) -> int:
        key = hashlib.sha256(value).digest()
        if key not in self._numbers and len(self._numbers) >= MAX_NUMBERS:
            return MAX_NUMBERS + 1
        return self._numbers.setdefault(key, len(self._numbers) + 1)


class _Shapes:
    """The filter for secrets nobody told us about. Keeps the undecided tail and a little of what came before it."""

    def __init__(self, placeholders: _Placeholders) -> None:
        self._placeholders = placeholders
        self._data = b""
        self._pos = 0
        self._swallow: Swallow | None = None
        self._awaits: Detector | None = None
        """Whose candidate, at the very beginning of what is held back, nothing that came so far has decided."""
        self._followed: Followed | None = None
        self._fed = 0
        self.marks: deque[Mark] = deque()
        """Colour codes that stand in the input and have not come out yet: a key may begin at each."""
        self._edges: set[int] = set()
        """Their places, and that of the last one that came out."""
        self._last_edge = -1
        self.track = Track()
        self.replaced = self.opaque = 0

    @property
    def released(self) -> int:
        """How much of the whole input has come out, or was replaced."""
        return self._fed - len(self._data) + self._pos

    def add_marks(self, marks: Sequence[Mark]) -> None:
        """Of the text that is fed next."""
        self.marks.extend(marks)
        self._edges.update(at for at, _ in marks)

    def take_marks(self) -> list[Mark]:
        """Those whose place has come out by now, as they stand in the output."""
        gone = taken(self.marks, self.released)
        if gone:  # passed once each: while a program's codes are held back, all of them are not gone through for each
            self._edges.difference_update(at for at, _ in gone)
            self._edges.discard(self._last_edge)
            self._last_edge = gone[-1][0]
            self._edges.add(self._last_edge)
        return self.track.place_all(gone)

    def feed(self, chunk: bytes) -> bytes:
        self._data += chunk
        self._fed += len(chunk)
        return b"".join(self._run(ended=False))

    def finish(self, last: bytes) -> bytes:
        self._data += last
        self._fed += len(last)
        rest = b"".join(self._run(ended=True))
        self.forget()
        return rest

    @property
    def held(self) -> bool:
        """Something is held back that nobody has decided about yet."""
        return self._pos < len(self._data)

    @property
    def held_bytes(self) -> int:
        return len(self._data) - self._pos

    def forget(self) -> None:
        self._data, self._pos, self._swallow, self._awaits, self._followed = b"", 0, None, None, None

    def _run(self, *, ended: bool) -> Iterator[bytes]:
        if self._pos == len(self._data) and self._swallow is None:
            return  # nothing came, and nothing is held back
        if not ended and self._still_awaits():
            return
        if not self._swallow_rest(ended=ended):
            places = candidates(self._data, self._pos)
            for number, (at, detector) in enumerate(places):
                if at < self._pos:
                    continue
                verdict = self._judge(detector, at, ended=ended)
                if isinstance(verdict, Hit) and verdict.kind == NAMED:
                    verdict = self._name_kind(verdict, places[number + 1 :], ended=ended)
                if verdict is OPEN:
                    yield self._release(min(at, self._begun_anchor()))
                    # Anchors that end in what is still to come begin behind it.
                    self._awaits = detector if self._pos == at and len(self._data) - at > CONTEXT else None
                    break
                if verdict is None:
                    continue
                yield self._release(verdict.start)
                self.replaced += 1
                plain = verdict.swallow is None and _PLAIN_KEY.fullmatch(self._data, verdict.start, verdict.end)
                self.opaque += not plain
                shown = self._placeholders.other(verdict.kind, self._data[verdict.start : verdict.end])
                yield shown
                base = self._fed - len(self._data)
                self.track.replace(base + verdict.start, base + verdict.end, len(shown))
                self._pos, self._swallow = verdict.end, verdict.swallow
                if self._swallow_rest(ended=ended):
                    break
            else:
                yield self._release(len(self._data) if ended else self._begun_anchor())
        keep = max(0, self._pos - CONTEXT)
        self._data, self._pos = self._data[keep:], self._pos - keep

    def _name_kind(self, named: Hit, later: Sequence[tuple[int, Detector]], *, ended: bool) -> Verdict:
        """Return the verdict of the detector that knows the kind of a named value, where one covers all of it."""
        for at, detector in later:
            if at > named.start:
                break
            verdict = self._judge(detector, at, ended=ended) if at == named.start else None
            if verdict is OPEN or (isinstance(verdict, Hit) and verdict.end >= named.end):
                return verdict
        return named

    def _still_awaits(self) -> bool:
        """A program that writes single bytes into what is held back must not have all of it searched for each."""
        if self._awaits is not None:
            self._followed = self._followed or Followed()
            if self._judge(self._awaits, self._pos, ended=False, followed=self._followed) is OPEN:
                return True
        self._awaits = self._followed = None
        return False

    def _judge(self, detector: Detector, at: int, *, ended: bool, followed: Followed | None = None) -> Verdict:
        data, stop = self._data, min(len(self._data), at + CAP)
        if not ended and at >= len(data) - _LONGEST_BEGINNING and self._begun_anchor() <= at:
            return OPEN  # what begins here may turn out to be something wider
        ends = ended and stop == len(data)
        edge = self._is_edge(at)
        return detector.judge(Window(data=data, at=at, stop=stop, ended=ends, edge=edge, followed=followed))

    def _is_edge(self, at: int) -> bool:
        return self._fed - len(self._data) + at in self._edges

    def _begun_anchor(self) -> int:
        """Where the anchor begins that the data ends in the middle of ("gh" may become "ghp_…")."""
        data, size = self._data, len(self._data)
        for at in range(max(self._pos, size - _LONGEST_BEGINNING), size):
            if data[at:] in _BEGINNINGS and (data[at] == 0x2D or _EDGE.match(data, at) or self._is_edge(at)):
                return at
        return size

    def _release(self, until: int) -> bytes:
        clear, self._pos = self._data[self._pos : until], until
        return clear

    def _swallow_rest(self, *, ended: bool) -> bool:
        """Whether the stream is still inside a secret that was longer than the cap."""
        if self._swallow is None:
            return False
        before = self.released
        self._pos, more = self._swallow(self._data, self._pos, ended=ended)
        self.track.replace(before, self.released, 0)
        if not more:
            self._swallow = None
        return more


def candidates(data: bytes, pos: int) -> list[tuple[int, Detector]]:
    if SIGNS.are_none_in(data):  # a program that writes byte by byte must not have each detector asked for each
        return []
    low = data.lower()
    words = tuple([word for word in _WORDS if word in low])
    found = [(at, rank) for rank, detector in _asked(words) for at in detector.find(data, pos)]
    if words:
        found += [(at, rank) for rank, one in _BY_WORDS for at in one.find_among(words, data, low, pos)]
    start = long_keys_from(data, pos)
    if start < len(data):
        found += [(at, rank) for rank, keys in _in_long_words for at in keys.find(data, start)]
    found.sort()
    return [(at, _DETECTORS[rank]) for at, rank in found]


class Redactor:
    """One stream's redactor. Feed chunks as they come, `finish` once at the end."""

    def __init__(self, secrets: Secrets = ()) -> None:
        self._placeholders = _Placeholders(secrets)
        self._colours = Colours()
        self._known = KnownValues([value for _, value in secrets], self._placeholders.known)
        self._shapes = _Shapes(self._placeholders)
        self._marks: deque[Mark] = deque()
        """Colour codes that wait with what the first filter holds back."""
        self._written = 0
        """Bytes of text that came out so far, colour codes not counted."""

    @property
    def held_bytes(self) -> int:
        return self._known.held_bytes + self._shapes.held_bytes

    @property
    def most_held_bytes(self) -> int:
        """For known values; 0 where there are none. What shapes hold tells nothing that the text itself does not."""
        return self._known.most_held_bytes

    @property
    def by_shape(self) -> tuple[int, int]:
        """Parts that were replaced for their shape alone, and those of them that are more than one plain word: their
        writer chose all of what they hide."""
        return self._shapes.replaced, self._shapes.opaque

    def replace(self, value: str) -> str:
        """What stands for a value that its name calls secret (`"password": …` in an object)."""
        data = value.encode("utf-8", "surrogatepass")
        self._shapes.replaced += 1
        self._shapes.opaque += not _PLAIN_KEY.fullmatch(data)
        return self._placeholders.other(NAMED, data).decode()

    def lost(self) -> bytes:
        """What stands for an end that is not shown."""
        return self._placeholders.cut()

    def feed(self, chunk: bytes) -> bytes:
        return self._pass(self._colours.take(chunk), self._known.feed, self._shapes.feed)

    def finish(self, last: bytes = b"") -> bytes:
        """`last`: what came with the end; a text that is there whole is searched once."""
        return self._pass(self._colours.take(last, ended=True), self._known.finish, self._shapes.finish)

    def cut(self) -> bytes:
        """Instead of `finish`, where a stream was cut off: what is undecided may be most of a secret, and stays in."""
        undecided = self._known.held or self._shapes.held
        self._known.forget()
        self._shapes.forget()
        self._colours.forget()
        codes = b"".join(code for _, code in (*self._shapes.marks, *self._marks))
        return (self._placeholders.cut() if undecided else b"") + codes

    def _pass(self, came: tuple[bytes, bytes, Sequence[Mark]], first: _Filter, second: _Filter) -> bytes:
        """Through both filters; the codes follow as far as the text around them has come."""
        known, shapes = self._known, self._shapes
        whole, text, codes = came
        waiting = bool(self._marks or shapes.marks or known.held or shapes.held)
        self._marks.extend(codes)
        text = first(text)
        if self._marks:
            shapes.add_marks(known.track.place_all(taken(self._marks, known.released)))
        text = second(text)
        start, self._written = self._written, self._written + len(text)
        unchanged = known.track.quiet and shapes.track.quiet and not (known.held or shapes.held or waiting)
        if shapes.marks:
            placed = shapes.take_marks()
            text = whole if unchanged else put_back(text, placed, start)
        known.track.settle(known.released)
        shapes.track.settle(shapes.released)
        return text

    @property
    def counts(self) -> Mapping[str, int]:
        """How many times a secret of each kind was replaced."""
        return dict(sorted(self._placeholders.counts.items()))
