"""Bytes that must never change by accident, and a verifier that knows nothing but docs/spec.

`attestation.json` is one outcome, `journal.json` the journal that holds it, both by a key made of a fixed seed. The
first tests hold the code to these bytes; the others check them with the standard library and an Ed25519 signature
alone, as the specification has it, so they fail when it leaves something out. Run as a program it writes the files.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from palyra import canon
from palyra.attest import DecisionFacts, Enforcement, Statement, attest, check_outcome
from palyra.journal import chain
from palyra.journal.checkpoint import sign_checkpoint
from palyra.journal.commitments import commit_value
from palyra.journal.export import Shown, export_lines, selection_lines
from palyra.journal.keys import Keys
from palyra.journal.merkle import Frontier, leaf_hash
from palyra.journal.proof import make_proof
from palyra.journal.tree import Tree
from palyra.model.limits import Limits
from palyra.model.record import Commitment, Entry, EntryDraft, Owner
from palyra.signing import NoteSigner, SigningKey, parse_vkey
from tests.journaling import intent_draft, result_draft

FOLDER = Path(__file__).parent
SEED = bytes(range(32))
ORIGIN = "palyra.local/0123456789abcdef"
AT = 1_700_000_000_000
RUN, CALL, REFUSED = "01HF7YAT00" + "0" * 16, "01HF7YAT01" + "0" * 16, "01HF7YAT02" + "0" * 16
OUTPUT: dict[str, Any] = {
    "exit_code": 0, "signal": None, "stdout": "Grüße\n\u0001", "stderr": "", "stdout_bytes": 9, "stderr_bytes": 0,
    "truncated": False, "tier": "C", "backend": "bubblewrap",
    "egress": {"mode": "strict", "allowed_hosts": [], "connections": []},
}  # fmt: skip
USAGE = {"wall_us": 3100, "cpu_us": 1200, "max_rss_bytes": None, "output_bytes": 9, "fuel": None}
ENFORCED: dict[str, Any] = {
    "backend": "bubblewrap", "egress_mode": "strict", "guarantees": ["FS_ISOLATED", "NET_ISOLATED"],
    "degraded": ["MEMORY_LIMIT_TREE"], "proof_id": None,
}  # fmt: skip


def make_attestation(key: SigningKey) -> dict[str, Any]:
    return attest(
        Statement(
            attestation_id="01HF7YAT03" + "0" * 16,
            call_id=CALL,
            run_id=RUN,
            tool="palyra.process.run",
            executor="sandbox_tier_c_linux_bubblewrap",
            sandbox_enforcement=Enforcement(
                backend="bubblewrap",
                egress_mode="strict",
                guarantees=("FS_ISOLATED", "NET_ISOLATED"),
                degraded=("MEMORY_LIMIT_TREE",),
            ),
            executed_at_unix_ms=AT,
            status="completed",
            reason=None,
            success=True,
            timed_out=False,
            exit_code=0,
            input_sha256=canon.digest({"command": "cat", "args": ["greeting.txt"]}),
            output_sha256=canon.digest(OUTPUT),
            config_sha256="c" * 64,
            policy_sha256="d" * 64,
            decision=DecisionFacts(effect="allow", policies=("permit.process",)),
            limits=Limits().as_json(),
            usage=USAGE,
            nonce=bytes(reversed(range(32))),
            plan_sha256="e" * 64,
            egress_sha256=canon.digest(OUTPUT["egress"]),
            redactions={"jwt": 1},
        ),
        key,
    )


def commitments(**values: bytes) -> tuple[Commitment, ...]:
    return tuple(commit_value(name, value, hashlib.sha256(name.encode()).digest()) for name, value in values.items())


def make_drafts(attestation: dict[str, Any]) -> list[tuple[EntryDraft, dict[str, bytes]]]:
    asked = chain.Asked(call_id=CALL, run_id=RUN, tool="palyra.process.run", principal="agent:demo", door="python")
    decided = chain.Decided(
        effect="allow", policies=("permit.process",), policy_sha256="d" * 64, config_sha256="c" * 64
    )
    opened = {"input": canon.canonical({"command": "cat", "args": ["greeting.txt"]}), "plan": b"{}", "details": b"{}"}
    closed = {"output": canon.canonical(OUTPUT), "outcome": b"{}"}
    refused = {"input": b"{", "output": b"{}", "details": b"null"}
    intent = intent_draft(
        asked=asked,
        decided=decided,
        owner=Owner("00000000-0000-4000-8000-000000000000", 4321, 98765),
        executor="sandbox_tier_c_linux_bubblewrap",
        enforcement=ENFORCED,
        limits=Limits().as_json(),
        commitments=commitments(**opened),
    )
    result = make_result(asked, decided, attestation, opened=True, commitments=commitments(**closed))
    refusal = make_result(
        chain.Asked(call_id=REFUSED, run_id=RUN, tool="palyra.echo", principal="agent:demo", door="python"),
        chain.Decided(effect="none", config_sha256="c" * 64),
        attestation | {"execution_sha256": "f" * 64, "executor": "policy"},
        opened=False,
        commitments=commitments(**refused),
    )
    act = chain.act_draft(act="policy.swapped", actor="user:alice", subject="home", details={"sha256": "d" * 64})
    return [(intent, opened), (result, closed), (refusal, refused), (act, {})]


def make_result(
    asked: chain.Asked, decided: chain.Decided, attestation: dict[str, Any], *, opened: bool, commitments: Any
) -> EntryDraft:
    draft = result_draft(
        asked=asked,
        decided=decided,
        opened=opened,
        status="completed" if opened else "refused",
        reason=None if opened else "MALFORMED",
        success=opened,
        exit_code=0 if opened else None,
        signal=None,
        stdout_bytes=9 if opened else 0,
        stderr_bytes=0,
        truncated=False,
        usage=USAGE,
        egress=chain.EgressSummary(mode="strict") if opened else None,
        redactions={"jwt": 1} if opened else {},
        executor=attestation["executor"],
        enforcement=ENFORCED,
        execution_sha256=attestation["execution_sha256"],
        attestation_id=attestation["attestation_id"],
        commitments=commitments,
    )
    kept = {"opened": opened, "kept": opened}
    return EntryDraft(
        predicate_type=draft.predicate_type,
        subject=draft.subject,
        predicate={**draft.predicate, **kept},
        run_id=draft.run_id,
        commitments=draft.commitments,
    )


def make_vectors() -> dict[str, dict[str, Any]]:
    key = SigningKey.from_seed(SEED)
    signer = NoteSigner(ORIGIN, key)
    attestation = make_attestation(key)
    frontier, entries, checkpoints, openings = Frontier(), [], [], []
    for index, (draft, values) in enumerate(make_drafts(attestation)):
        body = chain.entry_bytes(draft, index=index, sequence=index if draft.run_id else None, at_unix_ms=AT + index)
        frontier.append(leaf_hash(body))
        entries.append({"idx": index, "leaf_hash": leaf_hash(body).hex(), "body": body.decode()})
        openings += [
            {"entry": index, "field": c.field, "salt": c.salt.hex(), "value": values[c.field].decode()}
            for c in draft.commitments
        ]
        if index in (1, 3):  # two commits of two entries each
            checkpoint = sign_checkpoint(signer, frontier.size, frontier.root())
            checkpoints.append({"size": checkpoint.size, "note": checkpoint.note})
    outcome = {
        "call_id": CALL, "run_id": RUN, "tool": "palyra.process.run", "status": "completed", "success": True,
        "reason": None, "message": None, "hint": None, "output": OUTPUT, "usage": USAGE,
        "budget": {"calls_used": 1, "calls_max": 200}, "approval": None, "artifacts": [], "attestation": attestation,
        "receipt": {"index": 1, "tree_size": 2, "checkpoint": checkpoints[0]["note"]},
    }  # fmt: skip
    head = {"size": frontier.size, "frontier": frontier.pack().hex()}
    return {
        "evidence.json": {"vkey": signer.vkey, **make_evidence(entries, checkpoints, signer)},
        "attestation.json": {"seed": SEED.hex(), "vkey": signer.vkey, "outcome": outcome},
        "journal.json": {
            "vkey": signer.vkey, "entries": entries, "checkpoints": checkpoints, "head": head, "openings": openings,
        },
    }  # fmt: skip


def make_evidence(entries: list[Any], checkpoints: list[Any], signer: NoteSigner) -> dict[str, Any]:
    """The same journal as somebody else gets it: an export, a selection and a proof of the one call."""
    rows = sqlite3.connect(":memory:")
    rows.execute("CREATE TABLE entries (idx INTEGER PRIMARY KEY, leaf_hash BLOB, body BLOB)")
    rows.execute("CREATE TABLE checkpoints (size INTEGER PRIMARY KEY, note TEXT)")
    for one in entries:
        given = (one["idx"], bytes.fromhex(one["leaf_hash"]), one["body"].encode())
        rows.execute("INSERT INTO entries VALUES (?, ?, ?)", given)
    rows.executemany("INSERT INTO checkpoints VALUES (:size, :note)", checkpoints)
    tree, keys = Tree(lambda sql, given: rows.execute(sql, given).fetchall()), Keys(signer.verifier)
    head = keys.open(checkpoints[-1]["note"])
    stored = [Entry(one["idx"], bytes.fromhex(one["leaf_hash"]), one["body"].encode()) for one in entries]
    shown = [Shown(entry.index, entry.body, tree.inclusion(entry.index, head)) for entry in stored[:2]]
    made = {
        "export": export_lines([entry.body for entry in stored], head, begin=Frontier(), links=()),
        "export_from_1": export_lines([e.body for e in stored[1:]], head, begin=tree.frontier(1), links=()),
        "selection": selection_lines(shown, head, links=()),
        "proof": [json.dumps(make_proof(CALL, stored[:2], head, tree=tree, keys=keys)).encode()],
    }
    texts = {name: b"".join(lines).decode() for name, lines in made.items()}
    rows.close()
    return texts


# ── the code against the bytes ───────────────────────────────────────────────


@pytest.mark.parametrize("name", ["attestation.json", "evidence.json", "journal.json"])
def test_the_code_still_writes_these_bytes(name: str) -> None:
    assert make_vectors()[name] == read(name)


def test_the_code_accepts_the_outcome() -> None:
    vector = read("attestation.json")
    assert check_outcome(vector["outcome"], parse_vkey(vector["vkey"]).key, origin=ORIGIN) == ()


# ── the specification against the bytes ──────────────────────────────────────


def read(name: str) -> dict[str, Any]:
    vector: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return vector


def canonical(value: Any) -> bytes:
    """The canonical profile: ASCII keys and no fractions, so sorting and numbers need nothing special."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def parse_key(vkey: str) -> tuple[str, bytes, bytes]:
    """(name, key hash, raw key) of a verifier key."""
    name, hint, encoded = vkey.split("+", 2)
    kind_and_key = base64.b64decode(encoded)
    assert kind_and_key[:1] == b"\x01"
    assert sha256(name.encode() + b"\n" + kind_and_key)[:4].hex() == hint
    return name, bytes.fromhex(hint), kind_and_key[1:]


def verify(raw: bytes, signature: bytes, data: bytes) -> None:
    Ed25519PublicKey.from_public_bytes(raw).verify(signature, data)


def open_note(note: str, vkey: str) -> tuple[int, bytes]:
    """(size, root) of a checkpoint by this key."""
    name, hint, raw = parse_key(vkey)
    text, _, signatures = note.rpartition("\n\n")
    dash, signer, encoded = signatures.rstrip("\n").split(" ")
    signed = base64.b64decode(encoded)
    assert (dash, signer, signed[:4]) == ("—", name, hint)
    verify(raw, signed[4:], (text + "\n").encode())
    origin, size, root = text.split("\n")
    assert (origin, str(int(size))) == (name, size)
    return int(size), base64.b64decode(root)


def verify_attestation(attestation: dict[str, Any], vkey: str) -> None:
    """The six steps of docs/spec/attestation.md."""
    _, _, raw = parse_key(vkey)
    flat = {name: value for name, value in attestation.items() if name != "envelope"}
    envelope = attestation["envelope"]
    (signature,) = envelope["signatures"]
    kind, payload = envelope["payloadType"], base64.b64decode(envelope["payload"])
    assert signature["keyid"] == flat["key_id"] == sha256(raw).hex()[:16]
    encoding = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
    verify(raw, base64.b64decode(signature["sig"]), encoding)
    assert kind == "application/vnd.in-toto+json"
    subject = {"name": f"call/{flat['call_id']}", "digest": {"sha256": flat["execution_sha256"]}}
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [subject],
        "predicateType": "urn:palyra:attestation:v1",
        "predicate": flat,
    }
    assert canonical(statement) == payload
    without = {name: value for name, value in flat.items() if name != "execution_sha256"}
    assert flat["execution_sha256"] == sha256(canonical(without)).hex()


def tree_root(leaves: list[bytes]) -> bytes:
    """RFC 6962, as its definition has it."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"")
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha256(b"\x01" + tree_root(leaves[:split]) + tree_root(leaves[split:]))


def test_an_independent_verifier_accepts_the_attestation() -> None:
    vector = read("attestation.json")
    verify_attestation(vector["outcome"]["attestation"], vector["vkey"])


def test_an_independent_verifier_notices_any_changed_field() -> None:
    vector = read("attestation.json")
    for name in vector["outcome"]["attestation"]:
        changed = {**vector["outcome"]["attestation"], name: "changed"}
        with pytest.raises((AssertionError, InvalidSignature, TypeError, ValueError)):
            verify_attestation(changed, vector["vkey"])


def test_the_outcome_is_what_was_attested_and_has_its_place() -> None:
    vector = read("attestation.json")
    outcome = vector["outcome"]
    attested = outcome["attestation"]
    names = ("call_id", "run_id", "tool", "status", "reason", "success", "usage")
    assert {name: outcome[name] for name in names} == {name: attested[name] for name in names}
    assert sha256(canonical(outcome["output"])).hex() == attested["output_sha256"]
    assert sha256(canonical(outcome["output"]["egress"])).hex() == attested["egress_sha256"]
    size, _ = open_note(outcome["receipt"]["checkpoint"], vector["vkey"])
    entry = json.loads(read("journal.json")["entries"][outcome["receipt"]["index"]]["body"])
    assert (size, entry["predicate"]["execution_sha256"]) == (
        outcome["receipt"]["tree_size"],
        attested["execution_sha256"],
    )


def test_an_independent_auditor_accepts_the_journal() -> None:
    journal = read("journal.json")
    leaves = [sha256(b"\x00" + entry["body"].encode()) for entry in journal["entries"]]
    for index, entry in enumerate(journal["entries"]):
        statement = json.loads(entry["body"])
        assert canonical(statement) == entry["body"].encode()
        assert (entry["idx"], entry["leaf_hash"]) == (index, leaves[index].hex())
        predicate, subject = statement["predicate"], statement["subject"][0]
        assert predicate["place"]["index"] == index
        assert subject["digest"]["sha256"] == predicate.get("execution_sha256", sha256(subject["name"].encode()).hex())
    for checkpoint in journal["checkpoints"]:
        size = checkpoint["size"]
        assert open_note(checkpoint["note"], journal["vkey"]) == (size, tree_root(leaves[:size]))
    assert journal["checkpoints"][-1]["size"] == journal["head"]["size"] == len(leaves)
    assert journal["head"]["frontier"] == tree_root(leaves).hex()  # four leaves are one perfect tree


def test_every_commitment_opens_to_its_value() -> None:
    journal = read("journal.json")
    entries = [json.loads(entry["body"])["predicate"] for entry in journal["entries"]]
    opened = {
        (one["entry"], one["field"]): hmac.digest(
            bytes.fromhex(one["salt"]), one["field"].encode() + b"\0" + one["value"].encode(), "sha256"
        ).hex()
        for one in journal["openings"]
    }
    assert opened == {(at, name): mac for at, entry in enumerate(entries) for name, mac in entry["commitments"].items()}


def test_the_journals_entries_have_the_fields_of_the_specification() -> None:
    both = "call_id run_id tool principal skill context decision executor sandbox_enforcement place commitments".split()
    result = (
        "opened kept status reason success exit_code signal output usage egress redactions execution_sha256 "
        "attestation_id artifacts"
    ).split()
    intent, closing, refusal, act = (
        json.loads(entry["body"])["predicate"] for entry in read("journal.json")["entries"]
    )
    assert set(intent) == {*both, "owner", "limits"}
    assert set(closing) == set(refusal) == {*both, *result}
    assert set(act) == {"act", "actor", "details", "run_id", "place", "commitments"}


if __name__ == "__main__":
    for file, vector in make_vectors().items():
        (FOLDER / file).write_text(json.dumps(vector, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
