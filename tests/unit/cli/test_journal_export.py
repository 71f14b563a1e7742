"""Exports: into a folder that may be an agent's too, which puts a link where a file is to come; how much at once."""

from __future__ import annotations

import asyncio

import pytest

from palyra.cli.journal_export import _lines, _write_below
from palyra.cli.journal_home import reading
from palyra.cli.options import Settings
from palyra.errors import StateError
from palyra.journal import export
from tests.journaling import closing, open_store, opening, run_spec, ulid


def test_a_link_in_the_way_of_a_tile_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "log"
    folder.mkdir()
    (folder / "checkpoint").symlink_to(victim)
    with pytest.raises(FileExistsError):
        _write_below(folder, "checkpoint", b"a signed head")
    _write_below(folder, "tile/0/000", b"tile")
    assert (victim.read_text(), (folder / "tile/0/000").read_bytes()) == ("precious", b"tile")


def test_more_than_a_verifier_takes_is_not_exported(tmp_path, monkeypatch):
    """`palyra verify` refused what `palyra journal export --call` had written."""
    writer, store = open_store(tmp_path / "home")
    call_id, run = ulid(), run_spec(ulid())

    async def call() -> None:
        await store.open_call(opening(call_id, run))
        await store.close_call(closing(call_id, run))

    asyncio.run(call())
    head = store.checkpoint()
    assert head is not None
    writer.close()
    monkeypatch.setattr(export, "MAX_SELECTED", 1)
    with (
        reading(Settings(home=str(tmp_path / "home"))) as journal,
        pytest.raises(StateError, match="at most 1 entries"),
    ):
        list(_lines(journal, head, (call_id,)))
