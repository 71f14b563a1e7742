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


class BothStreams:
    """`lagging` needs to be asked for: the operator's own terminal sees output as it comes."""

    def __init__(self, secrets: Secrets, *, lagging: bool = False) -> None:
        self._redactors = {name: Redactor(secrets) for name in StreamName}
        self._lag = max(one.most_held_bytes for one in self._redactors.values()) if lagging else 0
        self._late = dict.fromkeys(StreamName, b"")
        self._fed = dict.fromkeys(StreamName, 0)

    def feed(self, stream: StreamName, chunk: bytes) -> bytes:
        redactor = self._redactors[stream]
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
        for stream, redactor in self._redactors.items():
            yield stream, self._late[stream] + redactor.finish()

    def cut(self) -> Iterator[tuple[StreamName, bytes]]:
        """The rest of each, where the program was ended midway: what is undecided may be most of a secret."""
        for stream, redactor in self._redactors.items():
            if not self._lag:
                yield stream, redactor.cut()
            elif self._fed[stream]:
                rest = self._late[stream] + redactor.finish()
                yield stream, rest[: max(0, len(rest) - self._lag)] + redactor.lost()

    @property
    def counts(self) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for redactor in self._redactors.values():
            total.update(redactor.counts)
        return dict(sorted(total.items()))
