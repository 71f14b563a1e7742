"""Operator acts: what was done to an installation beside its calls, as typed journal entries.

A change of state and its act commit in one transaction: hand the group-committing writer one piece of work,

    await writer.commit(lambda tx: (change(tx), record_act(tx, act, at_unix_ms=now)))

and either both are durable or neither happened. `commit_now` is the same without an event loop.

Rules: every kind of act has a row in `SHAPES` that says what it is done to and which details it tells; other details
are refused, so that no value slips in beside a name. A secret is told by its name, never by its value or a digest of
it; free text of a person is redacted by whoever takes it in. Not here: calls (journal/chain), commits (state/writer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Protocol

from palyra.canon import Json
from palyra.journal.chain import ACT
from palyra.model.record import Commitment, EntryDraft
from palyra.values import dataclass

PALYRA = "palyra"
"""The actor of what Palyra does by itself: retention, an expiry, a process that ended."""


class ActKind(StrEnum):
    """A dotted verb: a noun, and what was done to it."""

    INSTALLATION_STARTED = "installation.started"
    INSTALLATION_STOPPED = "installation.stopped"
    CONFIG_CHANGED = "config.changed"
    POLICY_USED = "policy.used"
    POLICY_ROLLED_BACK = "policy.rolled_back"
    POLICY_ALLOWED = "policy.allowed"
    POLICY_DISALLOWED = "policy.disallowed"
    POLICY_STALE = "policy.stale"
    POLICY_REPAIRED = "policy.repaired"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_DECIDED = "approval.decided"
    APPROVAL_VIEWED = "approval.viewed"
    APPROVAL_EXPIRED = "approval.expired"
    APPROVAL_REVOKED = "approval.revoked"
    RUN_EXTENDED = "run.extended"
    RUN_LABELLED = "run.labelled"
    RUN_ENDED = "run.ended"
    SECRET_SET = "secrets.set"
    SECRET_DELETED = "secrets.deleted"
    TOKEN_CREATED = "token.created"
    TOKEN_REVOKED = "token.revoked"
    SESSION_OPENED = "session.opened"
    SESSION_ENDED = "session.ended"
    SKILL_CHANGED = "skill.changed"
    SKILL_PROPOSED = "skill.proposed"
    TRUST_CHANGED = "trust.changed"
    KEY_ROTATED = "key.rotated"
    WITNESS_ADDED = "witness.added"
    HEAD_WITNESSED = "head.witnessed"
    OPENING_DELETED = "opening.deleted"
    RECORDS_DELETED = "records.deleted"
    ENTRIES_PRUNED = "entries.pruned"
    SEGMENT_SEALED = "segment.sealed"
    SANDBOX_PROVED = "sandbox.proved"
    SANDBOX_NOT_PROVED = "sandbox.not_proved"
    PROCESS_STARTED = "process.started"
    PROCESS_ENDED = "process.ended"
    HOME_COLLECTED = "home.collected"
    HOOK_ANSWERED = "hook.answered"
    NODE_DRAINED = "node.drained"
    BLOBS_COLLECTED = "blobs.collected"


@dataclass(frozen=True, slots=True)
class Shape:
    """What an act is done to (the subject is `noun/ID`, or the noun alone) and the details it may tell."""

    noun: str
    details: frozenset[str]
    meaning: str


def _shape(noun: str, details: str, meaning: str) -> Shape:
    return Shape(noun, frozenset(details.split()), meaning)


_APPROVAL = "approval_id principal tool run"
_SECRET = "name version created_unix_ms scope credential generation vault_sha256"
_POLICY = "version before policy_sha256"
_STALE = "policy_sha256 fault_sha256"

SHAPES: Mapping[ActKind, Shape] = {
    ActKind.INSTALLATION_STARTED: _shape("home", "version pid listen", "A daemon started."),
    ActKind.INSTALLATION_STOPPED: _shape("home", "version pid reason", "A daemon shut down cleanly."),
    ActKind.CONFIG_CHANGED: _shape("config", "before_sha256 after_sha256", "The configuration changed."),
    ActKind.POLICY_USED: _shape("policy", _POLICY, "Another version of the policies is in use from here on."),
    ActKind.POLICY_ROLLED_BACK: _shape("policy", _POLICY, "The previous version of the policies is in use again."),
    ActKind.POLICY_ALLOWED: _shape(
        "exception", "call_id scope lifts text_sha256", "An operator made an exception for a refused call."
    ),
    ActKind.POLICY_DISALLOWED: _shape("exception", "text_sha256", "An operator took an exception back."),
    ActKind.POLICY_STALE: _shape(
        "policy", _STALE, "The policies cannot be used as they are written; the last that could stay in force."
    ),
    ActKind.POLICY_REPAIRED: _shape("policy", _STALE, "The policies can be used as they are written again."),
    ActKind.APPROVAL_REQUESTED: _shape("approval", f"{_APPROVAL} call_id expires_unix_ms", "A person was asked."),
    ActKind.APPROVAL_VIEWED: _shape("approval", _APPROVAL, "A person looked at a request."),
    ActKind.APPROVAL_DECIDED: _shape(
        "approval",
        f"{_APPROVAL} decision logins self_approved scope has_pattern valid_until_unix_ms",
        "A person said yes or no.",
    ),
    ActKind.APPROVAL_EXPIRED: _shape("approval", _APPROVAL, "Nobody answered in time."),
    ActKind.APPROVAL_REVOKED: _shape("approval", _APPROVAL, "A yes or a no was taken back."),
    ActKind.RUN_EXTENDED: _shape("run", "budget", "A run's budget was extended by a person."),
    ActKind.RUN_LABELLED: _shape(
        "run", "principal labels call_id", "A run is marked from here on by what one of its calls may do."
    ),
    ActKind.RUN_ENDED: _shape("run", "principal", "A run was ended: it takes no more calls."),
    ActKind.SECRET_SET: _shape("secret", _SECRET, "A secret was set; its name and binding are recorded."),
    ActKind.SECRET_DELETED: _shape("secret", _SECRET, "A secret was deleted."),
    ActKind.TOKEN_CREATED: _shape(
        "token", "principal operator expires_at_unix_ms row_sha256", "A credential was created."
    ),
    ActKind.TOKEN_REVOKED: _shape("token", "principal reason", "A credential was revoked."),
    ActKind.SESSION_OPENED: _shape(
        "session", "principal credential_id expires_at_unix_ms", "An operator logged in to the console."
    ),
    ActKind.SESSION_ENDED: _shape("session", "principal", "An operator logged out of the console."),
    ActKind.SKILL_CHANGED: _shape(
        "skill", "version sha256 before after publisher reason", "A skill was installed, or changed its state."
    ),
    ActKind.SKILL_PROPOSED: _shape(
        "candidate", "skill_id source model", "A project for a skill was generated; none of it runs yet."
    ),
    ActKind.TRUST_CHANGED: _shape("publisher", "key_id before after reason", "Trust in a publisher's key changed."),
    ActKind.KEY_ROTATED: _shape("key", "old_vkey new_vkey from_index", "The journal is signed by a new key."),
    ActKind.WITNESS_ADDED: _shape("witness", "kind place_sha256", "Heads of this journal are shown to a new witness."),
    ActKind.HEAD_WITNESSED: _shape("origin", "vkey size root", "A head of another journal was taken as its witness."),
    ActKind.OPENING_DELETED: _shape(
        "call",
        "call_id fields reason",
        "What was kept of a call was redacted; its commitments can no longer be opened.",
    ),
    ActKind.RECORDS_DELETED: _shape(
        "journal",
        "before_unix_ms principal calls blobs openings",
        "Kept records were removed by retention.",
    ),
    ActKind.ENTRIES_PRUNED: _shape(
        "segment",
        "first count runs runs_sha256 approvals_sha256",
        "A sealed file of old entries was removed; their hashes stay.",
    ),
    ActKind.SEGMENT_SEALED: _shape(
        "segment", "first count bodies places_sha256 sha256 bytes", "Old entries were written into a sealed file."
    ),
    ActKind.SANDBOX_PROVED: _shape("proof", "fingerprint attempts failed", "Every escape attempt was stopped."),
    ActKind.SANDBOX_NOT_PROVED: _shape("proof", "fingerprint attempts failed", "An escape attempt was not stopped."),
    ActKind.PROCESS_STARTED: _shape(
        "process",
        "process_id call_id principal lifetime started_unix_ms expires_unix_ms pid start_ticks keeper cgroups_sha256",
        "A background process is about to begin; its sandbox stands.",
    ),
    ActKind.PROCESS_ENDED: _shape(
        "process",
        "process_id call_id principal lifetime status exit_code signal reason stopped_by started_unix_ms usage output "
        "redactions protected_created spent egress",
        "A background process ended.",
    ),
    ActKind.HOME_COLLECTED: _shape(
        "home",
        "artifacts_before_unix_ms logs_before_unix_ms artifact blob log value file cgroup container probe launcher",
        "What was past its time, or left behind by dead processes, was removed; how many of each.",
    ),
    ActKind.HOOK_ANSWERED: _shape(
        "hook",
        "agent event tool programs permission reason policies session_sha256",
        "An agent's host asked whether it may run a tool itself.",
    ),
    ActKind.NODE_DRAINED: _shape("node", "node_id", "A node of the cluster accepts no more calls."),
    ActKind.BLOBS_COLLECTED: _shape(
        "blobs",
        "before_unix_ms count bytes",
        "Files of workspaces that no call needed any more were removed from the blob store.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    kind: ActKind
    actor: str
    """A principal (`user:alice`), or `PALYRA`; older journals have `uid:0` for whoever held the terminal."""
    subject: str
    """`noun/ID` with the noun of the kind's shape, or the noun alone."""
    details: Mapping[str, Json] = field(default_factory=dict)
    run_id: str | None = None
    """A run that is stored: the act gets the next number of its sequence."""
    commitments: tuple[Commitment, ...] = ()

    def __post_init__(self) -> None:
        shape = SHAPES[self.kind]
        if not self.actor or not self.actor.isprintable():
            raise ValueError(f"{self.kind}: an act names who did it")
        if self.subject != shape.noun and not self.subject.startswith(f"{shape.noun}/"):
            raise ValueError(f"{self.kind} is done to a {shape.noun}, not to {self.subject[:80]!r}")
        if extra := sorted(set(self.details) - shape.details):
            raise ValueError(f"{self.kind} does not tell {', '.join(extra)}")

    def draft(self) -> EntryDraft:
        # act_draft, without a call for it
        details, run_id = dict(self.details), self.run_id
        return EntryDraft(
            predicate_type=ACT,
            subject=self.subject,
            predicate={"act": self.kind._value_, "actor": self.actor, "details": details, "run_id": run_id},
            run_id=run_id,
            commitments=self.commitments,
        )


class Appends(Protocol):
    """A transaction under way; state/transaction fits."""

    def append(self, draft: EntryDraft, *, at_unix_ms: int) -> int: ...


def record_act(tx: Appends, act: Act, *, at_unix_ms: int) -> int:
    """Put the act into the same commit as the change it tells of; returns the entry's index."""
    return tx.append(act.draft(), at_unix_ms=at_unix_ms)
