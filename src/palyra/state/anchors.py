"""What witnesses hold of this journal, compared with it: a journal that is shorter or different is not gone on with.

Rules: the largest head that a place holds counts, and each of the others too: a file that can only be appended to keeps
what it was told first, whatever somebody writes behind it. A line that is no head silences nobody: it is told of, and
the others count. A place that cannot be reached is said so and keeps nobody from starting; one that somebody filled
until nobody reads it does: otherwise whoever can only append could silence it.

Heads are compared as they lie there, whoever signed them (the audit opens each): after a rollback the keys of later
heads are not known here any more. Who can write a witness can therefore keep its home from starting.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from palyra.errors import StateError, TrustError
from palyra.journal.audit import Finding, Report
from palyra.journal.lookup import TREE_SIZE, Rows
from palyra.journal.tree import Tree
from palyra.model.record import Checkpoint
from palyra.state.witness import look_at
from palyra.state.witness_lines import Flooded
from palyra.state.writer import Writer
from palyra.values import dataclass

COMPARED_AT_A_START = 64
"""Of one place's heads, the largest ones; an audit compares all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    name: str
    kind: str
    place: str
    head: Checkpoint | None = None
    """The largest it holds."""
    earlier: tuple[Checkpoint, ...] = ()
    """The others, from the largest on."""
    problem: str | None = None
    is_flooded: bool = False
    """It is there and holds too much to be read: whoever filled it is not helped by that."""

    @property
    def heads(self) -> tuple[Checkpoint, ...]:
        return () if self.head is None else (self.head, *self.earlier)


def anchors(rows: Rows, origin: str) -> Iterator[Anchor]:
    """What each witness holds, as it lies there now."""
    for name, kind, path in rows("SELECT name, kind, place FROM witnesses ORDER BY name", ()):
        try:
            held = look_at(kind, path, origin)
        except StateError as error:
            flooded = isinstance(error, Flooded)
            yield Anchor(name=name, kind=kind, place=path, problem=str(error), is_flooded=flooded)
            continue
        heads = {(seen.head.size, seen.head.root): seen.head for seen in held.seen}
        ordered = sorted(heads.values(), key=lambda head: head.size, reverse=True)
        problem = (
            "It contains a line that is not a head." if held.is_spoilt else None if ordered else "It contains no head."
        )
        yield Anchor(
            name=name,
            kind=kind,
            place=path,
            head=ordered[0] if ordered else None,
            earlier=tuple(ordered[1:]),
            problem=problem,
        )


def with_flooded(report: Report, seen: Sequence[Anchor]) -> Report:
    """What a witness holds and nobody can read is no evidence that nothing is missing."""
    found = tuple(Finding("KNOWN", None, str(one.problem)) for one in seen if one.is_flooded)
    return replace(report, findings=(*report.findings, *found)) if found else report


def check_anchors(writer: Writer, found: Sequence[Anchor], *, thorough: bool) -> None:
    """`StateError` when the tree is smaller than, or different from, what a witness has seen.

    Thorough hashes the tree up to each head; otherwise the checkpoint of that size is compared where it holds, which is
    quick and finds an old copy put back, but not a rewritten one that kept the old checkpoint.
    """
    for anchor in found:
        if anchor.is_flooded:
            raise StateError(str(anchor.problem), "Replace it by its lines that are heads, or by its backup.")
    heads = [(anchor.name, head) for anchor in found for head in anchor.heads[:COMPARED_AT_A_START]]
    if not heads:
        return
    size = writer.rows(TREE_SIZE)[0][0]
    tree = Tree(writer.rows)
    for name, head in heads:
        if head.size > size:
            raise StateError(
                f"The journal has {size} entries, and the witness {name} has seen {head.size}: it was rolled back.",
                "Restore the newest backup; palyra journal verify says what is missing.",
            )
        if head.size and _root_at(writer, tree, head.size, thorough=thorough) != head.root:
            raise StateError(f"This is not the journal that the witness {name} has seen.", "Run: palyra journal verify")


def _root_at(writer: Writer, tree: Tree, size: int, *, thorough: bool) -> bytes:
    if thorough:
        return tree.frontier(size).root()
    rows = writer.rows("SELECT note FROM checkpoints WHERE size = ?", (size,))
    with contextlib.suppress(TrustError, IndexError, TypeError, AttributeError):
        return writer.home.keys.open(rows[0][0]).root
    # Who spoils that one checkpoint has not made it another journal; the audit does not miss it either.
    return tree.frontier(size).root()
