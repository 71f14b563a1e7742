"""Changes files of a workspace: all of them or none, and tells what they were before.

1 judge every name   2 look at every file and check what it is expected to be   3 write every new content beside its
place, durable   4 put them in place, one rename each, checking that nothing changed since 2   5 take away what is left.
Whatever fails before the end of 4 is taken back in reverse. No link is followed anywhere, a file that has several names
keeps its others as they are, and only regular files are replaced. Being killed within 4 leaves the files already
renamed as they are: each is whole, old or new.

Not here: which changes (edits).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import signal
import stat
from typing import Any

from palyra.inside import beneath
from palyra.inside.beneath import Refused, shown

MAX_FILE_BYTES = 4 << 20
MAX_BEFORE_BYTES = 4 << 20
"""Of all files together, before the change: they are kept so that it can be undone."""
ABSENT = "absent"
NOREPLACE, EXCHANGE = 1, 2
_UNDRAWN = frozenset(map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0x180B, 0x1810)))) | {
    *map(chr, range(0xFE00, 0xFE10)),
    *map(chr, range(0xE0100, 0xE01F0)),
}
_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class Change:
    def __init__(
        self, parts: tuple[bytes, ...], content: bytes | None, *, expected: str | None = None, mode: int | None = None
    ) -> None:
        self.parts = parts
        self.content = content
        """None: it is to be deleted."""
        self.expected = expected
        """SHA-256 of what must be there, ABSENT, or None for whatever is there."""
        self.mode = mode
        self.folder = -1
        self.before: bytes | None = None
        self.before_mode = 0
        self.seen: tuple[int, ...] = ()
        self.beside = b""
        """The name of its new content, and after the exchange of its old, beside it."""

    @property
    def path(self) -> str:
        return shown(b"/".join(self.parts))

    @property
    def name(self) -> bytes:
        return self.parts[-1]


def digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def carry_out(root: int, changes: list[Change], request: dict[str, Any], *, make_folders: bool) -> None:
    for change in changes:  # 1
        refuse_protected(change.parts, request)
    made: list[tuple[int, bytes]] = []
    try:
        for change in changes:  # 2
            change.folder = _parent(root, change, made, make=make_folders and change.content is not None)
            _check(change)
        _check_sizes(changes)
        for change in changes:  # 3
            _stage(change)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
        _put_in_place(changes)  # 4
    except BaseException:
        for change in changes:
            _forget(change)
        for folder, name in reversed(made):
            _quietly(os.rmdir, name, dir_fd=folder)
        raise
    for change in changes:  # 5
        _forget(change)
        os.fsync(change.folder)


def refuse_protected(parts: tuple[bytes, ...], request: dict[str, Any]) -> None:
    """Names that other programs on the host run or trust, also those that do not exist yet."""
    if not parts:
        raise Refused("NOT_A_FILE", "The workspace itself is not a file.")
    names = [_plain(shown(part)) for part in parts]
    top = names[0]
    if ".git" in names or top.startswith(".env") or top in request["protected"]:
        name = shown(b"/".join(parts))
        raise Refused("PROTECTED", f"{name} is protected: other programs run or trust what is in it.", path=name)


def _plain(name: str) -> str:
    """As a file system takes it that folds case and drops what no font draws, or dots and blanks at the end."""
    if not name.isascii():
        import unicodedata

        letters = unicodedata.normalize("NFKC", name)
        name = "".join(letter for letter in letters if letter not in _UNDRAWN and unicodedata.category(letter) != "Cf")
    return name.casefold().rstrip(" .")


def _parent(root: int, change: Change, made: list[tuple[int, bytes]], *, make: bool) -> int:
    folder = beneath.open_folder(root, (), links=False)
    for at, part in enumerate(change.parts[:-1]):
        try:
            try:
                below = beneath.open_beneath(folder, (part,), os.O_RDONLY | os.O_DIRECTORY, links=False)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(part, 0o755, dir_fd=folder)
                made.append((folder, part))
                below = beneath.open_beneath(folder, (part,), os.O_RDONLY | os.O_DIRECTORY, links=False)
        except OSError as error:
            refusal = beneath.explain(error, b"/".join(change.parts[: at + 1]))
            if refusal.code == "NOT_FOUND":
                refusal.message += " create_dirs makes it."
            raise refusal from None
        if (folder, part) not in made[-1:]:  # what was made may have to be taken away again
            os.close(folder)
        folder = below
    return folder


def look(root: int, parts: tuple[bytes, ...]) -> tuple[bytes, int]:
    fd = beneath.open_file(root, parts, links=False)
    try:
        return _content(fd, parts), stat.S_IMODE(os.fstat(fd).st_mode) & 0o777
    finally:
        os.close(fd)


def _content(fd: int, parts: tuple[bytes, ...]) -> bytes:
    content = beneath.read_whole(fd, MAX_FILE_BYTES)
    if content is None:
        name = shown(b"/".join(parts))
        raise Refused("TOO_LARGE", f"{name} is larger than {MAX_FILE_BYTES} bytes.", path=name)
    return content


def _check(change: Change) -> None:
    try:
        fd = beneath.open_file(change.folder, (change.name,), links=False)
    except Refused as refusal:
        if refusal.code != "NOT_FOUND":
            raise Refused(refusal.code, refusal.message, path=change.path) from None
        if change.content is None or change.expected not in (None, ABSENT):
            raise Refused("NOT_FOUND", f"{change.path}: there is nothing of that name.", path=change.path) from None
        return
    try:
        if change.expected == ABSENT:
            raise Refused("EXISTS", f"{change.path} exists already.", path=change.path)
        change.before = _content(fd, change.parts)
        change.seen = _identity(os.fstat(fd))
        change.before_mode = stat.S_IMODE(os.fstat(fd).st_mode) & 0o777
    finally:
        os.close(fd)
    if change.expected is not None and digest(change.before) != change.expected:
        raise Refused("CHANGED", f"{change.path} is not what it was expected to be.", path=change.path)


def _check_sizes(changes: list[Change]) -> None:
    if sum(len(change.before or b"") for change in changes) > MAX_BEFORE_BYTES:
        raise Refused("TOO_LARGE", f"The files have more than {MAX_BEFORE_BYTES} bytes in all; split the change.")
    for change in changes:
        if change.content is not None and len(change.content) > MAX_FILE_BYTES:
            raise Refused("TOO_LARGE", f"{change.path} would be larger than {MAX_FILE_BYTES} bytes.", path=change.path)


def _identity(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _stage(change: Change) -> None:
    change.beside = b".palyra-%s.tmp" % os.urandom(8).hex().encode()
    if change.content is None:
        return
    mode = change.mode or (change.before_mode if change.before is not None else 0o644)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(change.beside, flags, 0o600, dir_fd=change.folder)
        try:
            view = memoryview(change.content)
            while view:
                view = view[os.write(fd, view) :]
            os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise beneath.explain(error, b"/".join(change.parts)) from None


def _put_in_place(changes: list[Change]) -> None:
    done: list[Change] = []
    try:
        for change in changes:
            try:
                _swap(change)
            except OSError as error:
                raise beneath.explain(error, b"/".join(change.parts)) from None
            done.append(change)
            if change.seen and _seen_at(change, change.beside) != change.seen:
                raise Refused("CHANGED", f"{change.path} was changed in the meantime.", path=change.path)
    except BaseException:
        for change in reversed(done):
            _swap_back(change)
        raise


def _swap(change: Change) -> None:
    """Afterwards the new content has the name, and the old one, if there was one, stands beside it."""
    if change.content is None:
        rename(change.folder, change.name, change.beside, NOREPLACE)
    elif change.seen:
        rename(change.folder, change.beside, change.name, EXCHANGE)
    else:
        rename(change.folder, change.beside, change.name, NOREPLACE)


def _swap_back(change: Change) -> None:
    try:
        if change.content is None:
            rename(change.folder, change.beside, change.name, NOREPLACE)
        elif change.seen:
            rename(change.folder, change.beside, change.name, EXCHANGE)
        else:
            rename(change.folder, change.name, change.beside, NOREPLACE)
    except OSError:
        change.beside = b""  # what stands beside it may be the only copy: it stays


def _seen_at(change: Change, name: bytes) -> tuple[int, ...]:
    return _identity(os.stat(name, dir_fd=change.folder, follow_symlinks=False))


def rename(folder: int, old: bytes, new: bytes, flags: int) -> None:
    number = _RENAMEAT2.get(os.uname().machine, 276)
    where = ctypes.c_int(folder)
    if _libc.syscall(ctypes.c_long(number), where, old, where, new, ctypes.c_uint(flags)):
        code = ctypes.get_errno()
        if code not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(code, os.strerror(code))
        _rename_by_links(folder, old, new, flags)


def _rename_by_links(folder: int, old: bytes, new: bytes, flags: int) -> None:
    """For file systems without these renames: a hard link keeps the old content until the new one has its name."""
    both = {"src_dir_fd": folder, "dst_dir_fd": folder}
    if flags == NOREPLACE:
        os.link(old, new, follow_symlinks=False, **both)
        os.unlink(old, dir_fd=folder)
        return
    spare = old + b"~"
    os.link(new, spare, follow_symlinks=False, **both)
    os.rename(old, new, **both)
    os.rename(spare, old, **both)


def _forget(change: Change) -> None:
    if change.beside and change.folder >= 0:
        _quietly(os.unlink, change.beside, dir_fd=change.folder)


def _quietly(act: Any, *arguments: Any, **options: Any) -> None:
    with contextlib.suppress(OSError):
        act(*arguments, **options)
