"""The vault's file on the disk: read whole, changed by staging and renaming, one process at a time.

Rules: the folder and the file are the owner's alone, or nothing is read. A change is durable beside the file before
anybody commits to it; after the commit it is renamed into place, by this process or by whoever opens the vault next.
What counts is the digest that the database has: this room is told it and never decides it.

Not here: what is in the file (store), how it is sealed (box).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from palyra.errors import StateError
from palyra.state.keyfile import check_private, sync_folder
from palyra.state.lock import FileLock
from palyra.vault import keys

MAX_FILE_BYTES = 128 << 20
RESTORE = "Restore the vault folder and the state folder of the home from one backup."
_PATIENCE_S = 10.0


def digest_of(data: bytes) -> str:
    """As the database records it; of no file, nothing."""
    return hashlib.sha256(data).hexdigest() if data else ""


class VaultFile:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "secrets.json"
        self._place = str(self.path)
        self._staged = folder / "secrets.next"

    def identity(self) -> tuple[int, ...]:
        """Changes with every change of the file; empty where there is none."""
        try:
            found = os.stat(self._place, follow_symlinks=False)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StateError(f"The vault {self.path} cannot be read: {error.strerror}.") from error
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self) -> bytes:
        if not self.identity():
            return b""
        check_private(self.folder, os.stat(self.folder, follow_symlinks=False), is_kind=stat.S_ISDIR)
        return keys.read_private(self.path, what="The vault", most=MAX_FILE_BYTES)

    def stage(self, data: bytes) -> None:
        self._staged.unlink(missing_ok=True)
        keys.write_durably(self._staged, data)
        sync_folder(self.folder)

    def put_in_place(self) -> None:
        os.replace(self._staged, self.path)
        sync_folder(self.folder)

    def finish_staged(self, recorded: str) -> None:
        """A change that was committed and not put in place is; one that was not committed is forgotten."""
        if not self._staged.exists():
            return
        if digest_of(keys.read_private(self._staged, what="The vault", most=MAX_FILE_BYTES)) == recorded:
            self.put_in_place()
        else:
            self._staged.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        lock = FileLock(self.folder)
        try:
            taken = lock.acquire(_PATIENCE_S)
        except OSError as error:
            raise StateError(f"The vault is missing: {error.strerror}.", RESTORE) from error
        if not taken:
            raise _busy()
        try:
            yield
        finally:
            lock.close()

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """The same for a change, without holding the loop up: other calls go on meanwhile."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lock = FileLock(self.folder)
        clock = asyncio.get_running_loop().time
        deadline = clock() + _PATIENCE_S
        try:
            while not lock.try_acquire():
                if clock() >= deadline:
                    raise _busy()
                await asyncio.sleep(0.01)
            yield
        finally:
            lock.close()


def _busy() -> StateError:
    return StateError("Another process is changing the vault.", "Try again in a moment.")
