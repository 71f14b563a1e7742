"""Journals to test with: drafts, openings and closings that differ only where a test wants them to."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from palyra.attest import DecisionFacts, Enforcement, Statement, attest
from palyra.budget.store import BudgetStore
from palyra.canon import Json, digest
from palyra.errors import Reason
from palyra.journal.audit import Report
from palyra.journal.chain import (
    Asked,
    Decided,
    Said,
    act_draft,
    draft_intent,
    draft_result,
    said_in_intent,
    said_in_result,
)
from palyra.journal.commitments import commit_value
from palyra.journal.store import JournalStore
from palyra.model.outcome import Outcome, Status, Usage
from palyra.model.record import Closing, Commitment, EntryDraft, Opening, Owner, RunSpec
from palyra.protocol.wire import stored_outcome_bytes
from palyra.state.db import Home
from palyra.state.writer import Writer
from tests.stores import audit, open_writer

NOW = 1_700_000_000_000
OWNER = Owner("boot", 42, 7)
DECIDED = Decided(effect="allow", policies=("workspace",), policy_sha256="0" * 64, config_sha256="1" * 64)
ENFORCEMENT = {"backend": "bwrap", "egress_mode": "strict", "guarantees": ["FS_ISOLATED"], "degraded": []}
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_counter = itertools.count(os.getpid() << 40)


def ulid(number: int | None = None) -> str:
    """A well-formed id: the next one, or the one with this number."""
    value = next(_counter) if number is None else number
    return "".join(_ALPHABET[(value >> 5 * place) & 31] for place in range(25, -1, -1))


def run_spec(run_id: str, *, principal: str = "agent:demo", calls_max: int = 1000, attempts_max: int = 1000) -> RunSpec:
    return RunSpec(
        run_id=run_id,
        principal=principal,
        workspace="/workspace",
        calls_max=calls_max,
        attempts_max=attempts_max,
        created_unix_ms=NOW,
    )


def asked(call_id: str, run_id: str, principal: str = "agent:demo") -> Asked:
    return Asked(call_id=call_id, run_id=run_id, tool="palyra.echo", principal=principal, door="python")


def intent_draft(*, asked: Asked, decided: Decided, commitments: tuple[Commitment, ...], **said: Any) -> EntryDraft:
    members = said_in_intent(asked, decided, **said)
    return draft_intent(Said(members), call_id=asked.call_id, run_id=asked.run_id, commitments=commitments)


def result_draft(*, asked: Asked, decided: Decided, enforcement: Mapping[str, Json], **observed: Any) -> EntryDraft:
    said = Said(said_in_result(asked, decided, enforcement))
    return draft_result(said, call_id=asked.call_id, run_id=asked.run_id, **observed)


def intent(call_id: str, run_id: str, *, principal: str = "agent:demo") -> EntryDraft:
    return intent_draft(
        asked=asked(call_id, run_id, principal),
        decided=DECIDED,
        owner=OWNER,
        executor="builtin",
        enforcement=ENFORCEMENT,
        limits={"wall_ms": 1000},
        commitments=(commit_value("input", b"{}", bytes(32)), commit_value("plan", b"{}", bytes(32))),
    )


def result(call_id: str, run_id: str, *, opened: bool = True, principal: str = "agent:demo") -> EntryDraft:
    return result_draft(
        asked=asked(call_id, run_id, principal),
        decided=DECIDED,
        opened=opened,
        status="completed" if opened else "refused",
        reason=None if opened else "POLICY_DENIED",
        success=opened,
        exit_code=0,
        signal=None,
        stdout_bytes=2,
        stderr_bytes=0,
        truncated=False,
        usage={"wall_us": 5, "cpu_us": None},
        egress=None,
        redactions={},
        executor="builtin",
        enforcement=ENFORCEMENT,
        execution_sha256="2" * 64,
        attestation_id=ulid(1),
        commitments=(commit_value("output", b"{}", bytes(32)),),
    )


def act(name: str = "policy.swapped", run_id: str | None = None) -> EntryDraft:
    return act_draft(act=name, actor="user:operator", subject="home", details={"why": "test"}, run_id=run_id)


def opening(call_id: str, run: RunSpec, *, details: bytes = b'{"input":{}}') -> Opening:
    return Opening(
        run=run,
        call_id=call_id,
        tool="palyra.echo",
        principal=run.principal,
        input_sha256="3" * 64,
        owner=OWNER,
        entry=intent(call_id, run.run_id, principal=run.principal),
        opened_unix_ms=NOW,
        details=details,
    )


def closing(
    call_id: str, run: RunSpec, *, opened: bool = True, keep_call: bool = True, outcome: bytes = b'{"output":{}}'
) -> Closing:
    return Closing(
        run=run,
        call_id=call_id,
        tool="palyra.echo",
        principal=run.principal,
        input_sha256="3" * 64,
        status="completed" if opened else "refused",
        reason=None if opened else "POLICY_DENIED",
        entry=result(call_id, run.run_id, opened=opened, principal=run.principal),
        closed_unix_ms=NOW + 1,
        outcome=outcome,
        opened=opened,
        details=b"" if opened else b'{"input":{}}',
        keep_call=keep_call,
    )


def attested(writer: Writer, draft: Closing) -> Closing:
    """The same closing with an outcome that `writer`'s installation signed."""
    output: dict[str, Json] = {}
    statement = Statement(
        attestation_id=ulid(1),
        call_id=draft.call_id,
        run_id=draft.run.run_id,
        tool=draft.tool,
        executor="builtin",
        sandbox_enforcement=Enforcement(backend="bwrap", egress_mode="strict"),
        executed_at_unix_ms=NOW,
        status=draft.status,
        reason=draft.reason,
        success=draft.opened,
        timed_out=False,
        exit_code=0 if draft.opened else None,
        input_sha256=draft.input_sha256,
        output_sha256=digest(output),
        config_sha256="1" * 64,
        policy_sha256="0" * 64,
        decision=DecisionFacts(effect="allow"),
        limits={},
        usage=Usage().as_json(),
        nonce=bytes(32),
    )
    signed = attest(statement, writer.home.key)
    outcome = Outcome(
        call_id=draft.call_id,
        run_id=draft.run.run_id,
        tool=draft.tool,
        status=Status(draft.status),
        success=draft.opened,
        reason=Reason(draft.reason) if draft.reason else None,
        output=output,
        usage=Usage(),
        attestation=signed,
    )
    said = {**draft.entry.predicate, "execution_sha256": signed["execution_sha256"]}
    return replace(draft, outcome=stored_outcome_bytes(outcome), entry=replace(draft.entry, predicate=said))


def open_store(root: Path) -> tuple[Writer, JournalStore]:
    writer = open_writer(root)
    return writer, JournalStore(writer, BudgetStore())


def audit_home(home: Home, *, known: tuple[str, ...] = (), alive: bool = False, every: bool = False) -> Report:
    """The whole audit, as `palyra journal verify` runs it."""
    return audit(home, known=known, alive=alive, every=every)


def many_acts(writer: Writer, count: int, name: str = "test") -> None:
    """`count` entries in one commit: a tree large enough for tiles."""
    drafts = [act(f"{name}.{number}") for number in range(count)]
    writer.commit_now(lambda tx: [tx.append(draft, at_unix_ms=NOW) for draft in drafts])


async def walk_call(store: JournalStore, run: RunSpec, call_id: str) -> None:
    await store.open_call(opening(call_id, run))
    await store.close_call(closing(call_id, run))
