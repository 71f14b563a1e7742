"""RFC 6962 Merkle trees: the frontier that grows by one leaf, roots, inclusion and consistency proofs.

Rules: leaves and nodes are hashed under different prefixes, so that no entry can pose as an inner node; a
verification is a plain yes or no over exactly the proof it was given, no more and no fewer hashes.

Not here: what a leaf holds (journal/chain), where the hashes lie (state), signed roots (journal/checkpoint).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

EMPTY_ROOT = sha256(b"").digest()
HASH_BYTES = 32

RangeRoot = Callable[[int, int], bytes]
"""(first, end) → the root over the leaves first … end-1."""


def leaf_hash(body: bytes) -> bytes:
    return sha256(b"\x00" + body).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """The right edge of a tree: roots of its perfect subtrees, largest first. All that is needed to append."""

    __slots__ = ("nodes", "size")

    def __init__(self, size: int = 0, nodes: Iterable[bytes] = ()) -> None:
        self.size = size
        self.nodes = list(nodes)
        if size < 0 or len(self.nodes) != size.bit_count() or any(len(node) != HASH_BYTES for node in self.nodes):
            raise ValueError("the frontier does not fit its size")

    @classmethod
    def parse(cls, size: int, packed: bytes) -> Frontier:
        if len(packed) % HASH_BYTES:
            raise ValueError("the frontier is not whole hashes")
        return cls(size, (packed[at : at + HASH_BYTES] for at in range(0, len(packed), HASH_BYTES)))

    def pack(self) -> bytes:
        return b"".join(self.nodes)

    def copy(self) -> Frontier:
        twin = Frontier.__new__(Frontier)  # what is there was checked
        twin.size, twin.nodes = self.size, self.nodes.copy()
        return twin

    def append(self, leaf: bytes) -> None:
        nodes, count = self.nodes, self.size
        while count & 1:  # each trailing one bit is a perfect subtree that the new one completes
            leaf = sha256(b"\x01" + nodes.pop() + leaf).digest()  # node_hash, without a call for each of a million
            count >>= 1
        nodes.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        if not self.nodes:
            return EMPTY_ROOT
        root = self.nodes[-1]
        for node in self.nodes[-2::-1]:
            root = sha256(b"\x01" + node + root).digest()
        return root


def root_of(leaves: Iterable[bytes]) -> bytes:
    frontier = Frontier()
    for leaf in leaves:
        frontier.append(leaf)
    return frontier.root()


def inclusion_proof(index: int, size: int, range_root: RangeRoot) -> tuple[bytes, ...]:
    """The hashes that lead from leaf `index` to the root of a tree of `size` leaves, lowest first."""
    if not 0 <= index < size:
        raise ValueError(f"no leaf {index} in a tree of {size}")
    proof: list[bytes] = []
    first, end = 0, size
    while end - first > 1:
        middle = first + _largest_power_below(end - first)
        if index < middle:
            proof.append(range_root(middle, end))
            end = middle
        else:
            proof.append(range_root(first, middle))
            first = middle
    return tuple(reversed(proof))


def consistency_proof(old: int, new: int, range_root: RangeRoot) -> tuple[bytes, ...]:
    """The hashes that show a tree of `new` leaves to begin with the tree of its first `old`."""
    if not 0 <= old <= new:
        raise ValueError(f"a tree of {new} does not begin with one of {old}")
    if old in (0, new):
        return ()
    proof: list[bytes] = []
    first, end, whole = 0, new, True
    while old != end - first:
        middle = _largest_power_below(end - first)
        if old <= middle:
            proof.append(range_root(first + middle, end))
            end = first + middle
        else:
            proof.append(range_root(first, first + middle))
            first, old, whole = first + middle, old - middle, False
    if not whole:
        proof.append(range_root(first, end))
    return tuple(reversed(proof))


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    if not 0 <= index < size:
        return False
    node, last, computed = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            computed = node_hash(sibling, computed)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            computed = node_hash(computed, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and computed == root


def verify_consistency(old: int, new: int, old_root: bytes, new_root: bytes, *, proof: Sequence[bytes]) -> bool:
    if not 0 <= old <= new:
        return False
    if old == new:
        return not proof and old_root == new_root
    if old == 0:
        return not proof and old_root == EMPTY_ROOT
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not path:
        return False
    node, last = old - 1, new - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    old_seen = new_seen = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            old_seen, new_seen = node_hash(sibling, old_seen), node_hash(sibling, new_seen)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            new_seen = node_hash(new_seen, sibling)
        node, last = node >> 1, last >> 1
    return last == 0 and old_seen == old_root and new_seen == new_root


def _largest_power_below(count: int) -> int:
    """The largest power of two smaller than `count`; where RFC 6962 splits a tree."""
    return 1 << ((count - 1).bit_length() - 1)
