"""What is in a database's way is told with what helps."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from palyra.state.trouble import hint_for


def test_a_database_that_is_read_only_is_no_matter_of_checking_the_disk(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "a.db").execute("CREATE TABLE a (b)").connection.close()
    connection = sqlite3.connect(f"file:{tmp_path / 'a.db'}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError) as refused:
        connection.execute("INSERT INTO a VALUES (1)")
    connection.close()
    assert hint_for(refused.value).startswith("Mount its file system writable")
    assert hint_for(sqlite3.OperationalError("disk I/O error")) == "Check the disk, then start again."
