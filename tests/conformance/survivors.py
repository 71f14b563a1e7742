"""A program that tries to outlive its call, and a caller's stream that does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from tests.conformance.arena import Arena

SURVIVOR = """
import os, sys, time
for _ in range(2):
    if os.fork():
        if len(sys.argv) > 2:
            time.sleep(60)
        os._exit(0)
    os.setsid()
for _ in range(300):  # where no tree kill is promised it must still end some time
    with open("alive", "a") as file:
        file.write(".")
    time.sleep(0.01)
"""


def still_writing(place: Arena) -> bool:
    file = place.workspace / "alive"
    before = file.stat().st_size if file.exists() else 0
    time.sleep(0.2)
    return (file.stat().st_size if file.exists() else 0) > before


class Typed:
    """A caller's stream that never ends by itself."""

    def __init__(self, chunks: Sequence[bytes], *, after_s: float = 0) -> None:
        self._chunks = list(chunks)
        self._after_s = after_s

    async def read(self) -> bytes:
        if self._chunks:
            await asyncio.sleep(self._after_s)
            return self._chunks.pop(0)
        await asyncio.sleep(3600)
        return b""
