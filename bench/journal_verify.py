"""`palyra journal verify` of a whole journal, beside the bare hashing of the same bytes."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground
from bench.journal_ground import ENTRIES, fill
from palyra.journal.audit import Report
from palyra.state.db import read_home
from palyra.state.verifying import verify_journal


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    fill(ground.home, ENTRIES)
    home = read_home(ground.home)

    def verify() -> Report:
        return verify_journal(home, is_alive=lambda _: False)

    def check(report: Report) -> None:
        assert report.sound
        assert report.entries >= ENTRIES

    def counted(count: int) -> None:
        assert count >= ENTRIES

    def hashing(*tables: str) -> Contender:
        """The bytes are in memory before the clock starts: SHA-256 and nothing else."""
        with closing(sqlite3.connect(home.database)) as connection:
            data = [row[0] for table in tables for row in connection.execute(f"SELECT * FROM {table}")]

        def run() -> int:
            for one in data:
                hashlib.sha256(one).digest()
            return len(data)

        name = "hash all it checks" if len(tables) > 1 else "hash entries alone"
        return Contender(name=name, run=timed(run, counted))

    everything = hashing("(SELECT body FROM entries)", "(SELECT data FROM blobs)")
    yield Row(
        name="journal_verify",
        title=f"Journal: verify {ENTRIES} entries",
        note="Ours reads, parses and re-writes every entry, rebuilds the tree, opens every checkpoint's text, follows "
        "every call from intent to result, and holds every row and kept value against its commitment. The peers hash "
        "bytes that lie in memory: all that ours checks, and the entries alone.",
        contenders=(
            Contender(name="palyra verify", run=timed(verify, check)),
            everything,
            hashing("(SELECT body FROM entries)"),
        ),
        aims=(Aim(peer="hash all it checks", at_most=10.0),),
        most_rounds=5,
    )
