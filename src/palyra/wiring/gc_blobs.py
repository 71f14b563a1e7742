"""What `palyra gc` removes from a cluster's blob store: files of workspaces that no call has put there for a while.

Rules: the age is told by the store's own clock and every put renews it, so what is being written, or was found there
by a call a moment ago, is young; nothing is removed that is younger than the oldest call which is still open. What goes
is journaled before it goes (`blobs.collected`) and is looked at once more as it goes. A call that misses a file of its
workspace says so before anything runs, and the daemon puts it again. Not here: the stores (cluster/blobs, cluster/s3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from palyra.errors import StateError
from palyra.journal.acts import Act, ActKind, record_act
from palyra.values import dataclass
from palyra.wiring.cluster import open_store

if TYPE_CHECKING:
    from palyra.cluster.blobs import Blobs, KeptBlob
    from palyra.wiring.embedded import Installation

DAY_MS = 24 * 3600 * 1000
SKEW_MS = 3600 * 1000
"""How far a daemon's clock, which calls are opened by, may be from the store's."""
_OLDEST = "SELECT min(opened_unix_ms) FROM calls WHERE status = 'open'"


@dataclass(frozen=True, slots=True, kw_only=True)
class OldBlobs:
    before_unix_ms: int = 0
    blobs: tuple[KeptBlob, ...] = ()


class BlobCollector:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation

    async def find(self) -> OldBlobs:
        """Nothing where there is no blob store, or everything in it is kept."""
        oldest, days = self._installation.writer.rows(_OLDEST)[0][0], self._installation.config.gc.keep_blobs_days
        with self._opened() as blobs:
            if blobs is None or not days:
                return OldBlobs()
            return await asyncio.to_thread(_find, blobs, days, oldest)

    async def remove(self, old: OldBlobs, *, actor: str) -> tuple[str, ...]:
        """Names of those that would not go. One that somebody put again meanwhile stays, as it should."""
        if not old.blobs:
            return ()
        self._tell(old, actor)
        with self._opened() as blobs:
            return () if blobs is None else await asyncio.to_thread(_remove, blobs, old)

    @contextmanager
    def _opened(self) -> Iterator[Blobs | None]:
        one = self._installation
        blobs = open_store(one.config, one.vault, one.ports.clock)
        try:
            yield blobs
        finally:
            if blobs is not None:
                blobs.close()

    def _tell(self, old: OldBlobs, actor: str) -> None:
        details = {
            "before_unix_ms": old.before_unix_ms,
            "count": len(old.blobs),
            "bytes": sum(one.size_bytes for one in old.blobs),
        }
        act = Act(kind=ActKind.BLOBS_COLLECTED, actor=actor, subject="blobs", details=details)
        now = self._installation.ports.clock.now_unix_ms()
        self._installation.writer.commit_now(lambda tx: record_act(tx, act, at_unix_ms=now))


def _find(blobs: Blobs, days: int, oldest_unix_ms: int | None) -> OldBlobs:
    before = blobs.now_unix_ms() - days * DAY_MS
    if oldest_unix_ms is not None:
        before = min(before, oldest_unix_ms - SKEW_MS)
    return OldBlobs(before_unix_ms=before, blobs=tuple(one for one in blobs.kept() if one.kept_unix_ms < before))


def _remove(blobs: Blobs, old: OldBlobs) -> tuple[str, ...]:
    left = []
    for one in old.blobs:
        try:
            blobs.delete_older(one.name, old.before_unix_ms)
        except (StateError, OSError):
            left.append(one.name)
    return tuple(left)
