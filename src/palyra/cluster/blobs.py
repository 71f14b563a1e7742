"""Bytes by their digest, where every machine of a cluster finds them. What is read is held against its name.

Here: what any such store can do, and the one in a folder that all machines see. The one in an S3-compatible store is
cluster/s3.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from palyra.errors import StateError

_DIGITS = frozenset("0123456789abcdef")


class Blobs(Protocol):
    """`StateError` from each, when the store cannot be used or what it holds is not what its name says."""

    def put(self, data: bytes) -> str:
        """Keeps it; its SHA-256."""

    def get(self, sha256: str, *, most_bytes: int) -> bytes: ...

    def has(self, sha256: str) -> bool: ...

    def delete(self, sha256: str) -> None:
        """Nothing happens when it is not there."""

    def kept(self) -> Iterator[tuple[str, int]]:
        """Every digest with the moment it was kept, in Unix milliseconds."""

    def forget(self) -> None:
        """Take nothing for being there that was there once."""

    def close(self) -> None: ...


class BlobMissing(StateError):
    """It is not there (any more): whoever has the bytes puts them again."""


class BlobFolder:
    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        path = self._path(sha256)
        if not path.exists():
            path.parent.mkdir(mode=0o700, exist_ok=True)
            temporary = path.with_name(f".{sha256}.{os.urandom(8).hex()}")
            temporary.write_bytes(data)
            temporary.replace(path)
        return sha256

    def get(self, sha256: str, *, most_bytes: int) -> bytes:
        check_digest(sha256)
        try:
            with self._path(sha256).open("rb") as file:
                data = file.read(most_bytes + 1)
        except FileNotFoundError as error:
            raise missing(sha256) from error
        except OSError as error:
            raise StateError(f"Blob {sha256} cannot be read: {error}.", "Check [cluster.blobs] folder.") from error
        return checked(data, sha256, most_bytes=most_bytes)

    def has(self, sha256: str) -> bool:
        check_digest(sha256)
        return self._path(sha256).exists()

    def delete(self, sha256: str) -> None:
        check_digest(sha256)
        self._path(sha256).unlink(missing_ok=True)

    def kept(self) -> Iterator[tuple[str, int]]:
        for path in self._root.glob("??/*"):
            if is_digest(path.name):
                yield path.name, path.stat().st_mtime_ns // 1_000_000

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
        raise StateError("This is no digest.")


def checked(data: bytes, sha256: str, *, most_bytes: int) -> bytes:
    if len(data) > most_bytes or hashlib.sha256(data).hexdigest() != sha256:
        raise StateError(f"Blob {sha256} is not what its name says.", "Somebody changed it in [cluster.blobs].")
    return data


def missing(sha256: str) -> BlobMissing:
    return BlobMissing(f"Blob {sha256} is not there.", "Check [cluster.blobs] on every machine.")
