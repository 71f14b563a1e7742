"""Both output streams of one program through the redactor, each on its own, counted together.

Not here: where the clean bytes go (the engine's collector, a background process's log).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from palyra.model.outcome import StreamName
from palyra.redact.stream import Redactor, Secrets


class BothStreams:
    def __init__(self, secrets: Secrets) -> None:
        self._redactors = {name: Redactor(secrets) for name in StreamName}

    def feed(self, stream: StreamName, chunk: bytes) -> bytes:
        return self._redactors[stream].feed(chunk)

    def finish(self) -> Iterator[tuple[StreamName, bytes]]:
        """The rest of each stream, whose end has come."""
        for stream, redactor in self._redactors.items():
            yield stream, redactor.finish()

    def cut(self) -> Iterator[tuple[StreamName, bytes]]:
        """The rest of each, where the program was ended midway: what is undecided may be most of a secret."""
        for stream, redactor in self._redactors.items():
            yield stream, redactor.cut()

    @property
    def counts(self) -> Mapping[str, int]:
        total: Counter[str] = Counter()
        for redactor in self._redactors.values():
            total.update(redactor.counts)
        return dict(sorted(total.items()))
