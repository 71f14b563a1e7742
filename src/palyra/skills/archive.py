"""The one ZIP a set of files has: written here, and read only when it is exactly that.

Rules: sorted, stored (there is no compression, so there are no bombs), one fixed time, mode 0644, no extra fields,
comments, flags or zip64; lower-case ASCII paths of one pattern; members one after the other from offset 0, the end
record at the end. What was read is written again and must be the same bytes: whatever another reader could take
differently has no room to be. The standard library's reader accepts most hostile archives and is not used.

Not here: writing members to disk (skills/store), which members a skill has (manifest, bundle).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping

from palyra.skills.findings import Finding, SkillRefused

MAX_ENTRIES = 256
MAX_ENTRY_BYTES = 16 << 20
MAX_MODULE_BYTES = 32 << 20
"""Of a module: one that brings a whole Python along has 18 MiB."""
MAX_ARCHIVE_BYTES = 64 << 20
MAX_PATH = 255

_PATH = re.compile(r"[a-z0-9_][a-z0-9._-]{0,63}(?:/[a-z0-9_][a-z0-9._-]{0,63}){0,7}")
_RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))})
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_NEEDS, _MADE_BY, _DAY = 20, 0x0314, 0x21  # version 2.0; by Unix; 1980-01-01
_MODE = 0o100644
_LINK = 0o120000
_HINT = "Build the package again with palyra skills build."


def check_path(path: str) -> str:
    """The path, or `SkillRefused`: what is special on any file system is refused on all."""
    parts = path.split("/")
    if path.startswith(("/", "\\")) or ".." in parts or "\\" in path or ":" in path or "\0" in path:
        raise _bad(Finding.ARCHIVE_TRAVERSAL, f"The path {path[:80]!r} leads out of the package")
    if path != path.lower():
        raise _bad(Finding.ARCHIVE_CASE, f"The path {path[:80]!r} has capital letters, which some file systems fold")
    if not _PATH.fullmatch(path) or len(path) > MAX_PATH:
        raise _bad(Finding.ARCHIVE_PATH, f"The path {path[:80]!r} is not in canonical form")
    for part in parts:
        if part.endswith(".") or part.partition(".")[0] in _RESERVED:
            raise _bad(Finding.ARCHIVE_PATH, f"The path {path[:80]!r} holds a name that some systems reserve")
    return path


def write_zip(files: Mapping[str, bytes]) -> bytes:
    """The canonical archive of these files."""
    if not 0 < len(files) <= MAX_ENTRIES:
        raise _bad(Finding.ARCHIVE_SIZE, f"A package has 1 to {MAX_ENTRIES} files, not {len(files)}")
    _check_folders(files)
    members: list[bytes] = []
    directory: list[bytes] = []
    offset = 0
    for path in sorted(files):
        data, name = files[path], check_path(path).encode("ascii")
        size = _bounded(path, len(data))
        crc = zlib.crc32(data)
        local = _LOCAL.pack(b"PK\3\4", _NEEDS, 0, 0, 0, _DAY, crc, size, size, len(name), 0)
        directory.append(
            _CENTRAL.pack(
                b"PK\1\2", _MADE_BY, _NEEDS, 0, 0, 0, _DAY, crc, size, size, len(name), 0, 0, 0, 0, _MODE << 16, offset
            )
            + name
        )
        members += [local, name, data]
        offset += len(local) + len(name) + size
    listing = b"".join(directory)
    if offset + len(listing) + _END.size > MAX_ARCHIVE_BYTES:
        raise _bad(Finding.ARCHIVE_SIZE, f"The package is larger than {MAX_ARCHIVE_BYTES} bytes")
    end = _END.pack(b"PK\5\6", 0, 0, len(files), len(files), len(listing), offset, 0)
    return b"".join((*members, listing, end))


def read_zip(data: bytes) -> dict[str, bytes]:
    """The files of an archive that is exactly what `write_zip` would have written; anything else is refused."""
    if not _END.size <= len(data) <= MAX_ARCHIVE_BYTES:
        raise _bad(Finding.ARCHIVE_SIZE, f"The archive has {len(data)} bytes; at most {MAX_ARCHIVE_BYTES} are read")
    count, start, end = _read_end(data)
    files: dict[str, bytes] = {}
    at, expected = start, 0
    for _ in range(count):
        if at + _CENTRAL.size > end:
            raise _bad(Finding.ARCHIVE_LAYOUT, "The archive's directory is cut short")
        fields = _CENTRAL.unpack_from(data, at)
        length = fields[10]
        name = data[at + _CENTRAL.size : at + _CENTRAL.size + length].decode("ascii", "replace")
        _check_entry(name, fields, expected=expected, files=files)
        expected = _take(data, name, fields, start, files)
        at += _CENTRAL.size + length
    if at != end or expected != start:
        raise _bad(Finding.ARCHIVE_LAYOUT, "The archive contains bytes that belong to no file")
    if write_zip(files) != data:  # covers every field that is not named above
        raise _bad(Finding.ARCHIVE_ENCODING, "The archive is not in its one canonical form")
    return files


def _read_end(data: bytes) -> tuple[int, int, int]:
    """(entries, where the directory begins, where it ends)."""
    signature, disk, first_disk, here, count, size, start, comment = _END.unpack_from(data, len(data) - _END.size)
    if signature != b"PK\5\6" or disk or first_disk or here != count or comment:
        raise _bad(Finding.ARCHIVE_END, "The archive does not end with a plain end record")
    end = len(data) - _END.size
    if start + size < end:
        raise _bad(Finding.ARCHIVE_PREPENDED, "There are bytes before the archive or between its parts")
    if start + size != end:
        raise _bad(Finding.ARCHIVE_END, "The archive's end record does not match its length")
    if not 0 < count <= MAX_ENTRIES:
        raise _bad(Finding.ARCHIVE_SIZE, f"A package has 1 to {MAX_ENTRIES} files, not {count}")
    return count, start, end


def _check_entry(name: str, fields: tuple[object, ...], *, expected: int, files: Mapping[str, bytes]) -> None:
    signature, flags, method, packed, size, attributes, offset = (fields[n] for n in (0, 3, 4, 8, 9, 15, 16))
    if signature != b"PK\1\2":
        raise _bad(Finding.ARCHIVE_LAYOUT, "The archive's directory is not one")
    if isinstance(attributes, int) and attributes >> 16 & 0o170000 == _LINK:
        raise _bad(Finding.ARCHIVE_LINK, f"{name[:80]!r} is a symbolic link")
    if method != 0:
        raise _bad(Finding.ARCHIVE_COMPRESSED, f"{name[:80]!r} is compressed; files are stored as they are")
    if flags != 0:
        raise _bad(Finding.ARCHIVE_ENCODING, f"{name[:80]!r} has flags set (encryption, late sizes)")
    if name in files:
        raise _bad(Finding.ARCHIVE_DUPLICATE, f"{name[:80]!r} is in the archive twice")
    check_path(name)
    if packed != size:
        raise _bad(Finding.ARCHIVE_SIZES, f"{name!r} claims two different sizes")
    assert isinstance(size, int)
    _bounded(name, size)
    if offset != expected:
        kind = Finding.ARCHIVE_LAYOUT if expected else Finding.ARCHIVE_PREPENDED
        raise _bad(kind, f"{name!r} does not begin where the file before it ends")


def _take(data: bytes, name: str, fields: tuple[object, ...], start: int, files: dict[str, bytes]) -> int:
    """Keep the member; returns where the next must begin."""
    crc, size, offset = (fields[n] for n in (7, 9, 16))
    assert isinstance(size, int)
    assert isinstance(offset, int)
    begin = offset + _LOCAL.size + len(name)
    if begin + size > start:
        raise _bad(Finding.ARCHIVE_SIZES, f"{name!r} claims more bytes than there are")
    content = data[begin : begin + size]
    if zlib.crc32(content) != crc:
        raise _bad(Finding.ARCHIVE_CHECKSUM, f"{name!r} does not match its checksum")
    files[name] = content
    return begin + size


def _check_folders(files: Mapping[str, bytes]) -> None:
    """A name cannot be a file and a folder: such a package could not be written to any disk."""
    for path in files:
        folder = path.rpartition("/")[0]
        while folder:
            if folder in files:
                raise _bad(Finding.ARCHIVE_DUPLICATE, f"{folder[:80]!r} is a file and a folder")
            folder = folder.rpartition("/")[0]


def _bounded(path: str, size: int) -> int:
    if size > most_bytes(path):
        raise _bad(Finding.ARCHIVE_SIZE, f"{path[:80]!r} is larger than {most_bytes(path)} bytes")
    return size


def most_bytes(path: str) -> int:
    """How large a member may be."""
    return MAX_MODULE_BYTES if path.startswith("modules/") else MAX_ENTRY_BYTES


def _bad(finding: Finding, what: str) -> SkillRefused:
    return SkillRefused(finding, f"{what}.", _HINT)
