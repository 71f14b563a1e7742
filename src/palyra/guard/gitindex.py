"""A repository's index: which folders in it are repositories of their own, whose settings git obeys when it looks in.

Pure: bytes in, names out. Versions 2 to 4 are read, with hashes of either length. An agent can write an index byte by
byte, so every entry is read, and as git reads it: a kind by its upper bits alone, a name as long as its flags say, and
blocks where the table for threads says they begin. Rules: what cannot be read is an error, for whoever asks to take as
the worst, and so is a part of an index: what is behind it would not be seen. Whatever the bytes are, reading takes no
longer than their number allows.

Not here: the file (look_git), what those settings are, and how long hashes are (gitconfig).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

from palyra.late import late

MAX_BYTES: Final = 64 << 20
"""Some 700 000 files. Everybody waits while it is read, a fifth of a second for as many as that."""
MAX_BLOCKS: Final = 4096
"""Honest tables have one for each thread, and an index has one table: many that overlap would be read for hours."""
_KIND: Final = 0o170000
_GITLINK: Final = 0o160000
_EXTENDED: Final = 0x4000
_LENGTH: Final = 0xFFF
"""Of a name, in its flags; a longer one ends with a NUL."""
_HEADER_BYTES: Final = 12
_ENTRIES: Final = (struct.Struct(">24xI12x20xH"), struct.Struct(">24xI12x32xH"))
"""The mode and the flags of an entry, with hashes of 20 bytes and of 32."""
_TABLE = late(rb"IEOT(....)\x00\x00\x00\x01", re.DOTALL)
_BLOCK: Final = struct.Struct(">II")


def nested_in(data: bytes, *, sha256: bool = False, every: bool = False) -> tuple[bytes, ...]:
    """Paths of nested repositories, below the top, or of every entry. Raises ValueError for what is no whole index. An
    empty path stands for one in the shared part, of any kind there: where an index is split, what replaces an entry has
    no name."""
    if not data:
        return ()
    if data[:4] != b"DIRC" or not 2 <= _number(data, 4) <= 4:
        raise ValueError("not an index")
    try:
        return tuple(_nested(data, _ENTRIES[sha256], every=every))
    except (ValueError, IndexError, struct.error) as error:
        raise ValueError("not an index") from error


def _nested(data: bytes, entry: struct.Struct, *, every: bool) -> Iterator[bytes]:
    version, blocks = _number(data, 4), _blocks(data)
    at, name, begun = _HEADER_BYTES, b"", 0
    for _ in range(_number(data, 8)):
        start, begun = at, begun + (at in blocks)
        mode, flags = entry.unpack_from(data, at)
        at += entry.size + (2 if flags & _EXTENDED else 0)
        kept = 0
        if version == 4:
            cut, at = _varint(data, at)
            kept = len(name) - cut
            if kept < 0 or (kept and start in blocks):  # a thread begins there, and knows no name before
                raise ValueError("a name that cannot be read")
        length = (flags & _LENGTH) - kept
        end = data.index(b"\0", at) if flags & _LENGTH == _LENGTH else at + length
        if version == 4:
            name, at = name[:kept] + data[at:end], end + 1
            if length < 0:
                raise ValueError("a name that cannot be read")
        elif every or mode & _KIND == _GITLINK:
            name = data[at:end]
        if every or mode & _KIND == _GITLINK:
            if b"\0" in name:
                raise ValueError("a name that cannot be read")
            yield name
        if version != 4:
            at = start + (end - start + 8) // 8 * 8
    if at > len(data) or begun != len(blocks):
        raise ValueError("entries elsewhere")


def _blocks(data: bytes) -> frozenset[int]:
    """Where git's threads begin to read; an honest table names what reading one by one comes to."""
    begin: set[int] = set()
    left = MAX_BLOCKS
    for table in _TABLE.finditer(data):
        places = range(table.end(), table.end() + _number(table[1], 0) - 4, _BLOCK.size)
        left -= 1 + len(places)
        if left < 0:
            raise ValueError("more blocks than any index has")
        begin.update(_BLOCK.unpack_from(data, at)[0] for at in places)
    return frozenset(begin)


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 0x7F
    while data[at] & 0x80:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 0x7F)
    return value, at + 1
