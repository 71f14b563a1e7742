"""The result of a call whose owner died: attested by whoever found it, with nothing claimed about its end.

What was kept with the intent (decision, plan digest, enforcement) is said again; exit code, usage and output are not
known and not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from palyra.attest import DecisionFacts, Statement, attest
from palyra.canon import Json, digest
from palyra.engine.ports import Ports
from palyra.engine.record import assemble, enforcement_of
from palyra.errors import Reason
from palyra.journal.chain import Asked, Decided
from palyra.model.outcome import Execution, Outcome, Status, Usage
from palyra.model.record import Closing, RunSpec, StoredCall

UNKNOWN = Execution(status=Status.INTERRUPTED, usage=Usage(cpu_us=None, max_rss_bytes=None))
MESSAGE = "Palyra was stopped while this call ran; what the program had done by then is not known."
HINT = "Check what the program had done, then repeat the call with another call_id."


def close_as_interrupted(stored: StoredCall, ports: Ports) -> Closing:
    kept: dict[str, Json] = orjson.loads(stored.details) if stored.details else {}
    decision = kept.get("decision") or {"effect": "none", "policies": []}
    effect, policies = decision["effect"], tuple(decision["policies"])
    outcome = Outcome(
        call_id=stored.call_id,
        run_id=stored.run_id,
        tool=stored.tool,
        status=Status.INTERRUPTED,
        success=False,
        reason=Reason.INTERRUPTED,
        message=MESSAGE,
        hint=HINT,
        usage=UNKNOWN.usage,
        attestation=attest(_statement(stored, ports, kept, DecisionFacts(effect=effect, policies=policies)), ports.key),
    )
    asked = Asked(
        call_id=stored.call_id,
        run_id=stored.run_id,
        tool=stored.tool,
        principal=stored.principal,
        door=kept.get("door") or "",
    )
    decided = Decided(
        effect=effect,
        policies=policies,
        policy_sha256=kept.get("policy_sha256"),
        config_sha256=kept.get("config_sha256"),
    )
    return assemble(
        ports,
        outcome,
        UNKNOWN,
        asked=asked,
        decided=decided,
        run=_run(stored),
        input_sha256=stored.input_sha256,
        opened=True,
        redactions={},
        details=b"",
        input_bytes=None,
        keep_call=True,
        egress_mode=(kept.get("enforcement") or {}).get("egress_mode", ""),
    )


def _statement(stored: StoredCall, ports: Ports, kept: Mapping[str, Json], decision: DecisionFacts) -> Statement:
    return Statement(
        attestation_id=ports.ids.ulid(),
        call_id=stored.call_id,
        run_id=stored.run_id,
        tool=stored.tool,
        executor=kept.get("executor") or "policy",
        sandbox_enforcement=enforcement_of(kept.get("enforcement") or {}),
        executed_at_unix_ms=stored.opened_unix_ms,
        status=Status.INTERRUPTED.value,
        reason=Reason.INTERRUPTED.value,
        success=False,
        timed_out=False,
        exit_code=None,
        input_sha256=stored.input_sha256,
        output_sha256=digest({}),
        config_sha256=kept.get("config_sha256") or "",
        policy_sha256=kept.get("policy_sha256"),
        decision=decision,
        limits=kept.get("limits") or {},
        usage=UNKNOWN.usage.as_json(),
        nonce=ports.ids.random_bytes(32),
        plan_sha256=kept.get("plan_sha256"),
    )


def _run(stored: StoredCall) -> RunSpec:
    """The run is known to the store already; these numbers are never written."""
    return RunSpec(
        run_id=stored.run_id, principal=stored.principal, workspace="", calls_max=1, attempts_max=1, created_unix_ms=0
    )
