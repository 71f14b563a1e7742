"""A configuration that became another is an entry, and nobody takes it for the one before by a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from palyra.state.writer import Writer
from palyra.wiring.changes import note_config
from tests.journaling import NOW, audit_home, open_store
from tests.promises import promise
from tests.stores import tampering


def changed(writer: Writer, *digests: str) -> list[str]:
    """What the audit says after each of these was found at a start."""
    for digest in digests:
        note_config(writer, digest * 64, now_unix_ms=NOW)
    return [finding.detail for finding in audit_home(writer.home).findings]


def test_each_change_goes_on_from_the_last(home: Path) -> None:
    writer, _ = open_store(home)
    assert changed(writer, "a", "a", "b", "b", "a", "c") == []
    writer.close()


@promise("journal.configuration-history")
@pytest.mark.parametrize("sql", ["UPDATE meta SET value = {} WHERE", "DELETE FROM meta WHERE"])
def test_a_configuration_that_somebody_had_taken_for_the_one_before_is_found(home: Path, sql: str) -> None:
    """Its digest was written into the row beside it: the next start saw no change, and no entry told of one."""
    writer, _ = open_store(home)
    assert changed(writer, "a", "b") == []
    with tampering(writer.home) as other:
        other.execute(f"{sql} name = 'config_sha256'".format(f"'{'c' * 64}'"))
    detail = "The configuration that the database names is not the one that the newest entry about it left."
    assert changed(writer, "c") == [detail]
    if sql.startswith("UPDATE"):  # also when it became another one since
        assert changed(writer, "d") == ["Entry 1 changes another configuration than the entry before it left."]
    writer.close()
