"""`palyra journal verify` of a whole journal, beside the bare hashing of the same bytes."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground
from bench.journal_ground import ENTRIES, fill
from palyra.journal.audit import Report
from palyra.state.db import read_home
from palyra.state.verifying import verify_journal

AT_ONCE = 20_000
"""Values read before each slice of hashing."""


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    fill(ground.home, ENTRIES)
    home = read_home(ground.home)

    def verify() -> Report:
        return verify_journal(home, is_alive=lambda _: False)

    def check(report: Report) -> None:
        assert report.sound
        assert report.entries >= ENTRIES

    def hashing(*queries: str) -> Contender:
        """SHA-256 and nothing else: the bytes are in memory when the clock starts, a slice of them at a time, so that
        a large journal is not held twice."""

        def run() -> int:
            took, count = 0, 0
            with closing(sqlite3.connect(home.database)) as connection:
                for query in queries:
                    rows = connection.execute(query)
                    while part := rows.fetchmany(AT_ONCE):
                        began = time.perf_counter_ns()
                        for (one,) in part:
                            hashlib.sha256(one).digest()
                        took += time.perf_counter_ns() - began
                        count += len(part)
            assert count >= ENTRIES
            return took

        return Contender(name="hash all it checks" if len(queries) > 1 else "hash entries alone", run=run)

    everything = hashing("SELECT body FROM entries", "SELECT data FROM blobs")
    yield Row(
        name="journal_verify",
        title=f"Journal: verify {ENTRIES} entries",
        note="Ours reads, parses and re-writes every entry, rebuilds the tree, opens every checkpoint's text, follows "
        "every call from intent to result, and holds every row and kept value against its commitment. The peers hash "
        "bytes that lie in memory: all that ours checks, and the entries alone.",
        contenders=(
            Contender(name="palyra verify", run=timed(verify, check)),
            everything,
            hashing("SELECT body FROM entries"),
        ),
        aims=(Aim(peer="hash all it checks", at_most=10.0),),
        most_rounds=5,
    )
