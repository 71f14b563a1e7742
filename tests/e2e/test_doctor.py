"""`palyra doctor --prove`: the escape attempts hold here, and attestations say by which proof."""

from __future__ import annotations

import json

from tests.promises import promise


def test_a_proof_is_made_signed_journaled_and_referred_to(cli):
    before = cli.outcome("run", "--json", "--", "true")
    assert before["attestation"]["sandbox_enforcement"]["proof_id"] is None
    done = cli("doctor", "--prove", "--json", timeout=120)
    report = json.loads(done.stdout)
    assert done.returncode == 0, [item for item in report["items"] if item["status"] == "broken"]
    proof_id = next(item["detail"] for item in report["items"] if item["check"] == "proof").split(",")[0]
    after = cli.outcome("run", "--json", "--", "true")
    assert after["attestation"]["sandbox_enforcement"]["proof_id"] == proof_id
    shared = cli.outcome("run", "--json", "--egress", "none", "--", "true")  # other walls: nobody has attacked those
    assert shared["attestation"]["sandbox_enforcement"]["proof_id"] is None
    tail = [item["entry"]["predicate"] for item in json.loads(cli("journal", "tail", "--json").stdout)["items"]]
    (proved,) = [entry for entry in tail if entry.get("act") == "sandbox.proved"]
    assert proved["actor"] == {entry["principal"] for entry in tail if "principal" in entry}.pop()
    assert cli("journal", "verify").returncode == 0


@promise("sandbox.profile-proof")
def test_a_proof_that_was_changed_or_is_anothers_counts_for_nothing(cli):
    cli("doctor", "--prove", timeout=120)
    file = cli.home / "proof.json"
    envelope = json.loads(file.read_bytes())
    envelope["payload"] = envelope["payload"][::-1]
    file.write_text(json.dumps(envelope))
    outcome = cli.outcome("run", "--json", "--", "true")
    assert outcome["attestation"]["sandbox_enforcement"]["proof_id"] is None
