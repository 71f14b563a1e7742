"""A database page that is not what was written: found, named, never believed, and never a traceback."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from palyra import AsyncPalyra
from palyra.errors import PalyraError, Reason
from palyra.journal.store import verify_journal
from palyra.state.db import read_home
from palyra.state.schema import PAGE_BYTES
from tests.command_line import Cli
from tests.faults.conftest import check_said

PAGE = PAGE_BYTES


def make_home(home: Path, workspace: Path) -> Path:
    """A home with some history, its log copied back, so that every page is in one file."""

    async def story() -> None:
        async with AsyncPalyra.open(str(home)) as palyra:
            run = palyra.run(principal="agent:demo", workspace=workspace)
            for number in range(12):
                assert (await run.call("palyra.echo", {"number": number, "text": "x" * 700})).success

    asyncio.run(story())
    database = home / "state" / "palyra.db"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return database


def pages_of(database: Path, *tables: str) -> set[int]:
    """Where these tables lie, as the file itself says."""
    connection = sqlite3.connect(database)
    try:
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
    finally:
        connection.close()
    return {roots[table] for table in tables}


def use(home: Path, workspace: Path) -> str:
    """One call and an audit. What comes of it in a word; anything but an answer fails the test."""

    async def call() -> str:
        async with AsyncPalyra.open(str(home)) as palyra:
            run = palyra.run(principal="agent:demo", workspace=workspace)
            outcome = await run.call("palyra.echo", {"after": True})
            if outcome.success:
                return "ran"
            assert outcome.reason in (Reason.JOURNAL_DOWN, Reason.INTERNAL), outcome
            assert outcome.message, outcome
            assert outcome.hint, outcome
            return "refused"

    try:
        return asyncio.run(call())
    except PalyraError:
        return "not opened"


def audit(home: Path) -> str:
    try:
        report = verify_journal(read_home(home), is_alive=lambda _: True)
    except PalyraError:
        return "not read"
    return "found" if report.findings else "sound"


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["zeros", "flipped", "another"])
def test_no_damaged_page_is_believed_or_brings_a_traceback(
    home: Path, workspace: Path, tmp_path: Path, damage: str
) -> None:
    database = make_home(home, workspace)
    whole = database.read_bytes()
    evidence = pages_of(database, "entries", "checkpoints")
    came: Counter[str] = Counter()
    for number in range(1, len(whole) // PAGE + 1):
        at = (number - 1) * PAGE
        page = bytearray(whole[at : at + PAGE])
        if damage == "zeros":
            page = bytearray(PAGE)
        elif damage == "flipped":
            for place in range(0, PAGE, 97):
                page[place] ^= 0x5A
        else:
            page = bytearray(whole[PAGE * 5 : PAGE * 6])
        if bytes(page) == whole[at : at + PAGE]:
            continue
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(home, copy)
        copy.chmod(0o700)
        (copy / "state" / "palyra.db").write_bytes(whole[:at] + bytes(page) + whole[at + PAGE :])
        seen = audit(copy)
        came[seen] += 1
        if number in evidence:
            assert seen != "sound", f"page {number} of the journal itself"
        came[use(copy, workspace)] += 1
    assert came["not opened"] + came["refused"] > 0
    assert came["found"] + came["not read"] > 0


def test_the_command_line_names_a_damaged_database(cli: Cli) -> None:
    assert cli("run", "--", "true").returncode == 0
    database = cli.home / "state" / "palyra.db"
    database.write_bytes(b"not a database at all, but long enough to be looked at" * 100)
    for name in ("palyra.db-wal", "palyra.db-shm"):
        (cli.home / "state" / name).unlink(missing_ok=True)
    for words in (("run", "--", "true"), ("journal", "verify"), ("gc",), ("secrets", "list")):
        done = cli(*words)
        assert done.returncode in (1, 125, 126), words
        check_said(done.stderr, code="JOURNAL_DOWN: " if words[0] == "run" else "")
