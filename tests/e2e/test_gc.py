"""`palyra gc` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Cli


def test_a_look_changes_nothing_and_a_collection_is_journaled(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cli.home).mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text("[gc]\nkeep_artifacts_days = 1\n")
    assert cli("run", "--", "true").returncode == 0
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # not what others who were killed left on this machine
    blob = cli.home / "artifacts" / "ab" / "cd" / ("abcd" + "0" * 60)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"left over")
    looked = json.loads(cli("gc", "--dry-run", "--json").stdout)
    row = {"kind": "blob", "count": 1, "bytes": 9, "names": [blob.name], "not_removed": []}
    assert looked == {"dry_run": True, "items": [row], "next": None}
    assert blob.exists()
    done = cli("gc")
    assert (done.returncode, done.stdout) == (0, b"removed 1 files of no artifact any more (9 bytes)\n")
    assert not blob.exists()
    assert cli("gc").stdout == b"Nothing to remove.\n"
    assert b"home.collected" in cli("journal", "tail").stdout
    assert cli("journal", "verify").returncode == 0
