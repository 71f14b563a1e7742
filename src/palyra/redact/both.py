"""Both output streams of one program through the redactor, each on its own, counted together.

What a redactor holds back tells whether it could still become a known secret: who sees when bytes come out could guess
a secret of the vault letter by letter. So where an agent looks on (`lagging`), each stream comes out a fixed number of
bytes late, more than is ever held for a known value, and an end that was cut off loses that many, whatever it was.

Not here: where the clean bytes go (the engine's collector, a background process's log).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from palyra.model.outcome import StreamName
from palyra.redact.stream import Redactor, Secrets

_STREAMS = tuple(StreamName)


class BothStreams:
    """`lagging` needs to be asked for: the operator's own terminal sees output as it comes. A stream that nothing came
    of costs nothing: most programs leave one of the two empty."""

    def __init__(self, secrets: Secrets, *, lagging: bool = False) -> None:
        self._secrets = secrets
        self._lagging = lagging
        self._lag = 0
        self._redactors: dict[StreamName, Redactor] = {}
        self._late = dict.fromkeys(_STREAMS, b"")
        self._fed = dict.fromkeys(_STREAMS, 0)

    def _begin(self, stream: StreamName) -> Redactor:
        redactor = self._redactors[stream] = Redactor(self._secrets)
        self._lag = redactor.most_held_bytes if self._lagging else 0
        return redactor

    def feed(self, stream: StreamName, chunk: bytes) -> bytes:
        redactor = self._redactors.get(stream) or self._begin(stream)
        clean = redactor.feed(chunk)
        if not self._lag:
            return clean
        self._fed[stream] += len(chunk)
        late = self._late[stream] + clean
        out = max(0, len(late) - max(0, self._lag - redactor.held_bytes))
        self._late[stream] = late[out:]
        return late[:out]

    def finish(self) -> Iterator[tuple[StreamName, bytes]]:
        """The rest of each stream, whose end has come."""
        for stream, redactor in self._in_order():
            yield stream, self._late[stream] + redactor.finish()

    def cut(self) -> Iterator[tuple[StreamName, bytes]]:
        """The rest of each, where the program was ended midway: what is undecided may be most of a secret."""
        for stream, redactor in self._in_order():
            if not self._lag:
                yield stream, redactor.cut()
            elif self._fed[stream]:
                rest = self._late[stream] + redactor.finish()
                yield stream, rest[: max(0, len(rest) - self._lag)] + redactor.lost()

    def _in_order(self) -> list[tuple[StreamName, Redactor]]:
        return [(stream, self._redactors[stream]) for stream in _STREAMS if stream in self._redactors]

    @property
    def counts(self) -> Mapping[str, int]:
        if not self._redactors:
            return {}
        total: Counter[str] = Counter()
        for redactor in self._redactors.values():
            total.update(redactor.counts)
        return dict(sorted(total.items()))
