"""What changed between two starts of an installation, told to the journal: its configuration.

Every call's entry names the digest of the configuration it ran under; this one says when it became another.
"""

from __future__ import annotations

import logging

from palyra.errors import StateError
from palyra.journal.acts import PALYRA, Act, ActKind, record_act
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

log = logging.getLogger("palyra.wiring")
_SQL = "SELECT value FROM meta WHERE name = 'config_sha256'"


def note_config(writer: Writer, digest: str, *, now_unix_ms: int) -> None:
    """One look-up when nothing changed. What cannot be written is left to the first call, which is refused then."""
    if writer.rows(_SQL) == [(digest,)]:
        return

    def work(tx: Transaction) -> None:
        before = tx.rows(_SQL)
        if before == [(digest,)]:
            return
        tx.keep_meta("config_sha256", digest)
        if before:
            details = {"before_sha256": before[0][0], "after_sha256": digest}
            act = Act(kind=ActKind.CONFIG_CHANGED, actor=PALYRA, subject="config", details=details)
            record_act(tx, act, at_unix_ms=now_unix_ms)

    try:
        writer.commit_now(work)
    except StateError as error:
        log.warning("the configuration could not be recorded: %s", error.detail)
