"""What a witness promises: it has seen one history of a log, and will sign no other (C2SP add-checkpoint).

Rules: a head is taken only if it is signed by the log's key and begins with the last head this witness took; a smaller
one is a rollback, another one of the same size a fork, and both are refused by name. A witness that signs adds a
timestamped cosignature (cosignature/v1), with a key of its own.

Not here: where a witness keeps its state (state/witness), the log's own keys (journal/keys).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from palyra.errors import TrustError
from palyra.journal.keys import Keys
from palyra.journal.merkle import verify_consistency
from palyra.model.record import Checkpoint
from palyra.signing import PublicKey, SigningKey
from palyra.values import dataclass

COSIGNATURE = b"\x04"
"""The note's signature type of a timestamped Ed25519 cosignature."""


@dataclass(frozen=True, slots=True)
class Refusal(Exception):
    """Why a head was not taken: rollback, fork, or signed by nobody known."""

    code: str
    detail: str


def add_checkpoint(last: Checkpoint | None, note: str, *, keys: Keys, proof: Sequence[bytes]) -> Checkpoint:
    """The new head, or `Refusal`. `proof` leads from the last head to this one."""
    try:
        head = keys.open(note)
    except TrustError as error:
        raise Refusal("UNSIGNED", f"The head does not belong to this log: {error}") from error
    if last is None:
        return head
    if head.size < last.size:
        raise Refusal("ROLLBACK", f"The log shows {head.size} entries, and {last.size} were seen before.")
    if head.size == last.size and head.root != last.root:
        raise Refusal(
            "FORK", f"The log shows a different history of its first {last.size} entries from the one seen before."
        )
    if not verify_consistency(last.size, head.size, last.root, head.root, proof=proof):
        raise Refusal("FORK", f"The log's {head.size} entries do not begin with the {last.size} that were seen before.")
    return head


# ── cosignatures ─────────────────────────────────────────────────────────────


def cosign(name: str, key: SigningKey, note: str, *, at_unix_s: int) -> str:
    """The signature line of a witness under a head it took."""
    text = note.rpartition("\n\n")[0] + "\n"
    signature = key.sign(_cosigned(text, at_unix_s))
    encoded = base64.b64encode(_hint(name, key.public) + at_unix_s.to_bytes(8, "big") + signature).decode("ascii")
    return f"\u2014 {name} {encoded}\n"


def open_cosignature(note: str, name: str, key: PublicKey) -> int:
    """When this witness signed the head, in seconds; `TrustError` when it did not."""
    text, gap, lines = note.rpartition("\n\n")
    for line in lines.splitlines() if gap else ():
        parts = line.split(" ")
        if len(parts) != 3 or parts[1] != name:
            continue
        try:
            raw = base64.b64decode(parts[2], validate=True)
        except ValueError as error:
            raise TrustError("A cosignature is not base64.") from error
        if raw[:4] != _hint(name, key) or len(raw) != 76:
            continue
        at_unix_s = int.from_bytes(raw[4:12], "big")
        key.verify(raw[12:], _cosigned(text + "\n", at_unix_s))
        return at_unix_s
    raise TrustError(f"The head is not signed by the witness {name}.")


def _cosigned(text: str, at_unix_s: int) -> bytes:
    return b"cosignature/v1\ntime %d\n%b" % (at_unix_s, text.encode())


def _hint(name: str, key: PublicKey) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + COSIGNATURE + key.raw).digest()[:4]
