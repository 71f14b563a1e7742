"""What is kept of a call: owners, openings, closings, journal entries, checkpoints and receipts.

Rules: an entry is bytes, made once; hashes and signatures are over those bytes and never over a
re-serialisation. A state change and its entry commit together, so both travel in one value.

Not here: how entries look (journal/chain), how they are stored (state, journal/store).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from palyra.canon import Json
from palyra.model.approval import Permission
from palyra.model.budget import NO_QUOTA, NOTHING, UNLIMITED, Allowance, Quota, Spending
from palyra.model.outcome import BudgetView
from palyra.values import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that has a call in its hands. Pid reuse cannot fake it: boot id and start time differ."""

    boot_id: str
    pid: int
    start_ticks: int

    def as_json(self) -> dict[str, Json]:
        return {"boot_id": self.boot_id, "pid": self.pid, "start_ticks": self.start_ticks}


@dataclass(frozen=True, slots=True)
class Commitment:
    """HMAC-SHA256 of a sensitive value under a fresh salt. The entry holds `mac`; the opening stays local."""

    field: str
    mac: str
    salt: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """A run as it is stored with its first call."""

    run_id: str
    principal: str
    workspace: str
    calls_max: int
    attempts_max: int
    created_unix_ms: int
    most: Allowance = UNLIMITED
    """What it may use beside calls."""
    quota: Quota = NO_QUOTA
    """What all runs of its principal share; the configuration's, and not stored."""
    terms_sha256: str | None = None
    """Of what it was made with, where it was made by name: each call's intent says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryDraft:
    """One journal entry before the store gives it its place: predicate type, predicate, openings.

    The store adds the run's contiguous sequence number, turns it into bytes with journal/chain and appends it.
    """

    predicate_type: str
    subject: str
    """call/ID, run/ID, home … ; the subject's digest is that of the predicate's own `execution_sha256` or name."""
    predicate: Mapping[str, Json]
    run_id: str | None = None
    commitments: tuple[Commitment, ...] = ()
    fixed: Mapping[str, Json] = field(default_factory=dict)
    """Members of `predicate` once more, as bytes made ahead (canon.made_ahead): they are not written again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Committed before anything runs: the intent entry, the call's row, the spent call, the kept blobs."""

    run: RunSpec
    call_id: str
    tool: str
    principal: str
    input_sha256: str
    owner: Owner
    entry: EntryDraft
    opened_unix_ms: int
    details: bytes
    """Canonical JSON kept beside the row, by retention: redacted input, facts, plan, decision."""
    reserve: Spending = NOTHING
    """The most this call can use, held back for it where the run or its principal has a limit."""
    permission: Permission | None = None
    """The approval this call uses; used in the same transaction, or nothing is opened."""
    run_looks_new: bool = False
    """When it was assessed nobody knew its run. Only a guess: others may have stored it since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Committed at the end: the result entry and the outcome. For a refusal it is all there is."""

    run: RunSpec
    call_id: str
    tool: str
    principal: str
    input_sha256: str
    status: str
    reason: str | None
    entry: EntryDraft
    closed_unix_ms: int
    outcome: bytes
    """The outcome's JSON without budget and receipt, which the store knows better."""
    opened: bool
    """An intent was committed before; otherwise this spends an attempt and is the call's only entry."""
    details: bytes = b""
    spent: Spending | None = NOTHING
    """What an opened call used; None where nobody knows: then all that was reserved counts as used."""
    holds: bool = False
    """What it started goes on and is settled at its own end: the reservation stays."""
    keep_call: bool = True
    """False for bytes that never became a call, so that they claim no call id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    index: int
    tree_size: int
    checkpoint: str

    def as_json(self) -> dict[str, Json]:
        return {"index": self.index, "tree_size": self.tree_size, "checkpoint": self.checkpoint}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the store answers to an opening or closing."""

    receipt: Receipt
    budget: BudgetView


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCall:
    call_id: str
    run_id: str
    tool: str
    principal: str
    input_sha256: str
    status: str
    """`open` while it runs, else the outcome's status."""
    owner: Owner | None
    outcome: bytes
    details: bytes
    intent_index: int | None
    result_index: int | None
    opened_unix_ms: int
    reason: str | None = None
    recorded: Recorded | None = field(default=None)
    """For a closed call: its receipt and budget as of now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A call's intent as the signed tree holds it, for whoever must speak for a dead owner."""

    body: bytes
    """The entry's bytes, found to be a leaf of the newest signed tree."""
    details: bytes = b""
    """What was kept beside it, only where it fits the entry's commitment; else empty."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A signed tree head (C2SP signed note)."""

    origin: str
    size: int
    root: bytes
    note: str


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored journal entry: its place, its leaf hash as stored, and its bytes."""

    index: int
    leaf_hash: bytes
    body: bytes
