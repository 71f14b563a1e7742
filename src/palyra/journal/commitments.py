"""Commitments: what an entry says of a value that it must not hold, and the salts that open them.

Rules: a value is committed to under a fresh salt of its own, bound to its field, because a plain digest can be guessed;
a salt that belongs to a run is stored under the run's key, so that one key deleted closes every commitment of the run.

Not here: which values an entry commits to (chain and its callers), keeping salts and keys (state).
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from palyra.model.record import Commitment

SALT_BYTES = 32
SEALED = b"\x01"
"""In front of a stored salt that is under its run's key."""


def commit_value(field: str, value: bytes, salt: bytes) -> Commitment:
    """HMAC-SHA256 under a fresh salt, bound to the field: a 4-digit secret must not fall to a dictionary."""
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes")
    if "\0" in field:
        raise ValueError("a field's name holds no NUL")
    return Commitment(field, mac_of(field, value, salt), salt)


def commit_values(values: Sequence[tuple[str, bytes]], salts: bytes) -> tuple[Commitment, ...]:
    """Each under a fresh salt of its own: `salts` are as many times `SALT_BYTES` random bytes."""
    if len(salts) != SALT_BYTES * len(values):
        raise ValueError("there are as many salts as values")
    # `commit_value` of each, written out: every call commits to five values.
    inner_keys, outer_keys, made, at = salts.translate(_INNER), salts.translate(_OUTER), [], 0
    for field, value in values:
        if "\0" in field:
            raise ValueError("a field's name holds no NUL")
        end = at + SALT_BYTES
        inner = sha256(b"%b%b%b\0%b" % (inner_keys[at:end], _INNER_REST, field.encode(), value)).digest()
        mac = sha256(outer_keys[at:end] + _OUTER_REST + inner).hexdigest()
        made.append(Commitment(field, mac, salts[at:end]))
        at = end
    return tuple(made)


def mac_of(field: str, value: bytes, salt: bytes) -> str:
    """What a commitment to `value` says under this salt."""
    # HMAC written out, for a key of half a block: the library's looks its algorithm up each time, and a call has five.
    inner = sha256(b"%b%b%b\0%b" % (salt.translate(_INNER), _INNER_REST, field.encode(), value)).digest()
    return sha256(salt.translate(_OUTER) + _OUTER_REST + inner).hexdigest()


_INNER, _OUTER = (bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C))
_INNER_REST, _OUTER_REST = (bytes([pad]) * (64 - SALT_BYTES) for pad in (0x36, 0x5C))


def run_commitment(workspace: str, created_unix_ms: int, salt: bytes) -> str:
    """What a run's first entry says of where it works and when it was made: without a salt, paths are guessed."""
    said = b"%d\0" % created_unix_ms + workspace.encode("utf-8", "surrogatepass")
    return commit_value("run", said, salt).mac


def seal_salt(salt: bytes, key: bytes, index: int, field: str) -> bytes:
    """A salt as it is stored: under its run's key, so that one key deleted closes every commitment of a run.

    The pad is used once: an entry has a field once. Sealing twice opens; a wrong key gives a salt that opens nothing.
    """
    pad = sha256(key + b"palyra opening\0" + index.to_bytes(8, "big") + field.encode()).digest()
    return (int.from_bytes(salt, "big") ^ int.from_bytes(pad, "big")).to_bytes(SALT_BYTES, "big")


def seal_salts(commitments: Sequence[Commitment], key: bytes, index: int) -> list[bytes]:
    """Each as it is stored, with its mark: `seal_salt` of all of an entry's at once."""
    before = key + b"palyra opening\0" + index.to_bytes(8, "big")
    pads = b"".join([sha256(before + one.field.encode()).digest() for one in commitments])
    salts = b"".join([one.salt for one in commitments])
    sealed = (int.from_bytes(salts, "big") ^ int.from_bytes(pads, "big")).to_bytes(len(pads), "big")
    return [SEALED + sealed[at : at + SALT_BYTES] for at in range(0, len(pads), SALT_BYTES)]


def open_salt(stored: bytes, key: bytes | None, index: int, field: str) -> bytes:
    """The salt, or nothing where its run's key is gone, or where no entry can be: who edits one chooses its index."""
    if index < 0:
        return b""
    if len(stored) != SALT_BYTES + 1 or stored[:1] != SEALED:
        return stored
    return b"" if key is None or len(key) != SALT_BYTES else seal_salt(stored[1:], key, index, field)
