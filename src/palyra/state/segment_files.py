"""The folder of sealed entries: one retention at a time, and nothing left there that nobody refers to.

Touches: that folder. Rules: whoever seals or removes holds its lock, because two that sealed at once wrote into one
file, and what the first had taken out of the database was nowhere; what a crash left between a file and its row is
removed by the next one, unless entries say that it stands, whatever its row says. Where a file system keeps no locks (a
folder that a cluster shares), the commit itself refuses the second.

Not here: what is sealed and removed, and when (state/segments), reading it back (state/sealed).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from palyra.errors import StateError
from palyra.journal.acts import ActKind
from palyra.journal.lookup import Lookup
from palyra.state.keyfile import sync_folder
from palyra.state.lock import FileLock, NoLocks
from palyra.state.sealed import segment_file
from palyra.state.writer import Writer

PATIENCE_S = 30.0


@contextlib.contextmanager
def alone_with_segments(writer: Writer) -> Iterator[None]:
    folder = writer.home.segments
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StateError(
            f"The folder {folder} cannot be made: {error.strerror}.", "Make it, then try again."
        ) from error
    lock = FileLock(folder)
    try:
        if not _acquire(lock):
            raise StateError("Another process is sealing or removing entries.", "Try again when it has ended.")
        _remove_left(writer, folder)
        yield
        _remove_left(writer, folder)
    finally:
        lock.close()


def _acquire(lock: FileLock) -> bool:
    try:
        return lock.acquire(PATIENCE_S)
    except (OSError, NoLocks):
        return True


def _remove_left(writer: Writer, folder: Path) -> None:
    """Files of entries that lie in other files by now, or nowhere any more. One that begins behind all of them may be
    another process's, which is about to tell of it."""
    rows = writer.rows("SELECT first, count, present FROM segments")
    kept = {segment_file(folder, first, count) for first, count, present in rows if present}
    end = max((first + count for first, count, _ in rows), default=0)
    left = []
    for path in folder.glob("*-*.jsonl"):
        first = path.name.partition("-")[0]
        if first.isdecimal() and int(first) < end and path not in kept:
            left.append(path)
    if left:
        _check_left(writer, left)
    for path in left:
        remove_segment(path)


def _check_left(writer: Writer, left: list[Path]) -> None:
    """That no entry says that they stand: whoever edits a row would have them removed by whoever runs retention next,
    and with them the only copy of entries of whatever age."""
    lookup = Lookup(writer.rows, writer.home.verifier)
    names = {f"segment/{path.name}" for path in left}
    sealed = lookup.acts_about(names, ActKind.SEGMENT_SEALED.value)
    removed = lookup.acts_about(set(sealed), ActKind.ENTRIES_PRUNED.value) if sealed else {}
    if standing := sorted(set(sealed) - set(removed)):
        raise StateError(
            f"The row of the sealed file {standing[0].removeprefix('segment/')} is not what its entries say: it stays.",
            "Run: palyra journal verify",
        )


def remove_segment(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise StateError(
            f"{path} was to be removed, and could not be: {error.strerror}.", "Run palyra journal retain again."
        ) from error


def others_were_here() -> StateError:
    """In the commit; nothing of it was done."""
    return StateError("Another process sealed or removed these entries meanwhile.", "Try again.")
