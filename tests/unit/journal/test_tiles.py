"""The tlog-tiles folder: paths, bundles, hash tiles, and proofs made from tiles alone."""

from __future__ import annotations

import pytest

from palyra.errors import TrustError
from palyra.journal.merkle import consistency_proof, inclusion_proof, leaf_hash, root_of
from palyra.journal.tiles import TileTree, check_hash_tiles, make_tiles, read_bodies, tile_path

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


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1000])
def test_entries_and_hashes_come_back(size: int) -> None:
    files = folder(size)
    assert list(read_bodies(reader(files), size)) == BODIES[:size]
    leaves = [leaf_hash(body) for body in BODIES[:size]]
    assert list(check_hash_tiles(reader(files), leaves)) == []
    tree = TileTree(reader(files), size)
    assert tree.range_root(0, size) == root_of(leaves)


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
