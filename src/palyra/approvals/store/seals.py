"""What was asked and what was decided, signed with the installation's key and held against it.

Whoever edits a row behind our back (other arguments under a request, a wider scope under a yes) cannot sign it: such a
row shows a person nothing and grants nothing. The key is the journal's of the row's entry, so a handover leaves what
was asked and decided before it sound.
"""

from __future__ import annotations

import contextlib
import logging

from palyra.errors import StateError, TrustError
from palyra.model.approval import Approval, ApprovalState
from palyra.state.db import Home

log = logging.getLogger("palyra.approvals")

_ASKED = b"palyra approval request v1\n"
_DECIDED = b"palyra approval v1\n"


def seal_request(home: Home, approval: Approval) -> bytes:
    return home.key.sign(_ASKED + approval.request_bytes())


def seal_terms(home: Home, approval: Approval) -> bytes:
    return home.key.sign(_DECIDED + approval.terms_bytes())


def check_asked(home: Home, approval: Approval) -> None:
    """Somebody who swaps what is bound for what is shown would have a person sign for something else."""
    if approval.state is not ApprovalState.PENDING:
        return
    if not _is_signed(home, approval.seal, _ASKED + approval.request_bytes(), entry=approval.requested_index):
        detail = f"The request {approval.approval_id[:40]} is not what was asked."
        raise StateError(detail, "Run: palyra journal verify")


def check_decided(home: Home, approval: Approval) -> None:
    """One that somebody made up, or brought back, would be ended by an entry that contradicts the ones before."""
    if not _is_decided(home, approval):
        detail = f"The approval {approval.approval_id[:40]} is not what was decided, and lets nothing through."
        raise StateError(detail, "Run: palyra journal verify")


def is_as_decided(home: Home, approval: Approval) -> bool:
    if _is_decided(home, approval):
        return True
    log.warning("approval %.40s is not what was decided: run palyra journal verify", approval.approval_id)
    return False


def _is_decided(home: Home, approval: Approval) -> bool:
    entry = approval.decided_index
    return entry is not None and _is_signed(home, approval.seal, _DECIDED + approval.terms_bytes(), entry=entry)


def _is_signed(home: Home, seal: bytes, data: bytes, *, entry: int) -> bool:
    """By the key of that entry; in the commit after a handover the entry is the new key's."""
    keys = home.keys
    for verifier in {keys.of_entry(entry), keys.newest}:
        with contextlib.suppress(TrustError, ValueError):
            verifier.key.verify(seal, data)
            return True
    return False
