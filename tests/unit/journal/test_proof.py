"""A proof of one call holds with a public key alone, and nothing about it can be changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import StateError
from palyra.journal.checkpoint import sign_checkpoint
from palyra.journal.merkle import leaf_hash
from palyra.journal.proof import check_proof, make_proof
from palyra.journal.tree import Tree
from palyra.signing import NoteSigner, SigningKey
from tests.promises import promise
from tests.unit.journal.evidence import Evidence, make_evidence


@pytest.fixture
def evidence(home: Path) -> Iterator[Evidence]:
    made = make_evidence(home, before=300, after=40)
    yield made
    made.writer.close()


def proof_of(evidence: Evidence, call_id: str) -> dict[str, Any]:
    entries = evidence.lookup.by_call(call_id)
    made = make_proof(call_id, entries, evidence.head, tree=evidence.tree, keys=evidence.keys)
    proof: dict[str, Any] = json.loads(json.dumps(made))
    return proof


def test_a_proof_holds_with_nothing_but_a_public_key(evidence: Evidence) -> None:
    for call_id in evidence.calls:
        proof = proof_of(evidence, call_id)
        assert [entry["index"] for entry in proof["entries"]] in ([300, 301], [302, 303])
        assert check_proof(proof, evidence.writer.home.verifier) == ()


def other_key(proof: dict[str, Any]) -> None:
    signer = NoteSigner(proof["checkpoint"].split("\n")[0], SigningKey.generate())
    proof["checkpoint"] = sign_checkpoint(signer, 344, bytes(32)).note


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda p: p.pop("keys"),
    lambda p: p.update(extra=1),
    lambda p: p.update(call_id="01HF7YAT00000000000000N0NE"),
    lambda p: p["entries"].reverse(),
    lambda p: p["entries"].pop(0),
    lambda p: p["entries"].append(copy.deepcopy(p["entries"][0])),
    lambda p: p["entries"][0].update(index=301),
    lambda p: p["entries"][0].update(index=True),
    lambda p: p["entries"][1].update(body=p["entries"][1]["body"].replace("completed", "cOmpleted")),
    lambda p: p["entries"][1].update(body=p["entries"][1]["body"] + " "),
    lambda p: p["entries"][1]["proof"].pop(),
    lambda p: p["entries"][1]["proof"].append(p["entries"][1]["proof"][0]),
    lambda p: p["entries"][1].update(proof=["A" * 44] * 65),
    lambda p: p["entries"][1].update(proof=[7]),
    lambda p: p["receipt"].update(consistency=[]),
    lambda p: p["receipt"].update(checkpoint=p["checkpoint"].replace("344", "0344")),
    lambda p: p.update(checkpoint=p["checkpoint"].replace("\n344\n", "\n345\n")),
    lambda p: p.update(checkpoint=p["receipt"]["checkpoint"]),
    lambda p: p.update(checkpoint=None),
    lambda p: p.update(keys=[{}]),
    lambda p: p.update(keys="no"),
    other_key,
]


@promise("journal.edited-evidence")
@pytest.mark.parametrize("change", CHANGES)
def test_a_proof_that_was_touched_does_not_hold(evidence: Evidence, change: Callable[[dict[str, Any]], object]) -> None:
    proof = proof_of(evidence, evidence.calls[0])
    change(proof)
    assert [finding.code for finding in check_proof(proof, evidence.writer.home.verifier)] == ["PROOF"]


@promise("journal.edited-evidence")
def test_another_key_under_the_same_origin_proves_nothing(evidence: Evidence) -> None:
    signer = NoteSigner(evidence.writer.home.origin, SigningKey.generate())
    assert check_proof(proof_of(evidence, evidence.calls[0]), signer.verifier) != ()


@promise("journal.edited-evidence")
def test_no_proof_is_made_of_leaf_hashes_that_were_edited(evidence: Evidence) -> None:
    rows = evidence.writer.rows

    def edited(sql: str, given: tuple[object, ...]) -> list[tuple[Any, ...]]:
        found = rows(sql, given)
        return [(i, leaf_hash(b"edited") if i == 7 else leaf) for i, leaf in found] if "leaf_hash" in sql else found

    tree = Tree(edited)
    entries = evidence.lookup.by_call(evidence.calls[0])
    with pytest.raises(StateError, match="not those of its signed head"):
        make_proof(evidence.calls[0], entries, evidence.head, tree=tree, keys=evidence.keys)
