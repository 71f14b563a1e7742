"""The journal as a folder of tiles (C2SP tlog-tiles): a checkpoint, hash tiles of 256, entry bundles of 256.

Rules: paths and bytes are those of the standard, so that any static file server publishes a journal and any client of
such logs reads it; a reader trusts nothing but the signed checkpoint, recomputes every tile from the entries, and
takes a tile for absent rather than for right when its length differs.

Not here: writing and reading files (cli), the rows (journal/store).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence

from palyra.errors import StateError, TrustError
from palyra.journal.merkle import leaf_hash, root_of

WIDTH = 256
MAX_BODY_BYTES = 65535
MAX_BUNDLE_BYTES = WIDTH * (2 + MAX_BODY_BYTES)

Read = Callable[[str], bytes]
"""A file's bytes by its path below the folder; `TrustError` when there is none."""


def tile_path(level: int | str, number: int, width: int = WIDTH) -> str:
    """tile/L/x001/x234/067, or with .p/W while it is not full."""
    groups = [f"{number % 1000:03}"]
    while number >= 1000:
        number //= 1000
        groups.append(f"x{number % 1000:03}")
    partial = "" if width == WIDTH else f".p/{width}"
    return f"tile/{level}/{'/'.join(reversed(groups))}{partial}"


def make_tiles(bodies: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """(path, bytes) of every tile and bundle, in one pass; the checkpoint is the caller's."""
    levels: list[tuple[int, list[bytes]]] = []
    bundle: list[bytes] = []
    bundles = 0
    for body in bodies:
        if len(body) > MAX_BODY_BYTES:  # older versions wrote entries that are one byte longer
            longest = f"Tiles hold entries of at most {MAX_BODY_BYTES} bytes, and this journal has a longer one."
            raise StateError(longest, "Use --format jsonl.")
        bundle.append(struct.pack(">H", len(body)) + body)
        yield from _grow(levels, 0, leaf_hash(body))
        if len(bundle) == WIDTH:
            yield tile_path("entries", bundles), b"".join(bundle)
            bundle, bundles = [], bundles + 1
    if bundle:
        yield tile_path("entries", bundles, len(bundle)), b"".join(bundle)
    for level, (number, hashes) in enumerate(levels):
        if hashes:
            yield tile_path(level, number, len(hashes)), b"".join(hashes)


def _grow(levels: list[tuple[int, list[bytes]]], level: int, one: bytes) -> Iterator[tuple[str, bytes]]:
    if level == len(levels):
        levels.append((0, []))
    number, hashes = levels[level]
    hashes.append(one)
    if len(hashes) == WIDTH:
        yield tile_path(level, number), b"".join(hashes)
        levels[level] = (number + 1, [])
        yield from _grow(levels, level + 1, root_of(hashes))


def read_bodies(read: Read, size: int) -> Iterator[bytes]:
    """Every entry of the first `size`, from the bundles."""
    for number in range(-(-size // WIDTH)):
        width = min(WIDTH, size - number * WIDTH)
        data = read(tile_path("entries", number, width))
        at = 0
        for _ in range(width):
            if at + 2 > len(data):
                raise TrustError(f"The bundle of entries from {number * WIDTH} on is cut off.")
            (length,) = struct.unpack_from(">H", data, at)
            at += 2 + length
            if at > len(data):
                raise TrustError(f"The bundle of entries from {number * WIDTH} on is cut off.")
            yield data[at - length : at]
        if at != len(data):
            raise TrustError(f"The bundle of entries from {number * WIDTH} on has bytes after its end.")


def check_hash_tiles(read: Read, leaves: Sequence[bytes]) -> Iterator[str]:
    """The path of every hash tile that is not what the entries make it."""
    level, hashes = 0, list(leaves)
    while hashes:
        for number in range(-(-len(hashes) // WIDTH)):
            part = hashes[number * WIDTH : (number + 1) * WIDTH]
            path = tile_path(level, number, len(part))
            if read(path) != b"".join(part):
                yield path
        whole = len(hashes) // WIDTH
        hashes = [root_of(hashes[number * WIDTH : (number + 1) * WIDTH]) for number in range(whole)]
        level += 1
