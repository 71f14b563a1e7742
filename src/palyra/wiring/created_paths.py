"""Keeps, for each run and principal, the guarded paths that its calls created, with their stamps."""

from __future__ import annotations

import os
from collections.abc import Mapping

from palyra.model.process import ProcessOwner
from palyra.model.sights import MAX_CREATED
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer

_READ = "SELECT path, stamp FROM created_paths WHERE run_id = ? AND principal = ? ORDER BY path LIMIT ?"
_SET = """INSERT INTO created_paths (run_id, principal, path, stamp) VALUES (?, ?, ?, ?)
          ON CONFLICT (run_id, principal, path) DO UPDATE SET stamp = excluded.stamp"""
_REMOVE = "DELETE FROM created_paths WHERE run_id = ? AND principal = ? AND path = ?"


class CreatedPaths:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def read(self, owner: ProcessOwner) -> Mapping[str, str]:
        rows = self._writer.rows(_READ, (owner.run_id, owner.principal, MAX_CREATED))
        return {os.fsdecode(path): stamp for path, stamp in rows}

    async def write(self, owner: ProcessOwner, changes: Mapping[str, str | None]) -> None:
        """Set stamps; None removes one. Done when it is durable."""

        def work(tx: Transaction) -> None:
            for path, stamp in changes.items():
                row = (owner.run_id, owner.principal, os.fsencode(path))
                tx.execute(_REMOVE if stamp is None else _SET, row if stamp is None else (*row, stamp))

        await self._writer.commit(work)
