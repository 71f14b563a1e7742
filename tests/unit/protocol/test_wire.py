"""The codec: every key always there, and what was written reads back as the same value."""

from __future__ import annotations

import json

import orjson
import pytest

from palyra.errors import Reason, Rejected
from palyra.model.outcome import ArtifactRef, BudgetView, Outcome, Status, Usage
from palyra.model.record import Receipt, Recorded
from palyra.protocol.wire import KEYS, outcome_bytes, outcome_json, parse_outcome, restore_outcome, stored_outcome_bytes

FULL = Outcome(
    call_id="01HF7YAT00000000000000CA11",
    run_id="01HF7YAT000000000000000RVN",
    tool="palyra.process.run",
    status=Status.QUOTA_EXCEEDED,
    success=False,
    reason=Reason.QUOTA_EXCEEDED,
    message="m",
    hint="h",
    output={"stdout": "é"},
    usage=Usage(wall_us=1, cpu_us=None, max_rss_bytes=3, output_bytes=4),
    budget=BudgetView(calls_used=1, calls_max=2),
    artifacts=(ArtifactRef(artifact_id="01HF7YAT00000000000000ARTF", sha256="0" * 64, size_bytes=1, name="stdout"),),
    attestation={"executor": "policy"},
    receipt={"index": 0, "tree_size": 1, "checkpoint": "c"},
)
BARE = Outcome(call_id="c", run_id="r", tool="t", status=Status.REFUSED, success=False)


@pytest.mark.parametrize("outcome", [FULL, BARE])
def test_an_outcome_reads_back_as_itself(outcome):
    value = json.loads(outcome_bytes(outcome))
    assert tuple(value) == KEYS
    assert parse_outcome(value) == outcome


def test_a_stored_outcome_takes_budget_and_receipt_from_the_journal():
    recorded = Recorded(
        receipt=Receipt(index=7, tree_size=9, checkpoint="now"), budget=BudgetView(calls_used=5, calls_max=10)
    )
    restored = restore_outcome(stored_outcome_bytes(FULL), recorded)
    assert restored.receipt == {"index": 7, "tree_size": 9, "checkpoint": "now"}
    assert restored.budget == BudgetView(calls_used=5, calls_max=10)
    assert restored.output == FULL.output


@pytest.mark.parametrize(
    "damage", [{"status": "fine"}, {"surprise": 1}, {"usage": {}, "reason": "NOPE"}, {"artifacts": [1]}]
)
def test_what_is_not_an_outcome_is_refused(damage):
    with pytest.raises(ValueError, match="not an outcome"):
        parse_outcome(orjson.loads(outcome_bytes(FULL)) | damage)
    with pytest.raises(ValueError, match="not an outcome"):
        parse_outcome({k: v for k, v in outcome_json(FULL).items() if k != "receipt"})


def test_an_outcome_that_is_no_longer_kept_is_a_refusal_and_no_crash() -> None:
    receipt = Receipt(index=1, tree_size=2, checkpoint="note")
    with pytest.raises(Rejected, match="no longer kept"):
        restore_outcome(b"", Recorded(receipt=receipt, budget=BudgetView()))
