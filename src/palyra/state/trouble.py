"""Why a database cannot be opened, in words that name the cause: SQLite says "disk I/O error" for a full disk too.

Touches: the file system, asking only. Looked for in the order in which one cause hides another. Not here: what a write
that fails does to a running journal (state/writer).
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from palyra.errors import StateError
from palyra.state.place import Replaced


class NoRoom(StateError):
    """The disk is full: what is left is for records of what has run."""


def no_room() -> NoRoom:
    return NoRoom("The disk is full; nothing can be recorded.", "Free some space, then try again.")


FULL_BELOW_BYTES = 256 * 1024
"""Less than SQLite needs to begin with: the index of its log, and a page or two."""
_DAMAGED = frozenset({11, 26})  # CORRUPT, NOTADB
OPEN_FILES = "Raise the limit on open files (ulimit -n 1024), or end some programs."
WRITABLE = "Mount its file system writable, let this user write to it, or name another --home."
RESTORE = "Restore it from a backup, or name another --home."


def is_full(place: Path) -> bool:
    try:
        disk = os.statvfs(place)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < FULL_BELOW_BYTES


def unusable(database: Path, error: Exception) -> StateError:
    """The sentence and the hint for whoever wanted to use it."""
    cause, hint = _cause(database, error)
    return StateError(f"The database {database} cannot be used: {cause}.", hint)


def _cause(database: Path, error: Exception) -> tuple[str, str]:
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, sqlite3.Error) and isinstance(code, int) and code & 0xFF in _DAMAGED:
        return f"it is damaged ({error})", RESTORE
    if _numbers_are_out(error):
        return "too many files are open", OPEN_FILES
    folder = database.parent
    try:
        read_only = bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError as problem:
        return str(problem.strerror), RESTORE
    if not database.exists():
        return "it is missing", RESTORE
    if read_only:
        return "its file system is mounted read-only", "Mount it writable, or name another --home."
    if is_full(folder):
        return "the disk is full", f"Free some space below {folder.parent}, or name another --home."
    if not (os.access(folder, os.W_OK | os.X_OK) and os.access(database, os.R_OK | os.W_OK)):
        return "this user may not write to it", f"Give the folder {folder} back to this user, or name another --home."
    return str(error), RESTORE


def hint_for(error: BaseException) -> str:
    """What helps where a commit failed in a database that was open."""
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int) and code & 0xFF == sqlite3.SQLITE_READONLY:
        return WRITABLE
    if isinstance(error, Replaced):
        return "Put it back as it was or restore a backup, run palyra journal verify, then start again."
    if _numbers_are_out(error):
        return OPEN_FILES
    return "Check the disk, then start again."


def _numbers_are_out(error: BaseException) -> bool:
    """Asked by opening one more, since SQLite does not say."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return True
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as problem:
        return problem.errno in (errno.EMFILE, errno.ENFILE)
    return False
