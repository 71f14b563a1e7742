"""The result of a call whose owner died: attested by whoever found it, with nothing claimed about its end.

Rules: it rests on the intent **entry** as the signed tree holds it, never on the call's row: whoever can edit the
database could otherwise have false statements signed. What is not in the entry (digests of input and plan) is said only
where the kept details fit the entry's commitment. Exit code, usage and output are not known and not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from palyra.attest import DecisionFacts, Statement, attest
from palyra.canon import Json, digest
from palyra.engine.fixed import enforcement_of
from palyra.engine.ports import Ports
from palyra.engine.record import assemble
from palyra.errors import Reason, StateError
from palyra.journal.chain import INTENT, Asked, Decided, Said, said_in_result
from palyra.journal.entry import EntryView, parse_entry
from palyra.model.outcome import Execution, Outcome, Status, Usage
from palyra.model.record import Closing, Intent, RunSpec, StoredCall

UNKNOWN = Execution(status=Status.INTERRUPTED, usage=Usage(cpu_us=None, max_rss_bytes=None))
MESSAGE = "Palyra was stopped while this call ran; what the program had done by then is not known."
HINT = "Check what the program had done, then repeat the call with another call_id."
UNPROVEN = ""
"""An attestation's input digest is text; this one says that nothing proves which input it was."""


def close_as_interrupted(stored: StoredCall, intent: Intent | None, ports: Ports) -> Closing:
    """`StateError` when the signed tree holds no open intent of this call: then there is nothing to speak for."""
    view = _checked(stored, intent)
    proven: Mapping[str, Json] = orjson.loads(intent.details) if intent is not None and intent.details else {}
    decided = Decided(**{**view.predicate["decision"], "policies": tuple(view.predicate["decision"]["policies"])})
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
        attestation=attest(_statement(view, decided, proven, ports), ports.key),
    )
    asked = _asked(view)
    return assemble(
        ports,
        outcome,
        UNKNOWN,
        said=Said(said_in_result(asked, decided, outcome.attestation["sandbox_enforcement"])),
        principal=asked.principal,
        run=_run(stored),
        input_sha256=stored.input_sha256,
        redactions={},
        keep_call=True,
        egress_mode=view.predicate["sandbox_enforcement"].get("egress_mode", ""),
        spent=None,
    )


def _checked(stored: StoredCall, intent: Intent | None) -> EntryView:
    try:
        view = parse_entry(intent.body) if intent is not None else None
    except ValueError:
        view = None
    if view is None or view.kind != INTENT or stored.owner is None or _row(stored) != _said(view):
        raise StateError(
            f"Call {stored.call_id} stands open, and the journal holds no such open intent: it is not closed.",
            "Run: palyra journal verify",
        )
    return view


def _row(stored: StoredCall) -> tuple[Json, ...]:
    owner = None if stored.owner is None else stored.owner.as_json()
    return stored.call_id, stored.run_id, stored.tool, stored.principal, owner


def _said(view: EntryView) -> tuple[Json, ...]:
    return tuple(view.predicate.get(name) for name in ("call_id", "run_id", "tool", "principal", "owner"))


def _asked(view: EntryView) -> Asked:
    names = ("call_id", "run_id", "tool", "principal", "skill")
    return Asked(**{name: view.predicate[name] for name in names}, **view.predicate["context"])


def _statement(view: EntryView, decided: Decided, proven: Mapping[str, Json], ports: Ports) -> Statement:
    said = view.predicate
    return Statement(
        attestation_id=ports.ids.ulid(),
        call_id=said["call_id"],
        run_id=said["run_id"],
        tool=said["tool"],
        executor=said["executor"],
        sandbox_enforcement=enforcement_of(said["sandbox_enforcement"]),
        executed_at_unix_ms=view.at_unix_ms,
        status=Status.INTERRUPTED.value,
        reason=Reason.INTERRUPTED.value,
        success=False,
        timed_out=False,
        exit_code=None,
        input_sha256=proven.get("input_sha256") or UNPROVEN,
        output_sha256=digest({}),
        config_sha256=decided.config_sha256 or "",
        policy_sha256=decided.policy_sha256,
        decision=DecisionFacts(effect=decided.effect, policies=decided.policies),
        limits=said["limits"],
        usage=UNKNOWN.usage.as_json(),
        nonce=ports.ids.random_bytes(32),
        plan_sha256=proven.get("plan_sha256"),
        approval_id=decided.approval_id,
    )


def _run(stored: StoredCall) -> RunSpec:
    """The run is known to the store already; these numbers are never written."""
    return RunSpec(
        run_id=stored.run_id, principal=stored.principal, workspace="", calls_max=1, attempts_max=1, created_unix_ms=0
    )
