"""The tree against a naive one, and proofs that hold for nothing else."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.journal.merkle import (
    EMPTY_ROOT,
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
    verify_consistency,
    verify_inclusion,
)

sizes = st.integers(1, 70)


def leaves(count: int) -> list[bytes]:
    return [leaf_hash(b"%d" % number) for number in range(count)]


def naive_root(hashes: list[bytes]) -> bytes:
    """RFC 6962, section 2.1, word for word."""
    if not hashes:
        return sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    split = 1
    while split * 2 < len(hashes):
        split *= 2
    return sha256(b"\x01" + naive_root(hashes[:split]) + naive_root(hashes[split:])).digest()


def range_root(hashes: list[bytes], first: int, end: int) -> bytes:
    return naive_root(hashes[first:end])


def test_known_roots_of_the_standard() -> None:
    inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    hashes = [leaf_hash(bytes.fromhex(text)) for text in inputs]
    assert [root_of(hashes[:count]).hex() for count in (0, 1, 2, 8)] == [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]


def test_every_small_tree_is_the_naive_one() -> None:
    frontier = Frontier()
    assert frontier.root() == EMPTY_ROOT
    for count, leaf in enumerate(leaves(130), 1):
        frontier.append(leaf)
        assert (frontier.size, frontier.root()) == (count, naive_root(leaves(count)))
        assert Frontier.parse(count, frontier.pack()).root() == frontier.root()


@pytest.mark.parametrize(("size", "packed"), [(1, b""), (0, bytes(32)), (2, bytes(64)), (3, bytes(63)), (-1, b"")])
def test_a_frontier_that_does_not_fit_its_size_is_refused(size: int, packed: bytes) -> None:
    with pytest.raises(ValueError, match="frontier"):
        Frontier.parse(size, packed)


def test_a_copy_goes_its_own_way() -> None:
    frontier = Frontier()
    copy = frontier.copy()
    copy.append(bytes(32))
    assert (frontier.size, copy.size) == (0, 1)


@given(st.data(), sizes)
def test_inclusion_proofs_hold_for_their_leaf_and_place_only(data: st.DataObject, size: int) -> None:
    index = data.draw(st.integers(0, size - 1))
    hashes = leaves(size)
    proof = inclusion_proof(index, size, lambda first, end: range_root(hashes, first, end))
    root = naive_root(hashes)
    assert verify_inclusion(hashes[index], index, size, proof, root)
    assert not verify_inclusion(leaf_hash(b"other"), index, size, proof, root)
    assert not verify_inclusion(hashes[index], index, size, [*proof, bytes(32)], root)
    assert not verify_inclusion(hashes[index], index, size, proof, bytes(32))
    if proof:
        assert not verify_inclusion(hashes[index], index, size, proof[:-1], root)
    elsewhere = data.draw(st.integers(-2, size + 2))
    if elsewhere != index:
        assert not verify_inclusion(hashes[index], elsewhere, size, proof, root)


@given(st.data(), sizes)
def test_consistency_proofs_hold_for_their_trees_only(data: st.DataObject, new: int) -> None:
    old = data.draw(st.integers(0, new))
    hashes = leaves(new)
    proof = consistency_proof(old, new, lambda first, end: range_root(hashes, first, end))
    old_root, new_root = naive_root(hashes[:old]), naive_root(hashes)
    assert verify_consistency(old, new, old_root, new_root, proof=proof)
    assert not verify_consistency(old, new, old_root, new_root, proof=[*proof, bytes(32)])
    assert not verify_consistency(old, new, bytes(32), new_root, proof=proof)
    if old:
        assert not verify_consistency(old, new, old_root, bytes(32), proof=proof)
    if proof:
        assert not verify_consistency(old, new, old_root, new_root, proof=proof[:-1])
        position = data.draw(st.integers(0, len(proof) - 1))
        bent = [bytes(32) if at == position else node for at, node in enumerate(proof)]
        assert not verify_consistency(old, new, old_root, new_root, proof=bent)


@pytest.mark.parametrize(("index", "size"), [(0, 0), (3, 3), (-1, 3)])
def test_there_is_no_proof_for_a_leaf_that_is_not_there(index: int, size: int) -> None:
    with pytest.raises(ValueError, match="no leaf"):
        inclusion_proof(index, size, lambda first, end: bytes(32))
    assert not verify_inclusion(bytes(32), index, size, [], bytes(32))


def test_there_is_no_proof_that_a_tree_shrank() -> None:
    with pytest.raises(ValueError, match="does not begin"):
        consistency_proof(4, 3, lambda first, end: bytes(32))
    assert not verify_consistency(4, 3, bytes(32), bytes(32), proof=[])
    assert not verify_consistency(-1, 3, bytes(32), bytes(32), proof=[])
