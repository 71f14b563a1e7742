"""The lines of a witness's file: read whole however many somebody appended, and never swallowed by what they left.

Rules: who can only append hides no line, neither by lines of nothing nor by so many that nobody reads on; blocks
without this log's name cost no more than reading them. A file past all sense is not passed over as one that
cannot be reached: `Flooded`, and whoever starts is refused. A pipe in its place keeps nobody waiting.

Touches: the file. Not here: what a line says (state/witness).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from palyra.errors import StateError

MAX_PLACE_BYTES = 1 << 30
"""Years of a head a minute."""
BLOCK_BYTES = 1 << 20


class Flooded(StateError):
    """It holds more than is read, so that nobody can tell what it has seen."""


def read_blocks(path: Path) -> Iterator[bytes]:
    """Whole lines, many at a time; one longer than a block comes in pieces, none of which is a line of ours."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            left, size = b"", 0
            while data := file.read(BLOCK_BYTES):
                size += len(data)
                if size > MAX_PLACE_BYTES:
                    raise Flooded(
                        f"The witness {path} is larger than {MAX_PLACE_BYTES} bytes: what it has seen is not known.",
                        f"Replace it by its lines that are heads: grep -a '^{{\"origin\"' '{path}'",
                    )
                whole, newline, rest = data.rpartition(b"\n")
                if newline or len(left) > BLOCK_BYTES:
                    yield left + whole
                    left = rest
                else:
                    left += rest
            yield left
    except FileNotFoundError:
        return


def append_line(path: Path, line: bytes) -> None:
    """Durable when it returns. Always on a line of its own: half a one may be there, or come there meanwhile."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    with os.fdopen(fd, "ab") as file:
        file.write((b"\n" if os.fstat(fd).st_size else b"") + line + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
