"""Signed tree heads: origin, size and root as a C2SP checkpoint, signed as a note.

Rules: one size and root has exactly one text (no leading zeros, no other digits, no carriage returns, canonical
base64, no extra lines), so two texts that differ are two different heads; a head is opened with the key of the
origin it names.

Not here: the tree (journal/merkle), signatures over notes (signing).
"""

from __future__ import annotations

import base64
import binascii

from palyra.errors import TrustError
from palyra.late import late
from palyra.model.record import Checkpoint
from palyra.signing import NoteSigner, NoteVerifier, open_note

MAX_SIZE = 2**53 - 1

_TEXT = late(r"([^\n]+)\n(0|[1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n")


def sign_checkpoint(signer: NoteSigner, size: int, root: bytes, *, successor: NoteSigner | None = None) -> Checkpoint:
    return Checkpoint(signer.name, size, root, sign_head(signer, size, root, successor=successor))


def sign_head(signer: NoteSigner, size: int, root: bytes, *, successor: NoteSigner | None = None) -> str:
    """The note alone. `successor` signs too, where the journal is handed over to its key."""
    text = write_text(signer.name, size, root)
    note = signer.sign(text)
    return note if successor is None else note + successor.line(text)


def write_text(origin: str, size: int, root: bytes) -> str:
    return f"{origin}\n{size}\n{binascii.b2a_base64(root).decode('ascii')}"  # which ends its line itself


def open_checkpoint(note: str, verifier: NoteVerifier) -> Checkpoint:
    """A head that `verifier` signed, of the log that bears its name."""
    open_note(note, (verifier,))
    checkpoint = parse_checkpoint(note)
    if checkpoint.origin != verifier.name:
        raise TrustError(f"The checkpoint belongs to another log, {checkpoint.origin[:80]!r}.")
    return checkpoint


def parse_checkpoint(note: str) -> Checkpoint:
    """What a note claims, its form checked and its signature not."""
    found = _TEXT.fullmatch(note.rpartition("\n\n")[0] + "\n")
    if found is None or not found[1].isprintable():
        raise TrustError("The checkpoint is not an origin, a size and a root.")
    origin, size, encoded = found.groups()
    try:
        root = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise TrustError("The checkpoint's root is not base64.") from error
    if int(size) > MAX_SIZE or write_text(origin, int(size), root) != found.group(0):
        raise TrustError("The checkpoint is not in canonical form.")
    return Checkpoint(origin, int(size), root, note)
