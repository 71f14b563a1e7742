"""Bytes by their digest, where every machine of a cluster finds them. What is read is held against its name.

Here: what any such store can do, and the one in a folder that all machines see. The one in an S3-compatible store is
cluster/s3.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from palyra.errors import StateError

_DIGITS = frozenset("0123456789abcdef")
_UNFINISHED = re.compile(r"\.[0-9a-f]{64}\.[0-9a-f]{16}")
"""What somebody writes, or has begun to remove."""
PAUSES_S = (0.01, 0.02, 0.04, 0.08)


class KeptBlob(NamedTuple):
    name: str
    kept_unix_ms: int
    """When it was put last, by the store's own clock."""
    size_bytes: int


class Blobs(Protocol):
    """`StateError` from each, when the store cannot be used or what it holds does not match its digest."""

    def put(self, data: bytes) -> str:
        """Keeps it; its SHA-256. What is there already counts as put now, so that no collection takes it."""

    def get(self, sha256: str, *, most_bytes: int) -> bytes: ...

    def has(self, sha256: str) -> bool: ...

    def delete(self, sha256: str) -> None:
        """Nothing happens when it is not there."""

    def delete_older(self, name: str, before_unix_ms: int) -> bool:
        """Removes it, unless somebody put it since; False where it stays."""

    def kept(self) -> Iterator[KeptBlob]:
        """Everything there is."""

    def now_unix_ms(self) -> int:
        """By the store's own clock: those who put may have others."""

    def forget(self) -> None:
        """Take nothing for being there that was there once."""

    def close(self) -> None: ...


class BlobMissing(StateError):
    """It is not there (any more): whoever has the bytes puts them again."""


def _renew(path: Path) -> bool:
    """Its time is now: a collection that has it in its hand puts it back. False where there is none, also when one was
    removed between finding it and giving it its time: that file has the time and no name."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    return path.exists()


def _read(path: Path, most_bytes: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most_bytes)


class BlobFolder:
    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        path = self._path(sha256)
        if not _renew(path):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            temporary = path.with_name(f".{sha256}.{os.urandom(8).hex()}")
            temporary.write_bytes(data)
            temporary.replace(path)
        return sha256

    def get(self, sha256: str, *, most_bytes: int) -> bytes:
        check_digest(sha256)
        try:
            data = self._read(sha256, most_bytes + 1)
        except FileNotFoundError as error:
            raise missing(sha256) from error
        except OSError as error:
            raise StateError(f"Blob {sha256} cannot be read: {error}.", "Check [cluster.blobs] folder.") from error
        return checked(data, sha256, most_bytes=most_bytes)

    def _read(self, sha256: str, most_bytes: int) -> bytes:
        for pause_s in PAUSES_S:
            try:
                return _read(self._path(sha256), most_bytes)
            except FileNotFoundError:
                time.sleep(pause_s)  # a collection may have it in its hand, about to put it back
        return _read(self._path(sha256), most_bytes)

    def has(self, sha256: str) -> bool:
        check_digest(sha256)
        return self._path(sha256).exists()

    def delete(self, sha256: str) -> None:
        check_digest(sha256)
        self._path(sha256).unlink(missing_ok=True)

    def delete_older(self, name: str, before_unix_ms: int) -> bool:
        """Out of everybody's sight first, then looked at: who puts it in between either made it young, and it goes
        back, or did not find it, and writes it anew."""
        if not is_digest(name) and not _UNFINISHED.fullmatch(name):
            raise StateError("This is not a blob.")
        path = self._path(name.lstrip(".")).with_name(name)
        held = path.with_name(f".{name.lstrip('.')[:64]}.{os.urandom(8).hex()}")
        try:
            path.rename(held)
        except FileNotFoundError:
            return True
        if held.stat().st_mtime_ns // 1_000_000 < before_unix_ms:
            held.unlink()
            return True
        held.rename(path)
        return False

    def kept(self) -> Iterator[KeptBlob]:
        """Unfinished ones too: their writers are gone when they are old."""
        for path in self._root.glob("??/*"):
            if is_digest(path.name) or _UNFINISHED.fullmatch(path.name):
                try:
                    seen = path.stat()
                except FileNotFoundError:
                    continue
                yield KeptBlob(path.name, seen.st_mtime_ns // 1_000_000, seen.st_size)

    def now_unix_ms(self) -> int:
        probe = self._root / f".now.{os.urandom(8).hex()}"
        try:
            probe.touch(mode=0o600)
            return probe.stat().st_mtime_ns // 1_000_000
        except OSError as error:
            raise StateError(f"The blob store cannot be written: {error}.", "Check [cluster.blobs] folder.") from error
        finally:
            probe.unlink(missing_ok=True)

    def forget(self) -> None:
        """The folder itself is asked each time."""

    def close(self) -> None:
        """Nothing is held."""

    def _path(self, sha256: str) -> Path:
        return self._root / sha256[:2] / sha256


def is_digest(name: str) -> bool:
    return len(name) == 64 and set(name) <= _DIGITS


def check_digest(name: str) -> None:
    """A name that a node or a tree gave must not be a way to another object."""
    if not is_digest(name):
        raise StateError("This is not a digest.")


def checked(data: bytes, sha256: str, *, most_bytes: int) -> bytes:
    if len(data) > most_bytes or hashlib.sha256(data).hexdigest() != sha256:
        raise StateError(f"Blob {sha256} does not match its digest.", "Somebody changed it in [cluster.blobs].")
    return data


def missing(sha256: str) -> BlobMissing:
    return BlobMissing(f"Blob {sha256} is missing.", "Check [cluster.blobs] on every machine.")
