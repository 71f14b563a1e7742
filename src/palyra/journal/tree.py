"""The tree as the rows hold it: leaf hashes of every entry there ever was, and proofs made of them.

Rules: leaf hashes stay when bodies are removed, so proofs of old entries go on being made and verified; a proof is
checked against the signed head before it is handed out, because rows can be edited. Roots of whole blocks of 256
leaves are kept once computed. The rows come from a function that is handed in, as in journal/lookup.
"""

from __future__ import annotations

from palyra.errors import StateError
from palyra.journal.checkpoint import parse_checkpoint
from palyra.journal.entry import parse_entry
from palyra.journal.keys import Keys, write_link
from palyra.journal.lookup import Rows, as_bytes
from palyra.journal.merkle import (
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    verify_consistency,
    verify_inclusion,
)
from palyra.model.record import Checkpoint, Entry

BLOCK = 256


class Tree:
    """For one snapshot: what was read once is not read again."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._blocks: dict[int, bytes] = {}

    def leaves(self, first: int, end: int) -> list[bytes]:
        sql = "SELECT idx, leaf_hash FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx"
        found = self._rows(sql, (first, end))
        if [row[0] for row in found] != list(range(first, end)) or any(len(as_bytes(row[1])) != 32 for row in found):
            raise StateError("The journal's leaf hashes are incomplete.", "Run: palyra journal verify")
        return [row[1] for row in found]

    def frontier(self, size: int) -> Frontier:
        """The tree of the first `size` entries, to go on from."""
        frontier = Frontier(size - size % BLOCK, self._perfect(size - size % BLOCK))
        for leaf in self.leaves(size - size % BLOCK, size):
            frontier.append(leaf)
        return frontier

    def range_root(self, first: int, end: int) -> bytes:
        """Over any range that a proof names: it begins where its own width divides."""
        if end - first < BLOCK or first % BLOCK:
            frontier = Frontier()
            for leaf in self.leaves(first, end):
                frontier.append(leaf)
            return frontier.root()
        blocks = Frontier()
        for at in range(first, end - end % BLOCK, BLOCK):
            blocks.append(self._block(at // BLOCK))
        frontier = Frontier((end - end % BLOCK) - first, blocks.nodes)
        for leaf in self.leaves(end - end % BLOCK, end):
            frontier.append(leaf)
        return frontier.root()

    def inclusion(self, index: int, head: Checkpoint) -> tuple[bytes, ...]:
        proof = inclusion_proof(index, head.size, self.range_root)
        if not verify_inclusion(self.leaves(index, index + 1)[0], index, head.size, proof, head.root):
            raise _not_signed()
        return proof

    def check(self, head: Checkpoint) -> None:
        """All leaf hashes are those of the signed head: then an entry that has its own is what was signed."""
        if self.frontier(head.size).root() != head.root:
            raise _not_signed()

    def consistency(self, old: Checkpoint, new: Checkpoint) -> tuple[bytes, ...]:
        proof = consistency_proof(old.size, new.size, self.range_root)
        if not verify_consistency(old.size, new.size, old.root, new.root, proof=proof):
            raise _not_signed()
        return proof

    def links(self, keys: Keys) -> list[dict[str, object]]:
        """Every handover, proven, for whoever holds an earlier key."""
        found = []
        for handover in keys.handovers:
            head = parse_checkpoint(self.note(handover.index + 1))
            rows = self._rows("SELECT body FROM entries WHERE idx = ?", (handover.index,))
            body = as_bytes(rows[0][0]) if rows else b""
            found.append(write_link(body, self.inclusion(handover.index, head), head.note))
        return found

    def note(self, size: int) -> str:
        """The checkpoint that was signed at this size, or the first one after it."""
        rows = self._rows("SELECT note FROM checkpoints WHERE size >= ? ORDER BY size LIMIT 1", (size,))
        if not rows or not isinstance(rows[0][0], str):
            raise StateError(f"No checkpoint covers the first {size} entries.", "Run: palyra journal verify")
        return str(rows[0][0])

    def _perfect(self, size: int) -> list[bytes]:
        blocks = Frontier()
        for at in range(size // BLOCK):
            blocks.append(self._block(at))
        return blocks.nodes

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            frontier = Frontier()
            for leaf in self.leaves(number * BLOCK, (number + 1) * BLOCK):
                frontier.append(leaf)
            self._blocks[number] = frontier.root()
        return self._blocks[number]


def signed_body(entry: Entry) -> bytes:
    """The bytes of an entry whose leaf hash was found in the signed tree, if they are those that were hashed, in the
    form of an entry, at their own place: nothing else is shown, proven or signed as one."""
    try:
        view = parse_entry(entry.body) if leaf_hash(entry.body) == entry.leaf_hash else None
    except ValueError:
        view = None
    if view is None or view.index != entry.index:
        raise StateError(f"Entry {entry.index} is not what was signed.", "Run: palyra journal verify")
    return entry.body


def _not_signed() -> StateError:
    return StateError("The journal's leaf hashes are not those of its signed head.", "Run: palyra journal verify")
