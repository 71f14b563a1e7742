"""A disk that remembers: every write and sync SQLite makes, in order, so that a power cut can be played at any moment.

A VFS in front of SQLite's own, registered by ctypes in the very library that Python's sqlite3 uses, so that the real
writer is tested and not a model of it. What was synced is durable; of what was not, a cut keeps any part of it, down to
single sectors, in any order. Faults can be injected: a write or sync that the disk refuses.
"""

from __future__ import annotations

import ctypes
import os
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

SECTOR = 512
IOERR_WRITE, IOERR_FSYNC, FULL = 778, 1034, 13

_int, _i64, _ptr = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p


class _Methods(ctypes.Structure):
    _fields_ = (
        ("iVersion", _int),
        *((name, _ptr) for name in (
            "xClose", "xRead", "xWrite", "xTruncate", "xSync", "xFileSize", "xLock", "xUnlock", "xCheckReservedLock",
            "xFileControl", "xSectorSize", "xDeviceCharacteristics", "xShmMap", "xShmLock", "xShmBarrier", "xShmUnmap",
            "xFetch", "xUnfetch",
        )),
    )  # fmt: skip


class _File(ctypes.Structure):
    _fields_ = (("pMethods", ctypes.POINTER(_Methods)),)


class _Vfs(ctypes.Structure):
    _fields_ = (
        ("iVersion", _int), ("szOsFile", _int), ("mxPathname", _int), ("pNext", _ptr), ("zName", ctypes.c_char_p),
        ("pAppData", _ptr),
        *((name, _ptr) for name in (
            "xOpen", "xDelete", "xAccess", "xFullPathname", "xDlOpen", "xDlError", "xDlSym", "xDlClose", "xRandomness",
            "xSleep", "xCurrentTime", "xGetLastError", "xCurrentTimeInt64", "xSetSystemCall", "xGetSystemCall",
            "xNextSystemCall",
        )),
    )  # fmt: skip


_OPEN = ctypes.CFUNCTYPE(_int, _ptr, _ptr, _ptr, _int, ctypes.POINTER(_int))
# the name by its address: SQLite keeps the pointer, and a copy of ours would be gone by the time it is read again
_DELETE = ctypes.CFUNCTYPE(_int, _ptr, ctypes.c_char_p, _int)
_WRITE = ctypes.CFUNCTYPE(_int, _ptr, _ptr, _int, _i64)
_TRUNCATE = ctypes.CFUNCTYPE(_int, _ptr, _i64)
_SYNC = ctypes.CFUNCTYPE(_int, _ptr, _int)


@dataclass(frozen=True)
class Event:
    file: str
    what: str
    """write, truncate, sync, delete"""
    offset: int = 0
    data: bytes = b""


@dataclass
class Disk:
    events: list[Event] = field(default_factory=list)
    fail_write_at: int = 1 << 60
    fail_sync_at: int = 1 << 60
    fail_code: int = IOERR_WRITE
    _keep: list[object] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    writes: int = 0
    syncs: int = 0

    def install(self) -> bool:
        """Stand in front of the default VFS; False where Python's SQLite is not a library of its own."""
        try:
            library = ctypes.CDLL("libsqlite3.so.0", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            return False
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        library.sqlite3_vfs_find.argtypes = (ctypes.c_char_p,)
        original = library.sqlite3_vfs_find(None).contents
        mine = _Vfs()
        ctypes.memmove(ctypes.byref(mine), ctypes.byref(original), ctypes.sizeof(_Vfs))
        mine.zName, mine.pNext = b"remembering", None
        opened, deleted = _OPEN(original.xOpen), _DELETE(original.xDelete)

        def x_open(_vfs: int, name: int | None, file: int, flags: int, out: object) -> int:
            code: int = opened(ctypes.addressof(original), name, file, flags, out)
            path = ctypes.string_at(name) if name else b"-shm"
            if code == 0 and not path.endswith(b"-shm"):
                self._wrap(file, os.path.basename(path.decode()))
            return code

        def x_delete(_vfs: int, name: bytes, sync: int) -> int:
            self._note(Event(os.path.basename(name.decode()), "delete"))
            code: int = deleted(ctypes.addressof(original), name, sync)
            return code

        callbacks = (_OPEN(x_open), _DELETE(x_delete))
        mine.xOpen, mine.xDelete = (ctypes.cast(callback, _ptr).value for callback in callbacks)
        self._keep += [mine, original, opened, deleted, callbacks]
        library.sqlite3_vfs_register.argtypes = (_ptr, _int)
        return bool(library.sqlite3_vfs_register(ctypes.addressof(mine), 1) == 0)

    def _note(self, event: Event) -> int:
        with self._guard:
            self.events.append(event)
            if event.what == "write":
                self.writes += 1
                return self.fail_code if self.writes >= self.fail_write_at else 0
            if event.what == "sync":
                self.syncs += 1
                return self.fail_code if self.syncs >= self.fail_sync_at else 0
            return 0

    def _wrap(self, address: int, name: str) -> None:
        file = ctypes.cast(address, ctypes.POINTER(_File)).contents
        original, mine = file.pMethods.contents, _Methods()
        ctypes.memmove(ctypes.byref(mine), ctypes.byref(original), ctypes.sizeof(_Methods))
        write, cut, sync = _WRITE(original.xWrite), _TRUNCATE(original.xTruncate), _SYNC(original.xSync)

        def x_write(this: int, data: int, count: int, offset: int) -> int:
            code = self._note(Event(name, "write", offset, ctypes.string_at(data, count)))
            return code or int(write(this, data, count, offset))

        def x_truncate(this: int, size: int) -> int:
            self._note(Event(name, "truncate", size))
            return int(cut(this, size))

        def x_sync(this: int, flags: int) -> int:
            return self._note(Event(name, "sync")) or int(sync(this, flags))

        callbacks = (_WRITE(x_write), _TRUNCATE(x_truncate), _SYNC(x_sync))
        mine.xWrite, mine.xTruncate, mine.xSync = (ctypes.cast(callback, _ptr).value for callback in callbacks)
        self._keep += [mine, original, write, cut, sync, callbacks]
        file.pMethods = ctypes.pointer(mine)


def cut_power(before: dict[str, bytes], events: list[Event], *, chance: random.Random) -> dict[str, bytes]:
    """The files as a disk may hold them after a cut behind the last of `events`."""
    images = {name: bytearray(data) for name, data in before.items()}
    pending: dict[str, list[Event]] = {}
    for event in events:
        if event.what == "sync":
            _apply(images.setdefault(event.file, bytearray()), pending.pop(event.file, []), None)
        elif event.what == "delete":
            images.pop(event.file, None)
            pending.pop(event.file, None)
        else:
            pending.setdefault(event.file, []).append(event)
    lucky = chance.random()
    for name, rest in pending.items():
        image = images.setdefault(name, bytearray())
        if lucky > 0.3:  # else nothing that was not synced survives
            _apply(image, rest, chance)
    return {name: bytes(image) for name, image in images.items()}


def _apply(image: bytearray, events: list[Event], chance: random.Random | None) -> None:
    for event in events:
        if event.what == "truncate":
            if chance is None or chance.random() < 0.8:
                del image[event.offset :]
            continue
        if chance is not None and chance.random() < 0.2:
            continue
        at, end = event.offset, event.offset + len(event.data)
        while at < end:
            stop = min(end, (at // SECTOR + 1) * SECTOR)
            if chance is None or chance.random() < 0.7:
                if len(image) < stop:
                    image.extend(bytes(stop - len(image)))
                image[at:stop] = event.data[at - event.offset : stop - event.offset]
            at = stop


def restore(state: Path, images: dict[str, bytes]) -> None:
    for leftover in state.glob("palyra.db*"):
        leftover.unlink()
    for name, data in images.items():
        (state / name).write_bytes(data)
        (state / name).chmod(0o600)
