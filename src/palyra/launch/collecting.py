"""A program's streams as bytes in memory, for programs whose whole output is wanted and bounded by their plan."""

from __future__ import annotations

from collections.abc import Sequence

from palyra.model.outcome import Connection, StreamName

_SLICE = 1 << 16


class Given:
    """Bytes as a program's stdin."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    async def read(self) -> bytes:
        part = self._data[self._at : self._at + _SLICE]
        self._at += len(part)
        return part


class Collected:
    def __init__(self) -> None:
        self.stdout, self.stderr = bytearray(), bytearray()

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        (self.stdout if stream is StreamName.STDOUT else self.stderr).extend(chunk)

    def reached(self, connections: Sequence[Connection]) -> None:
        """Nothing is granted to such a program."""

    def words(self, most: int) -> str:
        """The end of what it said, both streams."""
        said = b"\n".join(part for part in (bytes(self.stdout), bytes(self.stderr)) if part.strip())
        return said.decode("utf-8", "replace").strip()[-most:]
