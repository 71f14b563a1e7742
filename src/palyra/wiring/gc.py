"""What nobody needs any more: artifacts and logs past their time, and what processes that are gone left behind.

Rules: what lives is not touched: a cgroup goes only empty and old, a container only without the process that made it,
a half-written file only without its writer and an hour after its last byte, a log only when its process has ended, a
launcher only with nobody inside and nobody above it. What state changes is one act, `home.collected`, committed before
the first file goes: a crash in between leaves files that the next collection finds again, never a removal that nobody
was told of. A look alone changes nothing.

Not here: records and entries of the journal, which `palyra journal retain` removes (state/retention, state/segments).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from palyra.artifacts.store import ArtifactStore
from palyra.canon import Json
from palyra.errors import StateError
from palyra.journal.acts import PALYRA, Act, ActKind, record_act
from palyra.launch.cgroup import empty_groups, remove_empty
from palyra.launch.container import Engine, abandoned
from palyra.launch.orphans import Orphan, end_orphan, find_orphans
from palyra.launch.ringlog import kept_logs, remove_log
from palyra.model.call import ulid_unix_ms
from palyra.state.retention import sweep
from palyra.state.transaction import Transaction
from palyra.values import dataclass
from palyra.wiring.embedded import Installation
from palyra.wiring.gc_blobs import BlobCollector, OldBlobs
from palyra.wiring.partial_files import find_partial_files, find_trial_folders, remove_path

DAY_MS = 24 * 3600 * 1000
UNSETTLED_MS = 3600 * 1000
"""What is younger may belong to somebody who is not done."""


class Kind(StrEnum):
    """Each is a number of the act too."""

    ARTIFACT = "artifact"
    BLOB = "blob"
    LOG = "log"
    VALUE = "value"
    FILE = "file"
    CGROUP = "cgroup"
    CONTAINER = "container"
    PROBE = "probe"
    LAUNCHER = "launcher"
    WORKSPACE_BLOB = "workspace_blob"
    """Of a cluster's blob store; told by an act of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    kind: Kind
    name: str
    size_bytes: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Before when what must have been made or ended; None: never."""

    now_unix_ms: int
    artifacts_before_unix_ms: int | None
    logs_before_unix_ms: int | None


class Collector:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._writer = installation.writer
        self._logs = installation.home.root / "logs"
        ports = installation.ports
        clock = ports.clock.now_unix_ms
        self._artifacts = ArtifactStore(self._writer, new_id=ports.ids.ulid, now_unix_ms=clock)
        container = installation.host.container
        self._shared = BlobCollector(installation)
        self._old = OldBlobs()
        self._orphans: dict[str, Orphan] = {}
        bubblewrap = installation.host.bubblewrap
        self._bwrap = bubblewrap.path if bubblewrap is not None else ""
        self._engine = Engine(container.path, container.env, container.runtime) if container is not None else None

    def terms(self) -> Terms:
        now, keep = self._installation.ports.clock.now_unix_ms(), self._installation.config.gc
        return Terms(
            now_unix_ms=now,
            artifacts_before_unix_ms=now - keep.keep_artifacts_days * DAY_MS if keep.keep_artifacts_days else None,
            logs_before_unix_ms=now - keep.keep_logs_days * DAY_MS if keep.keep_logs_days else None,
        )

    async def find(self, terms: Terms) -> tuple[Leftover, ...]:
        found = [*self._stored(terms), *self._left_on_disk(terms)]
        if self._engine is not None:
            found += [Leftover(kind=Kind.CONTAINER, name=name) for name in await abandoned(self._engine)]
        self._old = await self._shared.find()
        found += [
            Leftover(kind=Kind.WORKSPACE_BLOB, name=one.name, size_bytes=one.size_bytes) for one in self._old.blobs
        ]
        return tuple(found)

    async def remove(self, found: Sequence[Leftover], terms: Terms, *, actor: str) -> tuple[Leftover, ...]:
        """What would not go. Nothing is changed, and nothing journaled, where nothing was found."""
        names = await self._shared.remove(self._old, actor=actor)
        stay = [Leftover(kind=Kind.WORKSPACE_BLOB, name=name) for name in names]
        here = [one for one in found if one.kind is not Kind.WORKSPACE_BLOB]
        return (*stay, *await self._remove_here(here, terms, actor))

    async def _remove_here(self, found: Sequence[Leftover], terms: Terms, actor: str) -> tuple[Leftover, ...]:
        if not found:
            return ()
        self._writer.commit_now(lambda tx: self._tell(tx, found, terms, actor))
        blobs = [one for one in found if one.kind is Kind.BLOB]
        left = blobs[: len(blobs) - self._artifacts.remove_unnamed(one.name for one in blobs)]
        if values := [one for one in found if one.kind is Kind.VALUE]:
            try:
                sweep(self._writer)
            except StateError:  # somebody reads: they go the next time
                left += values
        for one in found:
            if one.kind in _BY_NAME and not await self._gone(one):
                left.append(one)
        return tuple(left)

    # ── what there is ──

    def _stored(self, terms: Terms) -> Iterator[Leftover]:
        if terms.artifacts_before_unix_ms is not None:
            count, size = self._artifacts.past(terms.artifacts_before_unix_ms)
            if count:
                yield Leftover(kind=Kind.ARTIFACT, name="artifacts", size_bytes=size, count=count)
        for sha256, size in self._artifacts.unnamed(terms.artifacts_before_unix_ms).items():
            yield Leftover(kind=Kind.BLOB, name=sha256, size_bytes=size)
        doomed = self._writer.rows("SELECT count(*) FROM doomed")[0][0]
        if doomed:
            yield Leftover(kind=Kind.VALUE, name="values marked for removal", count=doomed)

    def _left_on_disk(self, terms: Terms) -> Iterator[Leftover]:
        for process_id, size in kept_logs(self._logs).items():
            if self._is_past(process_id, terms):
                yield Leftover(kind=Kind.LOG, name=process_id, size_bytes=size)
        before_s = (terms.now_unix_ms - UNSETTLED_MS) / 1000
        for path, size in find_partial_files(self._installation.home.root, before_unix_s=before_s):
            yield Leftover(kind=Kind.FILE, name=path, size_bytes=size)
        for path in find_trial_folders(before_unix_s=before_s):
            yield Leftover(kind=Kind.PROBE, name=path)
        host = self._installation.host
        limits = host.cgroup_limits
        folders = (limits.memory, limits.pids) if limits is not None else ()
        parents = (host.cgroup_kill, host.cgroup_pids, *folders)
        for path in empty_groups(parents, before_unix_s=before_s):
            yield Leftover(kind=Kind.CGROUP, name=path)
        yield from self.find_launchers(terms)

    def find_launchers(self, terms: Terms) -> list[Leftover]:
        before_s = (terms.now_unix_ms - UNSETTLED_MS) / 1000
        found = find_orphans(self._bwrap, before_unix_s=before_s) if self._bwrap else ()
        self._orphans = {f"process {orphan.pid}": orphan for orphan in found}
        return [Leftover(kind=Kind.LAUNCHER, name=name) for name in self._orphans]

    def _is_past(self, process_id: str, terms: Terms) -> bool:
        """A log without a row: its start was never recorded, so nobody can ask for it."""
        rows = self._writer.rows("SELECT status, ended_unix_ms FROM processes WHERE process_id = ?", (process_id,))
        if not rows:
            return ulid_unix_ms(process_id) < terms.now_unix_ms - UNSETTLED_MS
        status, ended = rows[0]
        before = terms.logs_before_unix_ms
        return status != "running" and before is not None and ended is not None and ended < before

    # ── away with it ──

    def _tell(self, tx: Transaction, found: Sequence[Leftover], terms: Terms, actor: str) -> None:
        numbers = Counter({kind.value: 0 for kind in Kind if kind is not Kind.WORKSPACE_BLOB})
        for one in found:
            numbers[one.kind.value] += one.count
        if terms.artifacts_before_unix_ms is not None:
            numbers[Kind.ARTIFACT] = self._artifacts.forget(tx, terms.artifacts_before_unix_ms)
        details: dict[str, Json] = {
            **numbers,
            "artifacts_before_unix_ms": terms.artifacts_before_unix_ms,
            "logs_before_unix_ms": terms.logs_before_unix_ms,
        }
        act = Act(kind=ActKind.HOME_COLLECTED, actor=actor, subject="home", details=details)
        record_act(tx, act, at_unix_ms=terms.now_unix_ms)

    async def _gone(self, one: Leftover) -> bool:
        if one.kind is Kind.CONTAINER:
            return self._engine is not None and await self._engine.remove(one.name)
        if one.kind is Kind.LOG:
            return remove_log(self._logs, one.name)
        if one.kind is Kind.LAUNCHER:
            return end_orphan(self._orphans[one.name], self._bwrap)
        return remove_empty(one.name) if one.kind is Kind.CGROUP else remove_path(one.name)


async def sweep_launchers(installation: Installation) -> int:
    """End the launchers that a killed engine left behind, journaled like any collection; return how many."""
    collector = Collector(installation)
    terms = replace(collector.terms(), artifacts_before_unix_ms=None, logs_before_unix_ms=None)
    found = collector.find_launchers(terms)
    return len(found) - len(await collector.remove(found, terms, actor=PALYRA))


_BY_NAME = frozenset({Kind.LOG, Kind.FILE, Kind.CGROUP, Kind.CONTAINER, Kind.PROBE, Kind.LAUNCHER})
