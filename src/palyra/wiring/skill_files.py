"""Touches: the file system. The files of installed skills, each payload in a folder named by its digest.

Rules: members are written one by one into a folder of their own (never through a link, never over anything, 0444), made
durable, and only then renamed into place, so a folder under a digest is whole or not there; what a crash left is swept
by the next writer, under a lock. Reading follows no link, and what does not give the payload's digest again, file for
file with none more, is tampered with, whoever changed it.

Not here: which payloads there are (skills/store), what happens to one that was changed (wiring/skills).
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from palyra.canon import sha256_hex
from palyra.errors import StateError
from palyra.skills.archive import MAX_ENTRIES, check_path, most_bytes, write_zip
from palyra.skills.findings import Finding, SkillRefused
from palyra.state.connection import PATIENCE_S
from palyra.state.keyfile import sync_folder
from palyra.state.lock import FileLock

Signature = tuple[tuple[int, ...], ...]
"""What changes when somebody touches a file: kind, size, times, place on the disk."""
CHANGED = 3
"""Where in it the time of the last change is, which nobody can set."""

_NEW = ".new-"
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class SkillFiles:
    def __init__(self, home: Path) -> None:
        self.root = home / "skills"

    def folder(self, sha256: str) -> Path:
        return self.root / sha256

    def is_here(self, sha256: str) -> bool:
        return os.path.lexists(self.folder(sha256))

    @contextmanager
    def writing(self, known: Callable[[], frozenset[str]]) -> Iterator[None]:
        """Hold the folder for a change; what no row knows is swept first. `known`: digests whose files belong here."""
        try:
            self.root.mkdir(mode=0o700, exist_ok=True)
            lock = FileLock(self.root)
            if not lock.acquire(PATIENCE_S):
                raise StateError(f"Another process has been changing {self.root} for {PATIENCE_S:.0f} s.", "Try again.")
            try:
                self._sweep(known())
                yield
            finally:
                lock.close()
        except OSError as error:
            raise StateError(f"Skills cannot be stored in {self.root}: {error.strerror}.", "palyra doctor") from error

    def write(self, sha256: str, files: Mapping[str, bytes]) -> bool:
        """Within `writing`. True when other files had been put in their place, which are gone now."""
        target = self.folder(sha256)
        replaced = False
        if target.exists() or target.is_symlink():
            try:
                self.read(sha256)
            except SkillRefused:
                os.rename(target, self._fresh())  # swept by the next writer, if we do not get to it
                replaced = True
            else:
                return False
        folder = self._fresh()
        os.mkdir(folder, 0o700)
        for path in sorted(files):
            _write_member(folder, check_path(path), files[path])
        for made in sorted({folder, *(folder / p for path in files for p in Path(path).parents)}, reverse=True):
            sync_folder(made)
        os.rename(folder, target)
        sync_folder(self.root)
        return replaced

    def _fresh(self) -> Path:
        return self.root / f"{_NEW}{os.getpid()}-{os.urandom(6).hex()}"

    def remove(self, sha256: str) -> None:
        """Within `writing`, after the rows say so."""
        _rmtree(self.folder(sha256))

    def read(self, sha256: str) -> dict[str, bytes]:
        """Every file of the payload; `SkillRefused` when they are not exactly what was installed."""
        folder = self.folder(sha256)
        try:
            if not stat.S_ISDIR(os.lstat(folder).st_mode):
                raise ValueError("a link instead of the folder")
            files = {path: _read_member(folder, path) for path in _members(folder)}
            same = sha256_hex(write_zip(files)) == sha256
        except (OSError, SkillRefused, ValueError):
            same, files = False, {}
        if not same:
            raise SkillRefused(
                Finding.TAMPERED,
                f"The files of payload {sha256[:12]} are not those that were installed.",
                "Install the skill again from its package.",
            )
        return files

    def names(self, sha256: str) -> tuple[str, ...]:
        """Every file and folder of the payload, its own folder first. A name more or less later changes a folder's
        times, so these are all that has to be looked at again."""
        folder = self.folder(sha256)
        try:
            return (str(folder), *(f"{folder}/{path}" for path in _walk(folder)))
        except OSError:
            return ()

    @staticmethod
    def signature(names: Sequence[str]) -> Signature:
        """From the inodes alone; empty when one of them is gone."""
        try:
            seen = [os.lstat(name) for name in names]
        except OSError:
            return ()
        return tuple((s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_dev) for s in seen)

    def _sweep(self, known: frozenset[str]) -> None:
        for entry in list(os.scandir(self.root)):
            if entry.name not in known:
                _rmtree(Path(entry.path))


def _write_member(folder: Path, path: str, data: bytes) -> None:
    *parents, name = path.split("/")
    at = folder
    for part in parents:
        at = at / part
        if not at.exists():
            os.mkdir(at, 0o700)
    fd = os.open(at / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fchmod(fd, 0o444)
        os.fsync(fd)


def _read_member(folder: Path, path: str) -> bytes:
    """The bytes of a plain file that nobody else may write; what is read is what will be hashed and run."""
    fd = os.open(folder / path, _FLAGS)
    with os.fdopen(fd, "rb") as file:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_size > most_bytes(path):
            raise ValueError(f"{path} is not a plain file")
        data = file.read(most_bytes(path) + 1)
    if len(data) > most_bytes(path):
        raise ValueError(f"{path} has grown")
    return data


def _members(folder: Path) -> list[str]:
    found = [path for path in _walk(folder) if not stat.S_ISDIR(os.lstat(folder / path).st_mode)]
    if len(found) > MAX_ENTRIES:
        raise ValueError("more files than the package has")
    return found


def _walk(folder: Path, below: str = "") -> Iterator[str]:
    """Every name, folders before what is in them; a link is a name like any other, and is not entered."""
    with os.scandir(folder / below) as entries:
        names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    if len(names) > 2 * MAX_ENTRIES:
        raise OSError("more files than the package has")
    for name, is_folder in names:
        path = f"{below}/{name}" if below else name
        yield path
        if is_folder:
            yield from _walk(folder, path)


def _rmtree(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    shutil.rmtree(path)
