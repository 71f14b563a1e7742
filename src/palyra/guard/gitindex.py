"""A repository's index: which folders in it are repositories of their own, whose settings git obeys when it looks in.

Pure: bytes in, names out. Versions 2 to 4 are read, with hashes of either length. Rules: most indexes hold none, and
that is seen without reading entry by entry; what cannot be read is an error, for whoever asks to take as the worst.

Not here: the file (look_git), what those settings are (gitconfig).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

MAX_BYTES: Final = 16 << 20
_GITLINK: Final = 0o160000
_MODES: Final = frozenset({0o100644, 0o100755, 0o120000, 0o040000, _GITLINK})
_MARK: Final = _GITLINK.to_bytes(4, "big")
_STAT_BYTES: Final = 40
_MODE_AT: Final = 24
_EXTENDED: Final = 0x4000
_HASHES: Final = (20, 32)


def nested_in(data: bytes) -> tuple[bytes, ...]:
    """Paths of nested repositories, below the top. Raises ValueError for what is no index."""
    if _MARK not in data:
        return ()
    for hash_bytes in _HASHES:
        try:
            return tuple(name for mode, name in _entries(data, hash_bytes) if mode == _GITLINK)
        except (ValueError, IndexError):
            continue
    raise ValueError("not an index")


def _entries(data: bytes, hash_bytes: int) -> Iterator[tuple[int, bytes]]:
    if data[:4] != b"DIRC" or not 2 <= (version := _number(data, 4)) <= 4:
        raise ValueError("not an index")
    at, before = 12, b""
    for _ in range(_number(data, 8)):
        start, mode = at, _number(data, at + _MODE_AT)
        if mode not in _MODES:
            raise ValueError("no mode of a file")
        at += _STAT_BYTES + hash_bytes
        at += 4 if int.from_bytes(data[at : at + 2], "big") & _EXTENDED else 2
        if version == 4:
            cut, at = _varint(data, at)
            end = data.index(b"\0", at)
            before = before[: len(before) - cut] + data[at:end] if cut <= len(before) else data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            before = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        yield mode, before


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
