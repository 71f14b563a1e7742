"""What `palyra verify` checks line by line or file by file: exports, selections, bundles of envelopes, tiles.

Rules: what is told of a file that holds is how much of the journal it shows, and that earlier or other entries are not
shown where they are not: whoever sits between the export and its reader can leave out the beginning, or all calls but
one, and what remains still holds. In a bundle nothing stands twice. A folder's files are files: a pipe among them keeps
nobody waiting.

Not here: the checks themselves (journal/export, journal/tiles), JSON (cli/verify_json), what is said (cli/verify).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from palyra.cli.verify_json import parse_json

if TYPE_CHECKING:
    from palyra.signing import NoteVerifier

MAX_LINE_BYTES = 16 << 20
Findings = list[tuple[str, str]]
Checked = tuple[str, Findings, dict[str, Any]]
"""What it is, what is wrong with it, and what it shows."""


def check_export(header: Any, stream: IO[bytes], held: NoteVerifier, known: Sequence[str]) -> Checked:
    from palyra.cli.progress import watched
    from palyra.journal.checkpoint import parse_checkpoint
    from palyra.journal.export import SELECTION_TYPE, check_lines

    kind = "selection" if header["type"] == SELECTION_TYPE else "export"
    total = header["count"] if isinstance(header.get("count"), int) else None
    report = check_lines(header, watched(_lines(stream), total, "entries"), held, known)
    told = {"entries": report.entries} | ({"anchored": report.anchored} if known else {})
    if report.sound:  # then the header is what was signed
        told |= {"first": header["first"], "tree_size": parse_checkpoint(header["checkpoint"]).size}
    return kind, [(finding.code, finding.detail) for finding in report.findings], told


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    while line := stream.readline(MAX_LINE_BYTES):
        yield line


def check_envelopes(first: object, stream: IO[bytes], held: NoteVerifier) -> Checked:
    """A bundle shows that this installation signed each statement, and not that there are no others."""
    from palyra.errors import TrustError

    findings: Findings = []
    count, last = 0, -1
    value: object = first
    while True:
        try:
            last = _check_envelope(value, held, after=last)
        except (TrustError, ValueError) as error:
            findings.append(("ENVELOPE", f"Line {count + 1}: {error}"))
        count += 1
        line = stream.readline(MAX_LINE_BYTES)
        if not line or len(findings) > 100:
            return "bundle", findings, {"entries": count}
        value = parse_json(line)


def _check_envelope(value: object, held: NoteVerifier, *, after: int) -> int:
    from palyra.attest import PAYLOAD_TYPE
    from palyra.errors import TrustError
    from palyra.journal.entry import parse_entry
    from palyra.signing import dsse_verify

    payload_type, payload = dsse_verify(value, held.key)
    if payload_type != PAYLOAD_TYPE:
        raise TrustError("The envelope does not hold an in-toto statement.")
    index: int = parse_entry(payload).index
    if index <= after:
        raise TrustError(f"Entry {index} stands behind entry {after}: it was copied or moved.")
    return index


def check_tiles(folder: Path, held: NoteVerifier, known: Sequence[str]) -> Checked:
    from palyra.cli.progress import watched
    from palyra.errors import TrustError
    from palyra.journal.checkpoint import open_checkpoint
    from palyra.journal.export import open_known
    from palyra.journal.keys import Keys
    from palyra.journal.merkle import leaf_hash, root_of
    from palyra.journal.tiles import MAX_BUNDLE_BYTES, check_hash_tiles, read_bodies

    def read(name: str) -> bytes:
        try:
            with open(folder / name, "rb", opener=_without_waiting) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise TrustError(f"{name} is not a file.")
                return file.read(MAX_BUNDLE_BYTES)
        except OSError as error:
            raise TrustError(f"{name}: {error.strerror}.") from error

    try:
        head = open_checkpoint(read("checkpoint").decode("utf-8", "replace"), held)
        leaves = [leaf_hash(body) for body in watched(read_bodies(read, head.size), head.size, "entries")]
        if root_of(leaves) != head.root:
            return "tiles", [("TREE", "The entries are not those of the signed checkpoint.")], {"entries": head.size}
        wrong = [("TILE", f"{path} does not match the entries.") for path in check_hash_tiles(read, leaves)]
        seen = list(open_known(known, Keys(held)))
    except TrustError as error:
        return "tiles", [("TILES", str(error))], {}
    wrong += [_other_history(one.size, head.size) for one in seen if root_of(leaves[: one.size]) != one.root]
    told = {"anchored": max(one.size for one in seen)} if seen and not wrong else {}
    return "tiles", wrong, {"entries": head.size, **told}


def _other_history(known: int, size: int) -> tuple[str, str]:
    if known > size:
        return "TRUNCATED", f"A known checkpoint signs {known} entries, and there are {size}: entries were removed."
    return "FORK", f"A known checkpoint signs another history of the first {known} entries."


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
