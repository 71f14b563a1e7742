"""Artifacts on disk: one file for each content, named by its digest, and a row that says which run may read it.

Rules: a file is whole or not there (temporary file, fsync, rename), readable by its owner alone; a row is written
after its file is durable; reading checks the run and then the digest, so neither another run nor a changed file gets
through; a run's quota is judged in the transaction that adds the row.

Not here: names and pages (artifacts/names), what becomes an artifact (protocol/projection).
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

from palyra.artifacts.names import artifact_path_parts
from palyra.canon import sha256_hex
from palyra.errors import Reason, Rejected, StateError
from palyra.model.outcome import ArtifactRef
from palyra.state.keyfile import sync_folder
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

RUN_QUOTA_BYTES = 256 << 20
MAX_NAME_CHARS = 256


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
        await asyncio.to_thread(self._write, ref.sha256, data)
        await self._writer.commit(lambda tx: self._insert(tx, run_id, ref))
        return ref

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

    # ── rows ──

    def _insert(self, tx: Transaction, run_id: str, ref: ArtifactRef) -> None:
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
                f"Run {run_id} keeps {used} bytes of artifacts; {more} more would pass its {self._quota_bytes}.",
                "Start a new run, or let the program write less.",
            )

    # ── files ──

    def _write(self, sha256: str, data: bytes) -> None:
        path = self._folder.joinpath(*artifact_path_parts(sha256))
        try:
            for folder in (self._folder, path.parent.parent, path.parent):
                folder.mkdir(mode=0o700, exist_ok=True)
            if self._read(sha256) != data:
                _create(path, data)
            # Also when the file was there: whoever made it may not have come this far.
            for folder in (path.parent, path.parent.parent, self._folder):
                sync_folder(folder)
        except OSError as error:
            raise StateError(f"An artifact could not be written: {error.strerror}.", "Check the disk.") from error

    def _read(self, sha256: str) -> bytes | None:
        path = self._folder.joinpath(*artifact_path_parts(sha256))
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read() if stat.S_ISREG(os.fstat(fd).st_mode) else None


def _create(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{os.getpid()}-{os.urandom(8).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
