"""What a run that was made by name narrows, as entries tell of it: by a digest, in the intent of each of its calls.

Its terms are a row without a signature: whoever takes a narrowing back there, moves the run to another workspace or
reopens it contradicts its calls (journal/audit_calls). They hold a random number, so that nobody guesses a workspace or
a host by the digest; those of older versions have none, and are told by no entry. Nor is a run that no call came for:
making runs costs no budget, and must not fill the journal.

So one that nobody used may be forgotten while its first call waits, for a person say, and its id be another's by then:
that call is refused, else its entry would tell of terms that are nowhere, and the journal would never verify again.
"""

from __future__ import annotations

from typing import Any, Protocol

import orjson

from palyra.canon import sha256_hex
from palyra.errors import Reason, Rejected
from palyra.model.record import RunSpec

NONCE = "nonce"
_HAS_NONCE = f'"{NONCE}":'.encode()
_SELECT = "SELECT workspace, created_unix_ms, terms FROM run_terms WHERE run_id = ? AND principal = ?"


class Rows(Protocol):
    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]: ...


def terms_sha256(run_id: str, principal: str, workspace: str, created_unix_ms: int, terms: bytes) -> str | None:
    """Of a row as it is stored; None where no entry tells of it."""
    if _HAS_NONCE not in terms:
        return None
    said = orjson.dumps([run_id, principal, workspace, created_unix_ms])
    return sha256_hex(b"palyra run terms\0" + said + b"\0" + terms)


def run_has_ended() -> Rejected:
    hint = "Leave its id out (--run, run_id): the call is then a run of its own. Or name another."
    return Rejected(Reason.BAD_ARGUMENTS, "This run has ended.", hint)


def check_terms(tx: Rows, run: RunSpec) -> None:
    """In the transaction that an entry is to tell of them in."""
    found = tx.rows(_SELECT, (run.run_id, run.principal))
    if not any(terms_sha256(run.run_id, run.principal, *row) == run.terms_sha256 for row in found):
        raise Rejected(Reason.BAD_ARGUMENTS, "There is no such run any more.", "Make one: POST /v1/runs.")
