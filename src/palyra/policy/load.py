"""Touches: a folder of policy files. What is there is read whole, by size caps, or refused; nothing is half read.

Rules: a forbid is never lost quietly: what stands in the folder's place and is no folder, what stands in a file's place
and is no file, and whatever somebody else could write, along the whole way that links lead, is an error. Names that
begin with `.` or end in `~`, and `README.md`, are left out.

Not here: any check of the text itself (bundle, scan), which files are in use (store).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from palyra.late import late
from palyra.model.ownership import folders_above, is_absent, writable_by
from palyra.policy.scan import MAX_BUNDLE_BYTES, MAX_FILES, PolicyError

_EXAMPLES = "examples.toml"
_EXCEPTION = late(r"allow\.[0-9A-HJKMNP-TV-Z]{26}\.cedar")
_NAME_A_SOURCE = "Name a folder of policies, a .cedar file or a version of palyra policy versions."
Signature = tuple[tuple[str, int, int, int, int], ...]
"""(name, inode, size, times of change of content and of owner or mode) of each file: equal when untouched."""


def is_exception_file(name: str) -> bool:
    """Return whether this is the name of a file that `palyra policy allow` writes."""
    return _EXCEPTION.fullmatch(name) is not None


def read_folder(folder: Path | None, wanted: Callable[[str], bool] = bool) -> dict[str, str]:
    """An operator's policies; nothing when the folder's name is not there at all. `wanted`: by file name."""
    if folder is None:
        return {}
    try:
        return {} if is_absent(folder, os.lstat, os.stat) else _read_all(folder, wanted)
    except OSError as error:
        place = os.fsdecode(error.filename or folder)
        raise PolicyError(f"{error.strerror}.", "If it is a link, check where it leads.", file=place) from error


def read_source(path: Path) -> dict[str, str]:
    """A folder of policies, or one file alone. Raises PolicyError when there is neither, or nothing in it."""
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except OSError as error:
        raise PolicyError(f"{error.strerror}.", _NAME_A_SOURCE, file=str(path)) from None
    files = _one_file(path) if is_file else read_folder(path)
    if not files:
        raise PolicyError("There are no policies here.", _NAME_A_SOURCE, file=str(path))
    return files


def read_tested(path: Path) -> dict[str, str]:
    """The same, and with one file the examples beside it."""
    files, beside = read_source(path), path.parent / _EXAMPLES
    if path.is_file() and _EXAMPLES not in files and beside.is_file():
        files |= _one_file(beside)
    return files


def signature_of(folder: Path | None, wanted: Callable[[str], bool] = bool) -> Signature:
    """What a look costs some microseconds: whether the folder must be read again."""
    try:
        with os.scandir(folder) if folder is not None else _nothing() as entries:
            found = ((entry.name, entry.stat()) for entry in entries if wanted(entry.name))
            return tuple(sorted((name, i.st_ino, i.st_size, i.st_mtime_ns, i.st_ctime_ns) for name, i in found))
    except OSError:
        return ()


@contextmanager
def _nothing() -> Iterator[tuple[os.DirEntry[str], ...]]:
    yield ()


def _one_file(path: Path) -> dict[str, str]:
    try:
        return {path.name: _text(path, _read(path, MAX_BUNDLE_BYTES))}
    except OSError as error:
        raise PolicyError(f"{error.strerror}.", file=str(path)) from error


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise PolicyError("The file is not UTF-8 text.", file=str(path)) from None


def _read_all(folder: Path, wanted: Callable[[str], bool] = bool) -> dict[str, str]:
    _check_writers(folder, folder.stat(), top=folder.parent)
    texts: dict[str, str] = {}
    room = MAX_BUNDLE_BYTES
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name.endswith("~") or path.name == "README.md" or not wanted(path.name):
            continue
        if len(texts) >= MAX_FILES:
            raise PolicyError(f"A bundle has at most {MAX_FILES} files.", file=str(folder))
        data = _read(path, room)
        room -= len(data)
        texts[path.name] = _text(path, data)
    return texts


def _read(path: Path, room: int) -> bytes:
    # Not blocking, and judged by what was opened: a FIFO must not hang the start.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise PolicyError("Only files belong here.", "Move it elsewhere.", file=str(path))
        _check_writers(path, found, top=path.parent)
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(room + 1)
    finally:
        os.close(fd)
    if len(data) > room:
        raise PolicyError(f"A bundle has at most {MAX_BUNDLE_BYTES} bytes.", file=str(path))
    return data


def _check_writers(path: Path, found: os.stat_result, *, top: Path) -> None:
    """Whoever can write a policy, or swap its folder, decides everything."""
    resolved = Path(os.path.realpath(path))
    looked = [(resolved, found, False)]
    looked += [(Path(p), os.stat(p), True) for p in folders_above(resolved, Path(os.path.realpath(top)))]
    for place, info, above in looked:
        who = writable_by(info, own_uid=os.geteuid(), above=above)
        if who is not None:
            raise PolicyError(
                f"{who} can write here.",
                f"Make it yours, and not writable by others: chmod go-w '{place}'",
                file=str(place),
            )
