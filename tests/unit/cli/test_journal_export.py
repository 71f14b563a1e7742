"""Where exports are written: a folder may be an agent's too, which puts a link where a file is to come."""

from __future__ import annotations

import pytest

from palyra.cli.journal_export import _write_below


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
