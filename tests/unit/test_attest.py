"""What is attested is what is signed, and what is returned is what was attested."""

from __future__ import annotations

import base64
import copy
import json
from dataclasses import replace
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from palyra.attest import (
    FIELDS,
    LATE,
    DecisionFacts,
    Enforcement,
    Finding,
    Statement,
    attest,
    begin,
    check_outcome,
    finish,
    verify_attestation,
    write_ahead,
)
from palyra.canon import digest
from palyra.errors import TrustError
from palyra.signing import NoteSigner, SigningKey, dsse_sign
from tests.promises import promise

KEY = SigningKey.from_seed(bytes(range(32)))
OTHER = SigningKey.from_seed(bytes(range(1, 33)))
OUTPUT = {"exit_code": 0, "stdout": "héllo", "ratio": 0.5}
USAGE: dict[str, int | None] = {"wall_us": 5, "cpu_us": None}
STATEMENT = Statement(
    attestation_id="01J00000000000000000000000",
    call_id="01J00000000000000000000001",
    run_id="01J00000000000000000000002",
    tool="palyra.process.run",
    executor="sandbox_tier_c_linux_bubblewrap",
    sandbox_enforcement=Enforcement(backend="bwrap", egress_mode="strict", guarantees=("FS_ISOLATED",)),
    executed_at_unix_ms=1_700_000_000_000,
    status="completed",
    reason=None,
    success=True,
    timed_out=False,
    exit_code=0,
    input_sha256="a" * 64,
    output_sha256=digest(OUTPUT),
    config_sha256="b" * 64,
    policy_sha256="c" * 64,
    decision=DecisionFacts(effect="allow", policies=("workspace",)),
    limits={"wall_ms": 1000},
    usage=USAGE,
    nonce=bytes(32),
    redactions={"aws_key": 2},
)
ATTESTATION = attest(STATEMENT, KEY)
CONTRACT = set(
    "attestation_id call_id run_id tool executor sandbox_enforcement executed_at_unix_ms timed_out success exit_code "
    "input_sha256 output_sha256 plan_sha256 policy_sha256 config_sha256 skill_sha256 decision approval_id limits usage "
    "compiled_sha256 egress_sha256 redactions execution_sha256 key_id nonce projected_output_sha256 status "
    "reason".split()
)


def outcome(**changes: Any) -> dict[str, Any]:
    note = NoteSigner("palyra.local/test", KEY).sign(f"palyra.local/test\n5\n{base64.b64encode(bytes(32)).decode()}\n")
    value = {
        "call_id": STATEMENT.call_id,
        "run_id": STATEMENT.run_id,
        "tool": STATEMENT.tool,
        "status": "completed",
        "success": True,
        "reason": None,
        "output": dict(OUTPUT),
        "usage": dict(USAGE),
        "attestation": ATTESTATION,
        "receipt": {"index": 4, "tree_size": 5, "checkpoint": note},
    }
    return value | changes


def payload_of(attestation: dict[str, Any]) -> bytes:
    return base64.b64decode(attestation["envelope"]["payload"])


def test_every_field_of_the_contract_is_there_and_flat() -> None:
    assert set(ATTESTATION) == CONTRACT | {"envelope"}
    assert ATTESTATION["sandbox_enforcement"] == {
        "backend": "bwrap",
        "egress_mode": "strict",
        "guarantees": ["FS_ISOLATED"],
        "degraded": [],
        "proof_id": None,
    }
    assert ATTESTATION["decision"] == {"effect": "allow", "policies": ["workspace"]}
    assert ATTESTATION["nonce"] == "00" * 32


def test_the_envelope_holds_an_in_toto_statement_in_canonical_form() -> None:
    statement = json.loads(payload_of(ATTESTATION))
    assert rfc8785.dumps(statement) == payload_of(ATTESTATION)
    assert {name: statement[name] for name in ("_type", "subject", "predicateType")} == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": f"call/{STATEMENT.call_id}", "digest": {"sha256": ATTESTATION["execution_sha256"]}}],
        "predicateType": "urn:palyra:attestation:v1",
    }
    assert statement["predicate"] == {name: ATTESTATION[name] for name in FIELDS}


def test_execution_sha256_is_the_digest_of_the_fields_without_itself() -> None:
    rest = {name: ATTESTATION[name] for name in FIELDS - {"execution_sha256"}}
    assert ATTESTATION["execution_sha256"] == digest(rest)


_texts = st.text(st.characters(codec="utf-8"), max_size=6)
_numbers = st.none() | st.integers(0, 2**53 - 1)


@given(_texts, st.lists(_texts, max_size=2), _numbers, st.dictionaries(_texts, st.integers(0, 9), max_size=2))
def test_what_was_written_ahead_changes_no_byte_of_what_is_signed(text, texts, number, redactions) -> None:
    statement = replace(
        STATEMENT,
        sandbox_enforcement=Enforcement(backend=text, egress_mode="strict", guarantees=tuple(texts), proof_id=text),
        decision=DecisionFacts(effect="allow", policies=tuple(texts)),
        limits={"wall_ms": number or 0},
        usage={"wall_us": number},
        exit_code=number,
        run_id=text,
        redactions=redactions,
    )
    ahead = write_ahead(statement.sandbox_enforcement, statement.decision, statement.limits)
    try:
        whole = attest(statement, KEY)
    except ValueError:
        with pytest.raises(ValueError, match="not ASCII"):
            attest(statement, KEY, ahead)
        return
    assert attest(statement, KEY, ahead) == whole
    assert verify_attestation(attest(statement, KEY, ahead), KEY.public)


def test_what_was_written_ahead_for_another_statement_is_not_signed() -> None:
    ahead = write_ahead(STATEMENT.sandbox_enforcement, STATEMENT.decision, STATEMENT.limits)
    others = (
        replace(STATEMENT, sandbox_enforcement=Enforcement(backend="none", egress_mode="none")),
        replace(STATEMENT, decision=DecisionFacts(effect="deny")),
        replace(STATEMENT, limits={"wall_ms": 2}),
    )
    for other in others:
        assert attest(other, KEY, ahead) == attest(other, KEY)
    for wrong in ({"usage": {"wall_us": 1.5}}, {"exit_code": 2**53}, {"redactions": {"key": 0.5}}):
        with pytest.raises(ValueError, match="journal"):
            attest(replace(STATEMENT, **wrong), KEY, ahead)


def test_a_nonce_makes_the_same_execution_unguessable() -> None:
    other = attest(replace(STATEMENT, nonce=bytes([1]) * 32), KEY)
    assert other["execution_sha256"] != ATTESTATION["execution_sha256"]
    with pytest.raises(ValueError, match="32 bytes"):
        replace(STATEMENT, nonce=b"short")


def test_an_attestation_verifies_also_after_a_trip_through_json() -> None:
    assert verify_attestation(json.loads(json.dumps(ATTESTATION)), KEY.public)["call_id"] == STATEMENT.call_id


@promise("journal.forged-attestation")
def test_another_key_does_not_verify() -> None:
    with pytest.raises(TrustError):
        verify_attestation(ATTESTATION, OTHER.public)


@promise("journal.forged-attestation")
@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_changed_field_is_found(name: str) -> None:
    with pytest.raises(TrustError):
        verify_attestation(ATTESTATION | {name: "changed"}, KEY.public)


@promise("journal.forged-attestation")
@pytest.mark.parametrize(
    "change",
    [{"success": 1}, {"exit_code": 0.0}, {"exit_code": False}, {"extra": None}, {"envelope": None}, {"limits": {1: 2}}],
)
def test_what_python_calls_equal_is_not_enough(change: dict[str, Any]) -> None:
    with pytest.raises(TrustError):
        verify_attestation(ATTESTATION | change, KEY.public)


def test_a_missing_field_is_found() -> None:
    with pytest.raises(TrustError):
        verify_attestation({k: v for k, v in ATTESTATION.items() if k != "reason"}, KEY.public)


@promise("journal.forged-attestation")
def test_an_envelope_of_another_type_is_found() -> None:
    forged = dsse_sign(KEY, "application/json", payload_of(ATTESTATION))
    with pytest.raises(TrustError, match="in-toto"):
        verify_attestation(ATTESTATION | {"envelope": forged}, KEY.public)


@promise("journal.forged-attestation")
def test_a_wrong_execution_digest_is_found_even_when_it_was_signed() -> None:
    statement = json.loads(payload_of(ATTESTATION))
    statement["predicate"]["execution_sha256"] = statement["subject"][0]["digest"]["sha256"] = "d" * 64
    forged = dsse_sign(KEY, "application/vnd.in-toto+json", rfc8785.dumps(statement))
    with pytest.raises(TrustError, match="execution_sha256"):
        verify_attestation(ATTESTATION | {"execution_sha256": "d" * 64, "envelope": forged}, KEY.public)


# ── outcomes ─────────────────────────────────────────────────────────────────


def test_a_sound_outcome_has_no_findings() -> None:
    assert check_outcome(json.loads(json.dumps(outcome())), KEY.public) == ()
    assert check_outcome(outcome(), KEY.public, origin="palyra.local/test") == ()
    assert check_outcome(outcome(receipt=None), KEY.public) == ()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"call_id": "x"}, "CALL_ID"),
        ({"run_id": "x"}, "RUN_ID"),
        ({"tool": "x"}, "TOOL"),
        ({"status": "timeout"}, "STATUS"),
        ({"reason": "TIMEOUT"}, "REASON"),
        ({"success": False}, "SUCCESS"),
        ({"success": 1}, "SUCCESS"),
        ({"usage": {"wall_us": 6, "cpu_us": None}}, "USAGE"),
        ({"output": OUTPUT | {"stdout": "hello"}}, "OUTPUT"),
        ({"output": None}, "OUTPUT"),
        ({"output": {"x": float("nan")}}, "OUTPUT"),
    ],
)
def test_what_differs_from_the_attestation_is_named(change: dict[str, Any], code: str) -> None:
    assert [finding.code for finding in check_outcome(outcome(**change), KEY.public)] == [code]


def test_a_changed_exit_code_is_named_beside_the_output() -> None:
    found = check_outcome(outcome(output=OUTPUT | {"exit_code": 1}), KEY.public)
    assert [finding.code for finding in found] == ["OUTPUT", "EXIT_CODE"]


def test_a_projected_output_is_checked_by_its_own_digest() -> None:
    shown = {"preview": "hé"}
    projected = attest(replace(STATEMENT, projected_output_sha256=digest(shown)), KEY)
    assert check_outcome(outcome(attestation=projected, output=shown), KEY.public) == ()
    assert check_outcome(outcome(attestation=projected), KEY.public) == (
        Finding("OUTPUT", "The output does not have the attested projected_output_sha256."),
    )


def test_a_success_that_contradicts_itself_is_named() -> None:
    odd = attest(replace(STATEMENT, exit_code=3), KEY)
    found = check_outcome(outcome(attestation=odd, output={}), KEY.public)
    assert "SUCCESS" in [finding.code for finding in found]


@pytest.mark.parametrize(
    "change",
    [
        {"index": 5},
        {"index": -1},
        {"index": True},
        {"index": 4.0},
        {"tree_size": 6},
        {"tree_size": "5"},
        {"checkpoint": None},
        {"checkpoint": ""},
        {"more": 1},
    ],
)
def test_a_receipt_that_does_not_hold_is_named(change: dict[str, Any]) -> None:
    receipt = outcome()["receipt"] | change
    assert [finding.code for finding in check_outcome(outcome(receipt=receipt), KEY.public)] == ["RECEIPT"]


def test_a_receipt_of_another_journal_is_named() -> None:
    assert [f.code for f in check_outcome(outcome(), KEY.public, origin="palyra.local/mine")] == ["RECEIPT"]


@promise("journal.forged-attestation")
def test_a_receipt_signed_by_another_key_is_named() -> None:
    note = NoteSigner("palyra.local/test", OTHER).sign(outcome()["receipt"]["checkpoint"].partition("\n\n")[0] + "\n")
    receipt = outcome()["receipt"] | {"checkpoint": note}
    assert [f.code for f in check_outcome(outcome(receipt=receipt), KEY.public)] == ["RECEIPT"]


@pytest.mark.parametrize("value", [None, [], {}, {"attestation": None}, {"attestation": {}}, "text"])
def test_what_is_no_outcome_is_a_finding_and_not_a_crash(value: object) -> None:
    assert len(check_outcome(copy.deepcopy(value), KEY.public)) == 1


LATE_VALUES = [
    {},
    {"status": "failed", "reason": "INTERNAL", "success": False, "exit_code": None},
    {"status": "timeout", "reason": "TIMEOUT", "success": False, "timed_out": True, "exit_code": -9},
    {"output_sha256": "e" * 64, "projected_output_sha256": "f" * 64, "egress_sha256": "d" * 64},
    {"compiled_sha256": "9" * 64, "redactions": {}, "usage": {"wall_us": 2**52, "cpu_us": 0}},
    {"reason": "clé"},
]


@pytest.mark.parametrize("late", LATE_VALUES)
@pytest.mark.parametrize("call_id", [STATEMENT.call_id, 'a "name"'])
@pytest.mark.parametrize("egress", [None, "d" * 64])
def test_an_attestation_that_was_begun_before_the_end_is_the_one_made_after_it(
    late: dict[str, Any], call_id: str, egress: str | None
):
    guess = {"status": "", "exit_code": 7, "output_sha256": "", "usage": {}, "redactions": {}, "egress_sha256": egress}
    before = replace(STATEMENT, call_id=call_id, **guess)
    whole = replace(STATEMENT, call_id=call_id, **late)
    ahead = write_ahead(STATEMENT.sandbox_enforcement, STATEMENT.decision, STATEMENT.limits)
    begun = begin(before, KEY, ahead)
    assert begun is not None
    made = finish(begun, {name: copy.copy(getattr(whole, name)) for name in LATE}, KEY)
    assert made == attest(whole, KEY) == attest(whole, KEY, ahead)
    assert list(made) == list(attest(whole, KEY))
    assert verify_attestation(made, KEY.public)


def test_an_attestation_is_not_begun_with_what_another_call_says():
    ahead = write_ahead(STATEMENT.sandbox_enforcement, STATEMENT.decision, {"wall_ms": 1000})
    assert begin(STATEMENT, KEY, ahead) is None


@pytest.mark.parametrize("wrong", [{"status": "completed"}, dict.fromkeys((*LATE, "executor"))])
def test_what_was_said_before_the_end_is_not_said_again(wrong: dict[str, Any]):
    begun = begin(STATEMENT, KEY, write_ahead(STATEMENT.sandbox_enforcement, STATEMENT.decision, STATEMENT.limits))
    assert begun is not None
    with pytest.raises(ValueError, match="left open"):
        finish(begun, wrong, KEY)
