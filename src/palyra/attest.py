"""ATTEST: what was asked, decided, enforced and observed, as one signed statement.

Rules: every field is always there, null where it does not apply; the fields stand flat in the attestation and once
more inside the signed envelope, and the two must agree; `execution_sha256` is the digest of the canonical fields
without itself, and because of the 32-byte nonce among them it can be published without giving anything to guess.

`check_outcome` is for whoever holds an outcome and a public key: it recomputes all that can be recomputed.
Not here: the journal's entries (journal/chain), keys and envelopes (signing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from operator import attrgetter, itemgetter
from typing import Any

import orjson

from palyra.canon import Json, canonical_around, canonical_strict, digest, made_ahead, not_of, sha256_hex
from palyra.errors import TrustError
from palyra.signing import NoteVerifier, PublicKey, SigningKey, dsse_sign, dsse_verify, open_note
from palyra.values import dataclass, names_of

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:palyra:attestation:v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforcement:
    """What confined the call: in force, and wanted but absent."""

    backend: str
    egress_mode: str
    guarantees: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    proof_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFacts:
    effect: str
    """allow, ask or deny; none when the call was refused before it could be decided."""
    policies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    attestation_id: str
    call_id: str
    run_id: str
    tool: str
    executor: str
    sandbox_enforcement: Enforcement
    executed_at_unix_ms: int
    status: str
    reason: str | None
    success: bool
    timed_out: bool
    exit_code: int | None
    input_sha256: str
    output_sha256: str
    """Over the whole redacted output, canonical JSON."""
    config_sha256: str
    policy_sha256: str | None
    decision: DecisionFacts
    limits: Mapping[str, int]
    usage: Mapping[str, int | None]
    nonce: bytes
    plan_sha256: str | None = None
    skill_sha256: str | None = None
    compiled_sha256: str | None = None
    """Of the machine code that a guest's module was run as."""
    approval_id: str | None = None
    projected_output_sha256: str | None = None
    """Over the output as returned, where the door showed only a part of it."""
    egress_sha256: str | None = None
    redactions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.nonce) != 32:
            raise ValueError("the nonce of an attestation has 32 bytes")


_NAMES = names_of(Statement)
_read = attrgetter(*_NAMES)
FIELDS = frozenset(_NAMES) | {"execution_sha256", "key_id"}
_BEFORE_DIGEST = tuple(sorted(name for name in FIELDS if name < "execution_sha256"))
_AFTER_DIGEST = tuple(sorted(name for name in FIELDS if name > "execution_sha256"))
LATE = frozenset(
    "status reason success timed_out exit_code output_sha256 projected_output_sha256 compiled_sha256 egress_sha256 "
    "redactions usage".split()
)
"""What a statement says of how its call ended."""
_LATE_BEFORE = tuple(name for name in _BEFORE_DIGEST if name in LATE)
_AHEAD = ("sandbox_enforcement", "decision", "limits")
_BEFORE_CHANGING = tuple(name for name in _BEFORE_DIGEST if name not in _AHEAD)
_AFTER_CHANGING = tuple(name for name in _AFTER_DIGEST if name not in _AHEAD)
_read_before, _read_after = itemgetter(*_BEFORE_CHANGING), itemgetter(*_AFTER_CHANGING)
_PAYLOAD = (
    b'{"_type":"%b","predicate":%%b,"execution_sha256":"%%b",%%b,"predicateType":"%b",'
    b'"subject":[{"digest":{"sha256":"%%b"},"name":"call/%%b"}]}'
) % (STATEMENT_TYPE.encode(), PREDICATE_TYPE.encode())
"""The canonical form of `_in_toto`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What the statements of one call say each time it is asked, and the bytes that this becomes, made once."""

    enforcement: Enforcement
    decision: DecisionFacts
    limits: Mapping[str, int]
    before: Mapping[str, Json]
    after: Mapping[str, Json]

    def fields(self) -> dict[str, Json]:
        """Anew each time, as `_plain` makes them."""
        enforcement, decision = self.enforcement, self.decision
        return {
            "sandbox_enforcement": {
                "backend": enforcement.backend,
                "egress_mode": enforcement.egress_mode,
                "guarantees": [*enforcement.guarantees],
                "degraded": [*enforcement.degraded],
                "proof_id": enforcement.proof_id,
            },
            "decision": {"effect": decision.effect, "policies": [*decision.policies]},
            "limits": dict(self.limits),
        }

    def is_of(self, statement: Statement) -> bool:
        return (
            self.enforcement is statement.sandbox_enforcement
            and self.decision is statement.decision
            and self.limits is statement.limits
        )


def write_ahead(enforcement: Enforcement, decision: DecisionFacts, limits: Mapping[str, int]) -> Ahead:
    """ValueError where one of them cannot be signed."""
    plain = tuple(map(_plain, (enforcement, decision, limits)))
    written = dict(zip(_AHEAD, map(made_ahead, plain), strict=True))
    return Ahead(
        enforcement=enforcement,
        decision=decision,
        limits=limits,
        before={name: written[name] for name in _AHEAD if name in _BEFORE_DIGEST},
        after={name: written[name] for name in _AHEAD if name in _AFTER_DIGEST},
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not hold: a stable code and one sentence."""

    code: str
    detail: str


def attest(statement: Statement, key: SigningKey, ahead: Ahead | None = None) -> dict[str, Json]:
    """Every field flat, `execution_sha256`, `key_id`, and the signed envelope. `ahead` says nothing of its own: what it
    was made of must be what the statement holds."""
    known = ahead if ahead is not None and ahead.is_of(statement) else None
    return _sign(_predicate(statement, key, known), key, known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An attestation of a call that has not ended yet; to be finished once."""

    predicate: Mapping[str, Json]
    ahead: Ahead
    first: bytes | None
    """Its fields before the digest's place, if it ends as was guessed."""


def begin(statement: Statement, key: SigningKey, ahead: Ahead) -> Begun | None:
    """`statement` says of `LATE` what may be guessed. None where `ahead` is not of it."""
    if not ahead.is_of(statement):
        return None
    predicate = _predicate(statement, key, ahead)
    return Begun(predicate=predicate, ahead=ahead, first=_write_first(predicate, ahead))


def finish(begun: Begun, late: Mapping[str, Json], key: SigningKey) -> dict[str, Json]:
    """What `attest` makes of the whole statement. `late` are the values of `LATE`, plain ones."""
    if late.keys() != LATE:
        raise ValueError("what is said late is not what was left open")
    before = begun.predicate
    as_guessed = all(late[name] == before[name] for name in _LATE_BEFORE)
    return _sign({**before, **late}, key, begun.ahead, begun.first if as_guessed else None)


def _predicate(statement: Statement, key: SigningKey, known: Ahead | None) -> dict[str, Json]:
    predicate: dict[str, Json] = dict(zip(_NAMES, _read(statement), strict=True))
    for name, value in not_of(predicate, _EXACT):
        if known is None or name not in _AHEAD:
            predicate[name] = _plain(value)
    predicate["key_id"] = key.key_id
    if known is not None:
        predicate |= known.fields()
    return predicate


def _sign(
    predicate: dict[str, Json], key: SigningKey, known: Ahead | None, first: bytes | None = None
) -> dict[str, Json]:
    # The digest stands among the fields it is made over: they are written once, in two halves around its place.
    first, rest = _write_halves(predicate, known, first)
    predicate["execution_sha256"] = execution = sha256_hex(b"%b,%b" % (first, rest))
    call_id: str = predicate["call_id"]
    payload = _PAYLOAD % (first, execution.encode(), rest, execution.encode(), call_id.encode())
    if not call_id.isalnum():
        payload = canonical_strict(_in_toto(predicate))  # a name that JSON may have to escape
    return {**predicate, "envelope": dsse_sign(key, PAYLOAD_TYPE, payload)}


def _write_halves(predicate: Mapping[str, Json], ahead: Ahead | None, first: bytes | None) -> tuple[bytes, bytes]:
    """The canonical fields before and after the digest's place, without the brackets between. `first`: the one half, if
    it is written already."""
    rest = None
    if ahead is not None:
        first = _write_first(predicate, ahead) if first is None else first
        rest = canonical_around(dict(zip(_AFTER_CHANGING, _read_after(predicate), strict=True)), ahead.after)
    if first is None or rest is None:
        first = canonical_strict({name: predicate[name] for name in _BEFORE_DIGEST})
        rest = canonical_strict({name: predicate[name] for name in _AFTER_DIGEST})
    return first[:-1], rest[1:]


def _write_first(predicate: Mapping[str, Json], ahead: Ahead) -> bytes | None:
    return canonical_around(dict(zip(_BEFORE_CHANGING, _read_before(predicate), strict=True)), ahead.before)


def verify_attestation(attestation: object, key: PublicKey) -> Mapping[str, Json]:
    """The attested fields, signed by `key`; `TrustError` when anything about them does not agree."""
    if not isinstance(attestation, Mapping) or set(attestation) != FIELDS | {"envelope"}:
        raise TrustError("The attestation does not have exactly the fields of an attestation.")
    payload_type, payload = dsse_verify(attestation["envelope"], key)
    if payload_type != PAYLOAD_TYPE:
        raise TrustError("The envelope does not hold an in-toto statement.")
    flat = {name: attestation[name] for name in FIELDS}
    try:
        # Compared as bytes: True == 1 and 1 == 1.0 in Python, not in what was signed.
        agrees = canonical_strict(_in_toto(flat)) == payload
    except (ValueError, TypeError) as error:
        raise TrustError("The attestation's fields cannot have been signed.") from error
    if not agrees:
        raise TrustError("The attestation's fields are not those inside its signed envelope.")
    if flat["execution_sha256"] != _execution_sha256(flat):
        raise TrustError("execution_sha256 is not the digest of the attested fields.")
    if flat["key_id"] != key.key_id:
        raise TrustError("The attestation names a different key from the one that signed it.")
    return flat


def check_outcome(outcome: object, key: PublicKey, *, origin: str | None = None) -> tuple[Finding, ...]:
    """Everything about an outcome that its attestation, its digests and its receipt contradict; empty when sound.

    `origin` is the journal's name where the caller knows it; without it the receipt's own is taken.
    """
    if not isinstance(outcome, Mapping) or not isinstance(outcome.get("attestation"), Mapping):
        return (Finding("SHAPE", "This is not an outcome with an attestation."),)
    try:
        attested = verify_attestation(outcome["attestation"], key)
    except TrustError as error:
        return (Finding("ATTESTATION", str(error)),)
    return (*_check_fields(outcome, attested), *_check_receipt(outcome.get("receipt"), key, origin))


def _check_fields(outcome: Mapping[str, Any], attested: Mapping[str, Json]) -> list[Finding]:
    findings = [
        Finding(name.upper(), f"The outcome's {name} is not the attested one.")
        for name in ("call_id", "run_id", "tool", "status", "reason", "success", "usage")
        if not _same(outcome.get(name), attested[name])
    ]
    output = outcome.get("output")
    projected = attested["projected_output_sha256"]
    which = "output_sha256" if projected is None else "projected_output_sha256"
    try:
        if not isinstance(output, Mapping) or digest(output) != attested[which]:
            findings.append(Finding("OUTPUT", f"The output does not have the attested {which}."))
    except ValueError:
        findings.append(Finding("OUTPUT", "The output cannot be what was attested: it is not exact JSON."))
    if isinstance(output, Mapping) and "exit_code" in output and not _same(output["exit_code"], attested["exit_code"]):
        findings.append(Finding("EXIT_CODE", "The output's exit code is not the attested one."))
    if attested["success"] and (attested["status"] != "completed" or attested["exit_code"] not in (None, 0)):
        findings.append(
            Finding("SUCCESS", "The attestation claims a success that its status and exit code contradict.")
        )
    return findings


def _check_receipt(receipt: object, key: PublicKey, origin: str | None) -> list[Finding]:
    """A call whose record could not be written has no receipt; one that is there must hold."""
    if receipt is None:
        return []
    if not isinstance(receipt, Mapping) or set(receipt) != {"index", "tree_size", "checkpoint"}:
        return [Finding("RECEIPT", "The receipt does not have exactly index, tree_size and checkpoint.")]
    index, size, note = receipt["index"], receipt["tree_size"], receipt["checkpoint"]
    if type(index) is not int or type(size) is not int or not isinstance(note, str):
        return [Finding("RECEIPT", "The receipt's fields have the wrong types.")]
    try:
        named = note.partition("\n")[0] if origin is None else origin
        text, _ = open_note(note, (NoteVerifier(named, key),))
    except TrustError as error:
        return [Finding("RECEIPT", f"The receipt's checkpoint is not valid: {error}")]
    lines = text.split("\n")
    if lines[0] != named or len(lines) != 4 or lines[1] != str(size) or not 0 <= index < size:
        return [Finding("RECEIPT", "The receipt's index and tree size are not those of its checkpoint.")]
    return []


def _in_toto(predicate: Mapping[str, Json]) -> dict[str, Json]:
    subject = {"name": f"call/{predicate['call_id']}", "digest": {"sha256": predicate["execution_sha256"]}}
    return {"_type": STATEMENT_TYPE, "subject": [subject], "predicateType": PREDICATE_TYPE, "predicate": predicate}


def _execution_sha256(predicate: Mapping[str, Json]) -> str:
    return sha256_hex(canonical_strict({k: v for k, v in predicate.items() if k != "execution_sha256"}))


_EXACT = frozenset({str, int, bool, type(None)})


def _plain(value: Any) -> Json:
    """Anew each time: what is attested is handed out, and must not be changed through another call's."""
    kind = type(value)
    if kind in _EXACT:
        return value
    if kind is bytes:
        return value.hex()
    if kind is dict and _EXACT.issuperset(map(type, value.values())):
        return value.copy()
    if kind is tuple and _EXACT.issuperset(map(type, value)):
        return [*value]
    if kind is Enforcement:
        return {
            "backend": _plain(value.backend),
            "egress_mode": _plain(value.egress_mode),
            "guarantees": _plain(value.guarantees),
            "degraded": _plain(value.degraded),
            "proof_id": _plain(value.proof_id),
        }
    if kind is DecisionFacts:
        return {"effect": _plain(value.effect), "policies": _plain(value.policies)}
    if isinstance(value, str):
        return str(value)  # a StrEnum becomes its text
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _same(left: object, right: object) -> bool:
    try:
        return orjson.dumps(left, option=orjson.OPT_SORT_KEYS) == orjson.dumps(right, option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONEncodeError, TypeError):
        return False
