"""The journal of an installation, audited from one snapshot; `journal verify` and `demo` share it."""

from __future__ import annotations

from collections.abc import Iterable

from palyra.journal.audit import Audit, Report, run_audit
from palyra.journal.store import JournalRows
from palyra.state.db import snapshot
from palyra.wiring.embedded import Installation


def audit_journal(installation: Installation, *, known: Iterable[str] = (), every_signature: bool = False) -> Report:
    home = installation.writer.home
    with snapshot(home.database) as connection:
        rows = JournalRows(connection)
        audit = Audit(
            verifier=home.verifier,
            is_alive=installation.ports.owners.is_alive,
            known=known,
            every_signature=every_signature,
            kept=rows.kept,
        )
        return run_audit(audit, rows.entries(), rows.checkpoints(), head=rows.head(), rows=rows.count_calls())
