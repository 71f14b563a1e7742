"""What an entry says, and the bytes it becomes: in-toto statements in the journal's canonical profile.

Rules: an entry is written once and hashed as it stands, and reading it back must give the same bytes; inputs, plans,
outputs and kept records enter only as salted commitments, never as plain digests, because those can be guessed;
a message, an argument or a host a program named does not enter at all. An entry never fails a call: what JSON cannot
carry is escaped, and what is too long is cut in a fixed way, with a count of what was left out.

Intent: durable before anything runs. Result: how it ended; with `opened` false it is the call's only entry (a
refusal). Act: something an operator or Palyra itself did.

Not here: reading them back (entry), places in the tree (state), checks (audit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from hashlib import sha256

import orjson

from palyra.canon import Json, canonical_strict, fits_around, made_ahead, sha256_hex
from palyra.model.record import Commitment, EntryDraft, Owner
from palyra.values import dataclass

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
INTENT = "urn:palyra:intent:v1"
RESULT = "urn:palyra:result:v1"
ACT = "urn:palyra:act:v1"
KINDS = frozenset({INTENT, RESULT, ACT})

MAX_ENTRY_BYTES = 64 * 1024
"""Of one that is read; older versions wrote them as long."""
MAX_WRITTEN_BYTES = MAX_ENTRY_BYTES - 1
"""What the two bytes before an entry in a bundle of tiles can count: whoever chooses the length of one entry, as an
agent does by what it asks a hook, would otherwise keep the whole journal from being published as tiles."""
MAX_FIELDS = 48
_VALUE_BYTES = 1024
_SORTED_WHOLE = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asked for what, through which door. The same in a call's intent and its result."""

    call_id: str
    run_id: str
    tool: str
    principal: str
    door: str
    device: str = ""
    channel: str = ""
    session: str = ""
    skill: str = ""

    def as_json(self) -> dict[str, Json]:
        context = {"door": self.door, "device": self.device, "channel": self.channel, "session": self.session}
        return {
            "call_id": self.call_id,
            "run_id": self.run_id,
            "tool": self.tool,
            "principal": self.principal,
            "skill": self.skill,
            "context": context,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What was decided, by which policies of which bundle, under which configuration."""

    effect: str
    policies: tuple[str, ...] = ()
    policy_sha256: str | None = None
    config_sha256: str | None = None
    approval_id: str | None = None

    def as_json(self) -> dict[str, Json]:
        return {
            "effect": self.effect,
            "policies": list(self.policies),
            "policy_sha256": self.policy_sha256,
            "config_sha256": self.config_sha256,
            "approval_id": self.approval_id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressSummary:
    """Counts only: a host that a program names may itself be a secret on its way out."""

    mode: str
    allowed: int = 0
    denied: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    def as_json(self) -> dict[str, Json]:
        return {
            "mode": self.mode,
            "allowed": self.allowed,
            "denied": self.denied,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
        }


# ── drafts ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Said:
    """The members of a call's entry that say the same each time the call is asked; in `written` once more, as bytes
    made ahead (canon.made_ahead), where all of them fit an entry as they are."""

    members: Mapping[str, Json]
    written: Mapping[str, Json] = field(default_factory=dict)


def said_in_intent(
    asked: Asked,
    decided: Decided,
    *,
    owner: Owner,
    executor: str,
    enforcement: Mapping[str, Json],
    limits: Mapping[str, int],
) -> dict[str, Json]:
    """`enforcement` is what the plan promises."""
    more = {"owner": owner.as_json(), "executor": executor, "limits": dict(limits)}
    return said_in_result(asked, decided, enforcement) | more


def said_in_result(asked: Asked, decided: Decided, enforcement: Mapping[str, Json]) -> dict[str, Json]:
    """`enforcement` is what was in force as the launcher saw it."""
    members = asked.as_json() | {"decision": decided.as_json(), "sandbox_enforcement": dict(enforcement)}
    del members["call_id"], members["run_id"]
    return members


def write_said(members: Mapping[str, Json]) -> Said:
    """Without bytes where one of them does not fit an entry as it is: then entries are written, and trimmed, whole."""
    try:
        return Said(members, {name: made_ahead(value) for name, value in members.items()})
    except ValueError:
        return Said(members)


def draft_intent(said: Said, *, call_id: str, run_id: str, commitments: tuple[Commitment, ...]) -> EntryDraft:
    """`commitments` are those to the input and the plan."""
    return EntryDraft(
        predicate_type=INTENT,
        subject=f"call/{call_id}",
        predicate={**said.members, "call_id": call_id, "run_id": run_id},
        run_id=run_id,
        commitments=commitments,
        fixed=said.written,
    )


def draft_result(
    said: Said,
    *,
    call_id: str,
    run_id: str,
    opened: bool,
    status: str,
    reason: str | None,
    success: bool,
    exit_code: int | None,
    signal: int | None,
    stdout_bytes: int,
    stderr_bytes: int,
    truncated: bool,
    usage: Mapping[str, int | None],
    egress: EgressSummary | None,
    redactions: Mapping[str, int],
    executor: str,
    execution_sha256: str,
    attestation_id: str,
    commitments: tuple[Commitment, ...],
    artifacts: Sequence[str] = (),
) -> EntryDraft:
    """`artifacts` are ids, never digests."""
    predicate = {
        **said.members,
        "call_id": call_id,
        "run_id": run_id,
        "opened": opened,
        "status": status,
        "reason": reason,
        "success": success,
        "exit_code": exit_code,
        "signal": signal,
        "output": {"stdout_bytes": stdout_bytes, "stderr_bytes": stderr_bytes, "truncated": truncated},
        "usage": dict(usage),
        "egress": None if egress is None else egress.as_json(),
        "redactions": dict(redactions),
        "executor": executor,
        "execution_sha256": execution_sha256,
        "attestation_id": attestation_id,
        "artifacts": list(artifacts),
    }
    return EntryDraft(
        predicate_type=RESULT,
        subject=f"call/{call_id}",
        predicate=predicate,
        run_id=run_id,
        commitments=commitments,
        fixed=said.written,
    )


def act_draft(
    *,
    act: str,
    actor: str,
    subject: str,
    details: Mapping[str, Json],
    run_id: str | None = None,
    commitments: Sequence[Commitment] = (),
) -> EntryDraft:
    """`act` is a dotted verb such as policy.swapped; `details` hold facts and names, never values of secrets."""
    predicate = {"act": act, "actor": actor, "details": dict(details), "run_id": run_id}
    return EntryDraft(
        predicate_type=ACT, subject=subject, predicate=predicate, run_id=run_id, commitments=tuple(commitments)
    )


# ── bytes ────────────────────────────────────────────────────────────────────


def entry_bytes(draft: EntryDraft, *, index: int, sequence: int | None, at_unix_ms: int) -> bytes:
    """The canonical bytes of an entry at its place; less than 64 KiB, whatever the draft holds."""
    kind, subject, said, fixed = draft.predicate_type, draft.subject, draft.predicate, draft.fixed
    if kind not in KINDS or len(said) > MAX_FIELDS or "place" in said:
        raise ValueError("this is not a draft of this module")
    predicate = {
        **said,
        "place": {"index": index, "sequence": sequence, "at_unix_ms": at_unix_ms},
        "commitments": {one.field: one.mac for one in draft.commitments} if draft.commitments else {},
    }
    named = said.get("execution_sha256")
    try:  # what nearly every entry is: `_statement` around the members that were made ahead, without a question before
        digest = named if isinstance(named, str) else sha256(subject.encode()).hexdigest()
        statement = {
            "_type": STATEMENT_TYPE,
            "predicate": {**predicate, **fixed} if fixed else predicate,
            "predicateType": kind,
            "subject": [{"digest": {"sha256": digest}, "name": subject}],
        }
        body = orjson.dumps(statement, option=_SORTED_WHOLE)
    except (UnicodeEncodeError, orjson.JSONEncodeError, TypeError):
        return _written(draft, predicate)
    if body.isascii() and len(body) <= MAX_WRITTEN_BYTES and type(at_unix_ms) is int and fits_around(said, fixed):
        return body
    return _written(draft, predicate)


def _written(draft: EntryDraft, predicate: dict[str, Json]) -> bytes:
    """An entry that only the whole value tells how to write; cut where it is too long or cannot be written."""
    try:
        body = canonical_strict(_statement(draft.predicate_type, draft.subject, predicate))
    except ValueError:
        body = b""
    return body if 0 < len(body) <= MAX_WRITTEN_BYTES else _trimmed(draft, predicate)


def _trimmed(draft: EntryDraft, predicate: dict[str, Json]) -> bytes:
    """The same entry, cut harder and harder until it fits; its place and its commitments are never cut."""
    from palyra.journal.trim import CUTS, ascii_name, trim, trim_text  # entries nearly always fit

    subject = trim_text(draft.subject, 512)
    whole = {name: predicate[name] for name in ("place", "commitments")}
    smaller: dict[str, Json] = {}
    for cut in CUTS:
        smaller = {ascii_name(name): trim(value, cut) for name, value in predicate.items()} | whole
        body = canonical_strict(_statement(draft.predicate_type, subject, smaller))
        if len(body) <= MAX_WRITTEN_BYTES:
            return body
    for name, value in smaller.items():
        size = len(canonical_strict(value))
        if size > _VALUE_BYTES and name not in whole:
            smaller[name] = {"omitted_bytes": size}
    return canonical_strict(_statement(draft.predicate_type, subject, smaller))


def _statement(kind: str, subject: str, predicate: Mapping[str, Json]) -> dict[str, Json]:
    """in-toto wants a digest of the subject: the execution's where there is one, else that of its name."""
    named = predicate.get("execution_sha256")
    digest = named if isinstance(named, str) else sha256_hex(subject.encode("utf-8", "surrogatepass"))
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": subject, "digest": {"sha256": digest}}],
        "predicateType": kind,
        "predicate": predicate,
    }
