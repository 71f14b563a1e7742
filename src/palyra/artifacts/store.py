"""Artifacts on disk: one file for each content, named by its digest, and a row that says which run may read it.

Rules: a file is whole or not there (temporary file, fsync, rename), readable by its owner alone; a row is written
after its file is durable; reading checks the run and then the digest, so neither another run nor a changed file gets
through; a run's quota is judged in the transaction that adds the row.

Not here: names and pages (artifacts/names), what becomes an artifact (protocol/projection).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from palyra.artifacts.names import artifact_path_parts, is_sha256
from palyra.canon import sha256_hex
from palyra.errors import Reason, Rejected, StateError
from palyra.model.outcome import ArtifactRef
from palyra.state.keyfile import sync_folder
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

RUN_QUOTA_BYTES = 256 << 20
MAX_NAME_CHARS = 256


class _Vanished(StateError):
    """The file was written, and removed again before its row was: somebody is collecting what no row names."""

    def __init__(self) -> None:
        super().__init__("An artifact vanished while it was being stored.", "Try again.")


class ArtifactStore:
    def __init__(
        self,
        writer: Writer,
        *,
        new_id: Callable[[], str],
        now_unix_ms: Callable[[], int],
        quota_bytes: int = RUN_QUOTA_BYTES,
    ) -> None:
        self._folder = writer.home.root / "artifacts"
        self._writer = writer
        self._new_id = new_id
        self._now_unix_ms = now_unix_ms
        self._quota_bytes = quota_bytes

    async def put(self, run_id: str, name: str, data: bytes) -> ArtifactRef:
        """Keep `data` for the run. Rejected(QUOTA_EXCEEDED) when the run has kept too much already."""
        self._check_quota(run_id, self._used(run_id), len(data))
        ref = ArtifactRef(
            artifact_id=self._new_id(), sha256=sha256_hex(data), size_bytes=len(data), name=name[:MAX_NAME_CHARS]
        )
        try:
            await self._keep(run_id, ref, data)
        except _Vanished:
            await self._keep(run_id, ref, data)
        return ref

    async def _keep(self, run_id: str, ref: ArtifactRef, data: bytes) -> None:
        await asyncio.to_thread(self._write, ref.sha256, data)
        await self._writer.commit(lambda tx: self._insert(tx, run_id, ref))

    async def read(self, run_id: str, artifact_id: str) -> tuple[ArtifactRef, bytes]:
        """Of this run only; another run's artifact is as unknown as one that never was."""
        sql = "SELECT sha256, size_bytes, name FROM artifacts WHERE artifact_id = ? AND run_id = ?"
        rows = self._writer.rows(sql, (artifact_id, run_id))
        if not rows:
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                f"There is no artifact {artifact_id[:40]!r} in this run.",
                "Take artifact_id from an outcome of the same run.",
            )
        sha256, size_bytes, name = rows[0]
        data = await asyncio.to_thread(self._read, sha256)
        if data is None or sha256_hex(data) != sha256:
            raise StateError(f"Artifact {artifact_id} is missing or is not what was stored.")
        return ArtifactRef(artifact_id=artifact_id, sha256=sha256, size_bytes=size_bytes, name=name), data

    # ── removal: rows first, then whatever file no row names ──

    def past(self, before_unix_ms: int) -> tuple[int, int]:
        """How many artifacts were made before then, and their bytes."""
        sql = "SELECT count(*), coalesce(sum(size_bytes), 0) FROM artifacts WHERE created_unix_ms < ?"
        count, size = self._writer.rows(sql, (before_unix_ms,))[0]
        return count, size

    @staticmethod
    def forget(tx: Transaction, before_unix_ms: int) -> int:
        """Rows alone: their runs can read these no more. The files go with `remove_unnamed`."""
        return tx.execute("DELETE FROM artifacts WHERE created_unix_ms < ?", (before_unix_ms,)).rowcount

    def unnamed(self, before_unix_ms: int | None = None) -> dict[str, int]:
        """Files that no artifact names (any more, once those made before then are forgotten), and their bytes."""
        sql = "SELECT DISTINCT sha256 FROM artifacts WHERE created_unix_ms >= ?"
        named = {sha256 for (sha256,) in self._writer.rows(sql, (before_unix_ms or 0,))}
        files = (path for path in self._folder.glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]/*") if is_sha256(path.name))
        found = {}
        for path in files:
            if path.name not in named:
                with contextlib.suppress(OSError):
                    found[path.name] = path.lstat().st_size
        return found

    def remove_unnamed(self, sha256s: Iterable[str]) -> int:
        """Under the writer's lock, where a row is added only after its file was seen: neither can miss the other."""

        def work(tx: Transaction) -> int:
            removed = 0
            for sha256 in sha256s:
                if not tx.rows("SELECT 1 FROM artifacts WHERE sha256 = ? LIMIT 1", (sha256,)):
                    with contextlib.suppress(OSError):
                        self._path(sha256).unlink()
                        removed += 1
            return removed

        return self._writer.commit_now(work)[0]

    # ── rows ──

    def _insert(self, tx: Transaction, run_id: str, ref: ArtifactRef) -> None:
        if not self._path(ref.sha256).exists():
            raise _Vanished
        used = tx.execute("SELECT coalesce(sum(size_bytes), 0) FROM artifacts WHERE run_id = ?", (run_id,)).fetchone()[
            0
        ]
        self._check_quota(run_id, used, ref.size_bytes)
        tx.execute(
            "INSERT INTO artifacts VALUES (?, ?, ?, ?, ?, ?)",
            (ref.artifact_id, run_id, ref.name, ref.sha256, ref.size_bytes, self._now_unix_ms()),
        )

    def _used(self, run_id: str) -> int:
        rows = self._writer.rows("SELECT coalesce(sum(size_bytes), 0) FROM artifacts WHERE run_id = ?", (run_id,))
        used: int = rows[0][0]
        return used

    def _check_quota(self, run_id: str, used: int, more: int) -> None:
        if used + more > self._quota_bytes:
            raise Rejected(
                Reason.QUOTA_EXCEEDED,
                f"Run {run_id} keeps {used} bytes of artifacts; {more} more would exceed its {self._quota_bytes}.",
                "Start a new run, or let the program write less.",
            )

    # ── files ──

    def _path(self, sha256: str) -> Path:
        return self._folder.joinpath(*artifact_path_parts(sha256))

    def _write(self, sha256: str, data: bytes) -> None:
        path = self._path(sha256)
        try:
            for folder in (self._folder, path.parent.parent, path.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            if self._read(sha256) != data:
                from palyra.state.whole import write_whole  # most calls write no artifact

                write_whole(path, data)
            # Also when the file was there: whoever made it may not have come this far.
            for folder in (path.parent, path.parent.parent, self._folder):
                sync_folder(folder)
        except OSError as error:
            raise StateError(f"An artifact could not be written: {error.strerror}.", "Check the disk.") from error

    def _read(self, sha256: str) -> bytes | None:
        path = self._path(sha256)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read() if stat.S_ISREG(os.fstat(fd).st_mode) else None
