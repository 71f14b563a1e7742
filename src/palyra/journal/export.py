"""A journal, or some calls of it, as lines: a header, the entries' own bytes one a line, and an end that counts them.

Canonical JSON holds no newline, so a line is exactly what was hashed and signed: leaf = SHA-256(0x00 ‖ line). The
header carries the signed checkpoint, the place of the first entry and the tree in front of it. A **selection** shows
some calls and proves each of its entries a leaf of the same tree, without showing the rest.

Rules of the check: nothing is believed but the key; a line that is missing, added, moved or changed is found; memory
does not grow with a line's length (`MAX_LINE_BYTES`). Not here: files (cli), rows (state/rows).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from palyra.canon import Json
from palyra.errors import TrustError
from palyra.journal.audit import Audit, Finding, Report
from palyra.journal.chain import MAX_ENTRY_BYTES
from palyra.journal.keys import Keys, follow, follow_both_ways, read_hashes, write_hashes
from palyra.journal.merkle import Frontier, leaf_hash
from palyra.journal.proof import check_included
from palyra.model.record import Checkpoint
from palyra.signing import NoteVerifier
from palyra.values import dataclass

EXPORT_TYPE = "urn:palyra:export:v1"
SELECTION_TYPE = "urn:palyra:selection:v1"
MAX_LINE_BYTES = 16 << 20
"""Of a header; an entry has at most 64 KiB."""
MAX_SELECTED = 10_000
_EXPORT = frozenset({"type", "first", "count", "checkpoint", "frontier", "keys"})
_SELECTION = frozenset({"type", "first", "count", "checkpoint", "indices", "proofs", "keys"})


@dataclass(frozen=True, slots=True)
class Shown:
    """An entry of a selection and its way to the head."""

    index: int
    body: bytes
    proof: tuple[bytes, ...]


def export_lines(
    bodies: Iterable[bytes], head: Checkpoint, *, begin: Frontier, links: Sequence[Mapping[str, Json]]
) -> Iterator[bytes]:
    """Every entry from `begin` to the head."""
    count = head.size - begin.size
    header = {
        "type": EXPORT_TYPE,
        "first": begin.size,
        "count": count,
        "checkpoint": head.note,
        "frontier": write_hashes(begin.nodes),
        "keys": list(links),
    }
    yield orjson.dumps(header) + b"\n"
    written = 0
    for body in bodies:
        if written == count:
            break  # what was appended since the head was read
        yield body + b"\n"
        written += 1
    yield _end(written)


def selection_lines(
    shown: Sequence[Shown], head: Checkpoint, *, links: Sequence[Mapping[str, Json]]
) -> Iterator[bytes]:
    header = {
        "type": SELECTION_TYPE,
        "first": shown[0].index if shown else 0,
        "count": len(shown),
        "checkpoint": head.note,
        "indices": [one.index for one in shown],
        "proofs": [write_hashes(one.proof) for one in shown],
        "keys": list(links),
    }
    yield orjson.dumps(header) + b"\n"
    for one in shown:
        yield one.body + b"\n"
    yield _end(len(shown))


def is_header(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type") in (EXPORT_TYPE, SELECTION_TYPE)


def check_lines(
    header: Mapping[str, Any], lines: Iterator[bytes], held: NoteVerifier, known: Sequence[str] = ()
) -> Report:
    """Everything an export does not keep of its promises. `lines` are those after the header, each with its newline.
    `known`: heads that its reader has seen before."""
    try:
        if header["type"] == SELECTION_TYPE:
            if known:
                raise TrustError("A selection shows no tree that a known checkpoint could be held against.")
            return _check_selection(header, lines, held)
        return _check_export(header, lines, held, known)
    except TrustError as error:
        return Report(
            findings=(Finding("EXPORT", None, str(error)),), entries=0, checkpoints=0, open_calls=0, anchored=0
        )


def _check_export(
    header: Mapping[str, Any], lines: Iterator[bytes], held: NoteVerifier, known: Sequence[str]
) -> Report:
    first, count, keys, head = _read_header(header, _EXPORT, held)
    try:
        begin = Frontier(first, read_hashes(header["frontier"]))
    except ValueError as error:
        raise TrustError("The tree before the first entry does not match its position.") from error
    if first + count != head.size:
        raise TrustError(f"It shows entries {first} to {first + count - 1} of a signed tree of {head.size}.")
    audit = Audit(verifier=keys.newest, is_alive=lambda _: True, begin=begin, handovers=None)
    for checkpoint in open_known(known, follow_both_ways(held, header["keys"])[1]):
        if checkpoint.size < first:
            raise TrustError(f"It begins at entry {first}, and a known checkpoint is of the first {checkpoint.size}.")
        audit.expect(checkpoint)
    seen = 0
    for line in lines:
        if seen == count:
            _check_end(line, count)
            if next(lines, None) is not None:
                raise TrustError("There is more after the end.")
            audit.checkpoint(head.size, head.note)
            return replace(audit.finish(None), entries=count)  # those it shows, not those before them
        if _is_end(line):
            raise TrustError(
                f"It holds {seen} of the {count} entries that its header announces: {count - seen} missing."
            )
        body = _body(line, first + seen)
        audit.feed(first + seen, leaf_hash(body), body)
        seen += 1
    raise TrustError(f"It ends after {seen} of {count} entries.")


def open_known(known: Sequence[str], keys: Keys) -> Iterator[Checkpoint]:
    for note in known:
        try:
            yield keys.open(note)
        except TrustError as error:
            raise TrustError(f"A known checkpoint is not valid: {error}") from error


def _check_selection(header: Mapping[str, Any], lines: Iterator[bytes], held: NoteVerifier) -> Report:
    first, count, _, head = _read_header(header, _SELECTION, held)
    indices, proofs = header["indices"], header["proofs"]
    if not (isinstance(indices, list) and isinstance(proofs, list) and len(indices) == len(proofs) == count):
        raise TrustError("It does not have one index and one proof for each entry it shows.")
    if count > MAX_SELECTED or any(type(index) is not int for index in indices) or sorted(set(indices)) != indices:
        raise TrustError("Its entries are not in order.")
    if first != (indices[0] if indices else 0):
        raise TrustError("Its header names another first entry than it shows.")
    for index, proof in zip(indices, proofs, strict=True):
        line = next(lines, None)
        if line is None:
            raise TrustError("It ends too early.")
        check_included(_body(line, index), index, read_hashes(proof), head)
    _check_end(next(lines, b""), count)
    if next(lines, None) is not None:
        raise TrustError("There is more after the end.")
    return Report(findings=(), entries=count, checkpoints=1, open_calls=0, anchored=0)


def _read_header(
    header: Mapping[str, Any], fields: frozenset[str], held: NoteVerifier
) -> tuple[int, int, Keys, Checkpoint]:
    if set(header) != fields:
        raise TrustError(f"The header does not have exactly {', '.join(sorted(fields))}.")
    first, count, note = header["first"], header["count"], header["checkpoint"]
    if type(first) is not int or type(count) is not int or first < 0 or count < 0 or not isinstance(note, str):
        raise TrustError("The header's fields have the wrong types.")
    keys = follow(held, header["keys"])
    return first, count, keys, keys.open(note)


def _body(line: bytes, index: int) -> bytes:
    if not line.endswith(b"\n") or len(line) > MAX_ENTRY_BYTES + 1:
        raise TrustError(f"The line of entry {index} is cut off or too long.")
    return line[:-1]


def _is_end(line: bytes) -> bool:
    """Entries are statements, which begin otherwise; the count in it does not matter here."""
    return line.startswith(b'{"end":true')


def _check_end(line: bytes, count: int) -> None:
    """In the one spelling there is: a key twice, or 1 for true, would be another end to another reader."""
    if line != _end(count):
        raise TrustError(f"The last line does not count the {count} entries that the header announces.")


def _end(count: int) -> bytes:
    return b'{"end":true,"count":%d}\n' % count
