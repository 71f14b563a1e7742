"""Questions to a large journal: a page of twenty by each filter, beside one look-up by primary key."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground
from bench.journal_ground import ENTRIES, fill
from palyra.journal.lookup import TREE_SIZE, Lookup
from palyra.journal.search import Page, Question
from palyra.state.search import catch_up, search
from palyra.state.writer import Writer

COUNT = 20
REPEATS = 50


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    fill(ground.home, ENTRIES)
    writer = Writer.open(ground.home)
    catch_up(writer)
    lookup = Lookup(writer.rows, writer.home.verifier)
    size = writer.rows(TREE_SIZE)[0][0]
    run_id = writer.rows("SELECT run_id FROM calls WHERE result_index > ? LIMIT 1", (size // 2,))[0][0]
    at = writer.rows("SELECT opened_unix_ms FROM calls WHERE result_index > ? LIMIT 1", (size // 2,))[0][0]
    questions = (
        Question(principal="agent:bench3"),
        Question(run_id=run_id),
        Question(tool="palyra.process.run"),
        Question(status="refused"),
        Question(reason="POLICY_DENIED", principal="agent:bench3"),
        Question(since_unix_ms=at - 3_600_000, until_unix_ms=at + 1),
        Question(text="palyra.process.run"),
        Question(text="refused bench3"),
    )
    places = random.Random(1)

    def page() -> list[Page]:
        found = []
        for number in range(REPEATS):
            question = questions[number % len(questions)]
            before = places.randrange(size // 2, size)
            found.append(search(writer.rows, question, lookup=lookup, count=COUNT, before=before))
        return found

    def look_up() -> list[object]:
        return [lookup.entry(places.randrange(size)) for _ in range(REPEATS)]

    def check(found: list[Page]) -> None:
        assert sum(len(page.entries) for page in found) > REPEATS

    def all_there(found: list[object]) -> None:
        assert None not in found

    yield Row(
        name="journal_page",
        title=f"Journal: {REPEATS} pages of {COUNT} among {size} entries, by eight filters in turn",
        note="Ours answers by principal, run, tool, status, reason, time and words, from anywhere in the newer half. "
        "The peer reads one entry by its index through the same connection.",
        contenders=(
            Contender(name="palyra page", run=timed(page, check)),
            Contender(name="primary key", run=timed(look_up, all_there)),
        ),
        aims=(Aim(peer="primary key", at_most=20.0),),
    )
    writer.close()
