"""One line for people, whatever an entry says."""

from __future__ import annotations

from palyra.cli.journal import _line
from palyra.journal.chain import entry_bytes
from palyra.journal.merkle import leaf_hash
from palyra.model.record import Entry
from tests.journaling import act


def test_a_time_no_calendar_has_is_shown_as_a_number() -> None:
    for at in (2**53 - 1, -(2**53) + 1):
        body = entry_bytes(act(), index=0, sequence=None, at_unix_ms=at)
        assert f"{at} ms" in _line(Entry(0, leaf_hash(body), body))
