"""Runs that a caller made by name: what they narrow, kept for as long as calls may come, also over a restart.

A run that forgot its terms would be wider after a crash than before. One that no call ever came for is forgotten when
its principal has made many more: making runs costs no budget, and must not fill the disk. Entries tell of the others,
by a digest (journal/run_terms). A run that calls alone named gets such a row when it is ended.

Not here: budgets (wiring/runs), what a run means to the engine (engine/runs).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any

import orjson

from palyra.config.schema import Config
from palyra.engine.runs import Run, RunScope, start_run
from palyra.errors import ConfigError, Reason, Rejected
from palyra.journal.acts import Act, ActKind, record_act
from palyra.journal.run_terms import NONCE, run_has_ended, terms_sha256
from palyra.model.budget import Allowance
from palyra.model.call import Door, OperatorGrant, RequestContext, TierChoice, parse_principal
from palyra.model.limits import Limits
from palyra.model.narrowing import parse_narrowing
from palyra.model.net import EgressMode
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

MAX_BYTES = 32 * 1024
"""Of what a run narrows, as it is kept."""
MAX_UNUSED = 256
"""Of a principal's newest runs."""
_LOOKED_AT = 2 * MAX_UNUSED
_UNUSED = """SELECT newest.run_id FROM (
                 SELECT run_id, created_unix_ms FROM run_terms WHERE principal = ?
                 ORDER BY created_unix_ms DESC LIMIT ?) newest
             WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = newest.run_id)
             ORDER BY newest.created_unix_ms DESC"""
_BEGUN = """SELECT runs.principal FROM runs JOIN run_terms USING (run_id, principal)
            WHERE runs.run_id = ? AND runs.next_sequence > 0"""
# Of a run that calls alone named. Without a random number among them, no entry tells of such terms. Those of somebody
# else, who made a run of this name and came too late with its first call, are nobody's any more.
_ADOPT = """INSERT INTO run_terms SELECT run_id, principal, workspace, ?, created_unix_ms, NULL FROM runs
            WHERE run_id = ? AND next_sequence > 0
            ON CONFLICT (run_id) DO UPDATE SET principal = excluded.principal, workspace = excluded.workspace,
                terms = excluded.terms, created_unix_ms = excluded.created_unix_ms, ended_unix_ms = NULL
            WHERE run_terms.principal <> excluded.principal"""
_STRICTNESS = (EgressMode.NONE, EgressMode.PREFLIGHT, EgressMode.STRICT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a run asked for. Numbers are taken as the smaller of these and the configuration's."""

    run_id: str
    principal: str
    workspace: str
    created_unix_ms: int
    ended_unix_ms: int | None = None
    limits: dict[str, int] = field(default_factory=dict)
    egress: str | None = None
    block_all: bool = False
    tier: str | None = None
    calls_max: int | None = None
    most: dict[str, int] = field(default_factory=dict)
    device: str = ""
    channel: str = ""
    narrowing: dict[str, Any] = field(default_factory=dict)
    nonce: str = ""
    """Random, of those that are kept: nobody guesses the others by a digest of all."""
    sha256: str | None = None
    """As each call's intent says it; None for terms of an older version."""

    def run(self, config: Config, *, door: Door, device: str = "", channel: str = "") -> Run:
        """As the engine wants it, by the configuration of now."""
        try:
            limits = Limits(**(config.limits.as_json() | self.limits))
        except ConfigError as error:
            raise Rejected(Reason.BAD_ARGUMENTS, error.detail, error.hint) from None
        return start_run(
            config,
            run_id=self.run_id,
            context=RequestContext(
                principal=parse_principal(self.principal),
                door=door,
                device=device or self.device,
                channel=channel or self.channel,
            ),
            workspace=self.workspace,
            now_unix_ms=self.created_unix_ms,
            limits=limits,
            tier=TierChoice(self.tier) if self.tier else None,
            egress=EgressMode(self.egress) if self.egress else None,
            grant=OperatorGrant(block_all=self.block_all),
            scope=RunScope.OPEN,
            calls_max=self.calls_max,
            most=Allowance(**self.most),
            narrowing=parse_narrowing(self.narrowing),
            terms_sha256=self.sha256,
        )


def check_narrows(config: Config, terms: Terms) -> None:
    """Words that would loosen are refused, not bent: who asked for them would take the run for something else."""
    configured = config.tool_call.process_runner
    loosens = terms.egress is not None and _rank(EgressMode(terms.egress)) < _rank(configured.egress_mode)
    if loosens or (terms.tier == TierChoice.B and configured.tier_choice is not TierChoice.B):
        raise Rejected(
            Reason.CAPABILITY_DENIED,
            "A run can only narrow what is configured.",
            "Leave tier and egress out, or ask for something stricter.",
        )


def check_goes_on(terms: Terms) -> None:
    if terms.ended_unix_ms is not None:
        raise run_has_ended()


def _rank(mode: EgressMode) -> int:
    return _STRICTNESS.index(mode)


class RunTerms:
    def __init__(self, writer: Writer, *, now_unix_ms: Callable[[], int]) -> None:
        self._writer = writer
        self._now = now_unix_ms

    async def keep(self, terms: Terms) -> bool:
        """False where the id is taken, by anybody's run: then nothing is kept."""
        data = {name: getattr(terms, name) for name in _KEPT} | {NONCE: os.urandom(32).hex()}
        written = orjson.dumps(data)
        if len(written) > MAX_BYTES:
            raise Rejected(Reason.BAD_ARGUMENTS, f"A run's terms have at most {MAX_BYTES} bytes.", "Name fewer things.")
        values = (terms.run_id, terms.principal, terms.workspace, written, terms.created_unix_ms)

        def work(tx: Transaction) -> bool:
            if tx.rows("SELECT 1 FROM runs WHERE run_id = ?", (terms.run_id,)):
                return False
            unused = tx.rows(_UNUSED, (terms.principal, _LOOKED_AT))
            for (forgotten,) in unused[MAX_UNUSED - 1 :]:
                tx.execute("DELETE FROM run_terms WHERE run_id = ?", (forgotten,))
            sql = "INSERT INTO run_terms VALUES (?, ?, ?, ?, ?, NULL) ON CONFLICT DO NOTHING"
            return tx.execute(sql, values).rowcount == 1

        return (await self._writer.commit(work))[0]

    def find(self, run_id: str) -> Terms | None:
        rows = self._writer.rows("SELECT * FROM run_terms WHERE run_id = ?", (run_id,))
        return _terms(rows[0]) if rows else None

    def check_goes_on(self, run_id: str) -> None:
        """Before a call or a session of it begins."""
        terms = self.find(run_id)
        if terms is not None:
            check_goes_on(terms)

    async def end(self, run_id: str, *, by: str) -> Terms | None:
        """No call is taken for it from here on. None for a run that nobody made."""
        await self._writer.commit(partial(self._end, run_id=run_id, by=by))
        return self.find(run_id)

    async def end_begun(self, run_id: str, *, by: str) -> Terms | None:
        """The same also for one that calls alone named."""

        def work(tx: Transaction) -> None:
            tx.execute(_ADOPT, (b"{}", run_id))
            self._end(tx, run_id=run_id, by=by)

        await self._writer.commit(work)
        return self.find(run_id)

    def _end(self, tx: Transaction, *, run_id: str, by: str) -> None:
        now, sql = self._now(), "UPDATE run_terms SET ended_unix_ms = ? WHERE run_id = ? AND ended_unix_ms IS NULL"
        ended = tx.execute(sql, (now, run_id)).rowcount
        found = tx.rows(_BEGUN, (run_id,))
        # One that no call came for has no entry, nor has one whose id an operator used for another's calls.
        if ended and found:
            told = {"principal": found[0][0]}
            act = Act(kind=ActKind.RUN_ENDED, actor=by, subject=f"run/{run_id}", details=told, run_id=run_id)
            record_act(tx, act, at_unix_ms=now)


_KEPT = ("limits", "egress", "block_all", "tier", "calls_max", "most", "device", "channel", "narrowing")


def _terms(row: tuple[Any, ...]) -> Terms:
    run_id, principal, workspace, data, created, ended = row
    return Terms(
        run_id=run_id,
        principal=principal,
        workspace=workspace,
        created_unix_ms=created,
        ended_unix_ms=ended,
        sha256=terms_sha256(run_id, principal, workspace, created, data),
        **orjson.loads(data),
    )
