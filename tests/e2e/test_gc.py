"""`palyra gc` as a user runs it."""

from __future__ import annotations

import json
from typing import Any

from tests.command_line import Cli


def of_kind(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Of the home alone: what others who were killed left on this machine is collected too, and is not told here."""
    return [one for one in items if one["kind"] == kind]


def test_a_look_changes_nothing_and_a_collection_is_journaled(cli: Cli) -> None:
    (cli.home).mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text("[gc]\nkeep_artifacts_days = 1\n")
    assert cli("run", "--", "true").returncode == 0
    blob = cli.home / "artifacts" / "ab" / "cd" / ("abcd" + "0" * 60)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"left over")
    looked = json.loads(cli("gc", "--dry-run", "--json").stdout)
    row = {"kind": "blob", "count": 1, "bytes": 9, "names": [blob.name], "not_removed": []}
    assert (looked["dry_run"], of_kind(looked["items"], "blob")) == (True, [row])
    assert blob.exists()
    done = cli("gc")
    assert done.returncode == 0
    assert b"removed 1 files that belong to no artifact (9 bytes)\n" in done.stdout
    assert not blob.exists()
    assert of_kind(json.loads(cli("gc", "--dry-run", "--json").stdout)["items"], "blob") == []
    assert b"home.collected" in cli("journal", "tail").stdout
    assert cli("journal", "verify").returncode == 0
