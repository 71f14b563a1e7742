"""Bytes by their digest, in a folder that every machine of a cluster sees. What is read is held against its name."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from palyra.errors import StateError

CHUNK = 1 << 20


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
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise StateError("This is no digest.")
        try:
            with self._path(sha256).open("rb") as file:
                data = file.read(most_bytes + 1)
        except OSError as error:
            raise StateError(f"Blob {sha256} is not there.", "Check [cluster] blobs on every machine.") from error
        if len(data) > most_bytes or hashlib.sha256(data).hexdigest() != sha256:
            raise StateError(f"Blob {sha256} is not what its name says.")
        return data

    def _path(self, sha256: str) -> Path:
        return self._root / sha256[:2] / sha256
