"""Journals to measure: entries as the engine writes them, with what is kept beside them at its usual size.

`fill` writes through the store's own functions, many calls a transaction, so that what is read and verified later is
what a busy installation leaves behind. How many entries is said with PALYRA_BENCH_ENTRIES.
"""

from __future__ import annotations

import os
from pathlib import Path

from palyra.budget.store import BudgetStore
from palyra.journal.acts import Act, ActKind
from palyra.journal.chain import Asked, Decided
from palyra.journal.commitments import commit_value
from palyra.journal.store import JournalStore
from palyra.model.record import Closing, EntryDraft, Opening, Owner, RunSpec
from palyra.state import sqlite as writing
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.wiring.clock import SystemClock, SystemIds
from tests.journaling import intent_draft, result_draft

ENTRIES = int(os.environ.get("PALYRA_BENCH_ENTRIES", "100000"))
ACT = Act(kind=ActKind.POLICY_USED, actor="user:bench", subject="policy", details={"policy_sha256": "0" * 64})
CALLS_AT_ONCE = 500
BEGAN_UNIX_MS = 1_700_000_000_000
DETAILS, OUTCOME = b"d" * 3600, b"o" * 4300
_DECIDED = Decided(effect="allow", policies=("permit.process",), policy_sha256="0" * 64, config_sha256="1" * 64)
_ENFORCED = {
    "backend": "bubblewrap", "egress_mode": "strict", "degraded": ["MEMORY_LIMIT_TREE"], "proof_id": None,
    "guarantees": ["CPU_LIMIT", "FS_ISOLATED", "MEMORY_LIMIT", "NET_ISOLATED", "PROCESS_LIMIT", "TREE_KILL"],
}  # fmt: skip
_LIMITS = {"wall_ms": 120000, "cpu_ms": 60000, "memory_bytes": 1 << 30, "processes": 512, "output_bytes": 1 << 20}
_ids = SystemIds(SystemClock())


def fill(home: Path, entries: int) -> None:
    """Calls of ten principals, a hundred a run, every tenth refused."""
    writing.ENTRIES_PER_COPY_BACK = 1 << 14
    writer = Writer.open(home)
    store = JournalStore(writer, BudgetStore())
    made = 0
    while made < entries:
        count, _ = writer.commit_now(lambda tx: _batch(tx, store))
        made += count
    writer.close()


def _batch(tx: Transaction, store: JournalStore) -> int:
    before = tx.frontier.size
    now = BEGAN_UNIX_MS + before * 250  # as if four a second had come
    run = _run(0, now)
    for number in range(CALLS_AT_ONCE):
        if number % 100 == 0:
            run = _run(number // 100 + before // 1000 % 10, now)
        call_id = _ids.ulid()
        closing = _closing(call_id, run, now, opened=number % 10 != 0)
        if closing.opened:
            store._open(tx, _opening(call_id, run, now))
        store._close(tx, closing)
    return tx.frontier.size - before


def _run(number: int, now: int) -> RunSpec:
    return RunSpec(
        run_id=_ids.ulid(),
        principal=f"agent:bench{number % 10}",
        workspace="/workspace",
        calls_max=1 << 30,
        attempts_max=1 << 30,
        created_unix_ms=now,
    )


def _opening(call_id: str, run: RunSpec, now: int) -> Opening:
    owner = Owner("boot", 42, 7)
    entry = intent_draft(
        asked=_asked(call_id, run),
        decided=_DECIDED,
        owner=owner,
        executor="sandbox_tier_c_linux_bubblewrap",
        enforcement=_ENFORCED,
        limits=_LIMITS,
        commitments=tuple(commit_value(name, b"{}", os.urandom(32)) for name in ("input", "plan")),
    )
    return Opening(
        run=run,
        call_id=call_id,
        tool="palyra.process.run",
        principal=run.principal,
        input_sha256="3" * 64,
        owner=owner,
        entry=entry,
        opened_unix_ms=now,
        details=call_id.encode() + DETAILS,
    )


def _closing(call_id: str, run: RunSpec, now: int, *, opened: bool) -> Closing:
    return Closing(
        run=run,
        call_id=call_id,
        tool="palyra.process.run",
        principal=run.principal,
        input_sha256="3" * 64,
        status="completed" if opened else "refused",
        reason=None if opened else "POLICY_DENIED",
        entry=_result(call_id, run, opened=opened),
        closed_unix_ms=now,
        outcome=call_id.encode() + OUTCOME,
        opened=opened,
        details=b"" if opened else call_id.encode() + DETAILS,
    )


def _asked(call_id: str, run: RunSpec) -> Asked:
    return Asked(call_id=call_id, run_id=run.run_id, tool="palyra.process.run", principal=run.principal, door="python")


def _result(call_id: str, run: RunSpec, *, opened: bool) -> EntryDraft:
    return result_draft(
        asked=_asked(call_id, run),
        decided=_DECIDED,
        opened=opened,
        status="completed" if opened else "refused",
        reason=None if opened else "POLICY_DENIED",
        success=opened,
        exit_code=0 if opened else None,
        signal=None,
        stdout_bytes=12,
        stderr_bytes=0,
        truncated=False,
        usage={"wall_us": 3100, "cpu_us": 1200, "max_rss_bytes": 1900544, "output_bytes": 12, "fuel": None},
        egress=None,
        redactions={},
        executor="sandbox_tier_c_linux_bubblewrap" if opened else "policy",
        enforcement=_ENFORCED,
        execution_sha256="2" * 64,
        attestation_id=call_id,
        commitments=(commit_value("output", b"{}", os.urandom(32)),),
    )
