"""The tlog-tiles folder: paths, bundles, hash tiles, and proofs made from tiles alone."""

from __future__ import annotations

import pytest

from palyra.errors import StateError, TrustError
from palyra.journal.chain import act_draft, entry_bytes
from palyra.journal.merkle import HASH_BYTES, Frontier, consistency_proof, inclusion_proof, leaf_hash, root_of
from palyra.journal.tiles import WIDTH, Read, check_hash_tiles, make_tiles, read_bodies, tile_path
from tests.promises import promise

BODIES = [b"%d" % number * (number % 7 + 1) for number in range(66_000)]


@pytest.mark.parametrize(
    ("level", "number", "width", "path"),
    [
        (0, 0, 256, "tile/0/000"),
        (0, 7, 12, "tile/0/007.p/12"),
        (1, 1000, 256, "tile/1/x001/000"),
        ("entries", 1_234_067, 256, "tile/entries/x001/x234/067"),
    ],
)
def test_paths_are_those_of_the_standard(level: int | str, number: int, width: int, path: str) -> None:
    assert tile_path(level, number, width) == path


def folder(size: int) -> dict[str, bytes]:
    return dict(make_tiles(BODIES[:size]))


def reader(files: dict[str, bytes]):
    def read(path: str) -> bytes:
        if path not in files:
            raise TrustError(path)
        return files[path]

    return read


class TileTree:
    """Proofs from tiles alone, as a client of the folder makes them."""

    def __init__(self, read: Read, size: int) -> None:
        self._read = read
        self._size = size

    def range_root(self, first: int, end: int) -> bytes:
        """Over a range that a proof names."""
        nodes: list[bytes] = []
        at = first
        while at < end:
            aligned = (at & -at).bit_length() - 1 if at else 62
            height = min(aligned, (end - at).bit_length() - 1)
            nodes.append(self._node(height, at >> height))
            at += 1 << height
        return Frontier(end - first, nodes).root()

    def _node(self, height: int, number: int) -> bytes:
        """The root of the perfect subtree of 2^height leaves, from the tile its level lies in."""
        level, rest = divmod(height, 8)
        first = number << rest
        count = self._size >> (8 * level)
        width = min(WIDTH, count - first // WIDTH * WIDTH)
        data = self._read(tile_path(level, first // WIDTH, width))
        if len(data) != width * HASH_BYTES:
            raise ValueError(f"tile {level}/{first // WIDTH} is not {width} hashes")
        at = first % WIDTH
        return root_of(data[i * HASH_BYTES : (i + 1) * HASH_BYTES] for i in range(at, at + (1 << rest)))


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1000])
def test_entries_and_hashes_come_back(size: int) -> None:
    files = folder(size)
    assert list(read_bodies(reader(files), size)) == BODIES[:size]
    leaves = [leaf_hash(body) for body in BODIES[:size]]
    assert list(check_hash_tiles(reader(files), leaves)) == []
    tree = TileTree(reader(files), size)
    assert tree.range_root(0, size) == root_of(leaves)


@promise("journal.publishable-tiles")
@pytest.mark.parametrize("text", ["w", "é"])
def test_no_length_that_somebody_chooses_for_an_entry_keeps_a_journal_from_being_published(text: str) -> None:
    """65536 bytes were an entry, and two bytes count no more than 65535."""

    def body(length: int) -> bytes:
        details = {"programs": text * (length // len(text.encode())), "rest": "w" * (length % len(text.encode()))}
        draft = act_draft(act="hook.answered", actor="agent:codex", subject="hook/codex", details=details)
        return entry_bytes(draft, index=0, sequence=None, at_unix_ms=0)

    around = len(body(0))
    bodies = [body(65536 - around + more) for more in (-1, 0, 1)]
    assert len(bodies[0]) == 65535
    files = dict(make_tiles(bodies))
    assert list(read_bodies(reader(files), 3)) == bodies
    with pytest.raises(StateError, match="this journal has a longer one"):
        list(make_tiles([bytes(65536)]))


def test_proofs_are_made_from_tiles_alone_over_three_levels() -> None:
    size = 66_000
    files = folder(size)
    assert {path.split("/")[1] for path in files} == {"0", "1", "2", "entries"}
    leaves = [leaf_hash(body) for body in BODIES]
    tree = TileTree(reader(files), size)
    ranges = {index: inclusion_proof(index, size, tree.range_root) for index in (0, 255, 256, 65_535, 65_999)}
    naive = {index: inclusion_proof(index, size, lambda a, b: root_of(leaves[a:b])) for index in ranges}
    assert ranges == naive
    old = consistency_proof(300, size, tree.range_root)
    assert old == consistency_proof(300, size, lambda a, b: root_of(leaves[a:b]))


def test_a_tile_or_a_bundle_that_was_edited_is_found() -> None:
    files = folder(600)
    leaves = [leaf_hash(body) for body in BODIES[:600]]
    for path in ("tile/0/001", "tile/1/000.p/2", "tile/0/002.p/88"):
        changed = files | {path: bytes(32) + files[path][32:]}
        assert list(check_hash_tiles(reader(changed), leaves)) == [path]
    for cut in (files["tile/entries/001"][:-1], files["tile/entries/001"] + b"x", b"\xff"):
        with pytest.raises(TrustError):
            list(read_bodies(reader(files | {"tile/entries/001": cut}), 600))
