"""Compiled modules on disk: native code, so only what this installation compiled is ever loaded.

A file is named by everything its meaning hangs on (the module's digest, wasmtime's version, our settings, the
processor's features) and begins with a MAC over that name and its bytes, under a key that only the owner can read.
Bytes are read once, and it is those bytes that are verified and handed on: a file swapped in between changes nothing. A
file that does not verify is removed and built again. Never accepted from a package. What is kept is bounded: the
longest unused goes first, or whoever may send modules could fill the disk.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from palyra.errors import StateError

MAC_BYTES: Final = 32
KEY_BYTES: Final = 32
MAX_ARTEFACT_BYTES: Final = 256 << 20
MOST_BYTES: Final = 1 << 30
_PRIVATE = 0o600


class ArtefactCache:
    def __init__(self, folder: Path, *, meaning: str, most_bytes: int = MOST_BYTES) -> None:
        """`meaning`: wasmtime's version, our engine settings, the machine and its processor's features, as one text."""
        self._folder = folder
        self._most_bytes = most_bytes
        self._meaning = hashlib.sha256(meaning.encode()).hexdigest()
        self._key = b""

    def read(self, module_sha256: str) -> bytes | None:
        path = self._path(module_sha256)
        try:
            data = _read_private(path)
        except FileNotFoundError:
            return None
        except OSError:
            _remove(path)
            return None
        found, artefact = data[:MAC_BYTES], data[MAC_BYTES:]
        if not hmac.compare_digest(found, self._mac(path.name, artefact)):
            _remove(path)
            return None
        with suppress(OSError):
            os.utime(path)
        return artefact

    def write(self, module_sha256: str, artefact: bytes) -> None:
        """Whole or not at all; two that compile the same module write the same."""
        path = self._path(module_sha256)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}")
        self._write(temporary, self._mac(path.name, artefact) + artefact)
        os.replace(temporary, path)
        self._trim()

    def _trim(self) -> None:
        left = self._most_bytes
        for size, path in _newest_first(self._folder):
            left -= size
            if left < 0:
                _remove(path)

    def _mac(self, name: str, artefact: bytes) -> bytes:
        return hmac.digest(self._secret(), name.encode() + b"\0" + artefact, "sha256")

    def _path(self, module_sha256: str) -> Path:
        return self._folder / f"{module_sha256}-{self._meaning[:32]}.cwasm"

    def _secret(self) -> bytes:
        if not self._key:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._folder / "key"
            if not path.exists():
                self._create_key(path)
            try:
                self._key = _read_private(path)
            except OSError as error:
                raise StateError(f"The key {path} cannot be trusted: {error}.", f"Remove {path}.") from error
            if len(self._key) != KEY_BYTES:
                self._key = b""
                raise StateError(f"The compiled modules' key {path} is damaged.", f"Remove {path}.")
        return self._key

    def _create_key(self, path: Path) -> None:
        temporary = path.with_name(f".key.{os.getpid()}-{os.urandom(8).hex()}")
        self._write(temporary, os.urandom(KEY_BYTES))
        try:
            os.link(temporary, path)  # unlike a rename, a link cannot replace another process's key
        except FileExistsError:
            pass
        finally:
            temporary.unlink()

    def _write(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
        except BaseException:
            _remove(path)
            raise


def _read_private(path: Path) -> bytes:
    """Raises OSError for a link, a special file, and what another user could have written."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise OSError("not a private file of this user")
        return file.read(MAX_ARTEFACT_BYTES + MAC_BYTES)


def _newest_first(folder: Path) -> list[tuple[int, Path]]:
    found = []
    for path in folder.glob("*.cwasm"):
        with suppress(OSError):  # another process may have taken it away
            about = path.stat()
            found.append((about.st_mtime_ns, about.st_size, path))
    return [(size, path) for _, size, path in sorted(found, reverse=True)]


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
