"""`palyra run --changes` in both tiers: which files a program changed, in its outcome and in its proof."""

from __future__ import annotations

import json

import pytest

from tests.command_line import Cli


@pytest.mark.parametrize("tier", ["b", "c"])
def test_the_files_a_program_changed_are_told_and_attested(cli: Cli, tier: str) -> None:
    (cli.workspace / "old").write_text("old")
    (cli.workspace / "gone").write_text("gone")
    for name in ("old", "gone"):
        (cli.workspace / name).chmod(0o666)
    cli.workspace.chmod(0o777)
    script = "echo new > new; echo more >> old; rm gone"
    flags = ("--tier", tier, "--allow-root-tier-b", "--changes", "--allow-interpreters")
    done = cli("run", *flags, "--json", "--", "sh", "-c", script)
    outcome = json.loads(done.stdout)
    changes = outcome["output"]["changes"]
    assert [changes[kind] for kind in ("created", "modified", "deleted", "complete")] == [
        ["new"],
        ["old"],
        ["gone"],
        True,
    ]
    (cli.workspace / "outcome.json").write_bytes(done.stdout)
    assert cli("verify", "outcome.json").returncode == 0
    changes["created"] = []
    (cli.workspace / "outcome.json").write_text(json.dumps(outcome))
    assert cli("verify", "outcome.json").returncode == 1


def test_people_are_told_on_stderr_and_the_program_keeps_its_stdout(cli: Cli) -> None:
    cli.workspace.chmod(0o777)
    done = cli("run", "--changes", "--", "touch", "made\x1b[2J")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode().startswith("palyra: created made")
    assert b"\x1b" not in done.stderr


def test_nobody_who_did_not_ask_is_told(cli: Cli) -> None:
    assert "changes" not in json.loads(cli("run", "--json", "--", "true").stdout)["output"]
