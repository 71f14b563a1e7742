"""Removing a folder that a program filled: however deep it nested, whatever modes it set.

`shutil.rmtree` goes down by recursion with a descriptor for each level: a few thousand folders within one another end
it with an exception, and a folder that its owner may not enter stays. Here folders are moved up beside the first one
and emptied there, so depth costs nothing. Links are removed and never followed. Nobody may still run in it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | os.PathLike[str]) -> bool:
    """False when some of it would not go."""
    try:
        top = _open(os.fspath(path))
    except (FileNotFoundError, NotADirectoryError):
        return not os.path.lexists(path)
    except OSError:
        return False
    try:
        _empty(top)
    except OSError:
        return False
    finally:
        os.close(top)
    with suppress(OSError):
        os.rmdir(path)
    return not os.path.lexists(path)


def _empty(top: int) -> None:
    prefix, count = os.urandom(8).hex(), 0
    while names := os.listdir(top):
        for name in names:
            if not _is_folder(name, top):
                os.unlink(name, dir_fd=top)
                continue
            inner = _open(name, dir_fd=top)
            try:
                for below in os.listdir(inner):
                    if _is_folder(below, inner):
                        os.close(_open(below, dir_fd=inner))  # moving a folder needs the right to write it
                        os.rename(below, f"{prefix}-{count}", src_dir_fd=inner, dst_dir_fd=top)
                        count += 1
                    else:
                        os.unlink(below, dir_fd=inner)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)


def _open(name: str, dir_fd: int | None = None) -> int:
    """For reading and writing, also where its owner took that away."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        if os.fstat(handle).st_mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(".", _FOLDER, dir_fd=handle)
    finally:
        os.close(handle)


def _is_folder(name: str, dir_fd: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode)
