"""Tier B where root starts it: another user by default, root by an operator's word alone, and each is said."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.command_line import Cli

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root's programs change the user")
IDS = ("--json", "--", "id", "-u")


@pytest.fixture
def open_workspace(cli: Cli) -> Cli:
    """Every folder on the way to it lets others in."""
    for folder in (cli.workspace, *cli.workspace.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    return cli


def note(outcome: dict[str, object]) -> str:
    enforced = outcome["attestation"]["sandbox_enforcement"]  # type: ignore[index]
    return next((text for text in enforced["degraded"] if text.startswith("root_owned_workspace")), "")


def test_by_default_a_program_is_nobody_and_its_attestation_says_so(open_workspace: Cli) -> None:
    outcome = json.loads(open_workspace("run", "--tier", "b", *IDS).stdout)
    assert (outcome["output"]["stdout"], "runs as nobody" in note(outcome)) == ("65534\n", True)
    failed = open_workspace("run", "--tier", "b", "--", "touch", "made")
    assert failed.returncode == 1
    assert b"--allow-root-tier-b" in failed.stderr
    assert not (open_workspace.workspace / "made").exists()


def test_the_flag_and_the_setting_keep_root_and_the_attestation_says_so(open_workspace: Cli) -> None:
    outcome = json.loads(open_workspace("run", "--tier", "b", "--allow-root-tier-b", *IDS).stdout)
    assert (outcome["output"]["stdout"], "uid 0 stays" in note(outcome)) == ("0\n", True)
    config = Path(open_workspace.home) / "palyra.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text("[tool_call.process_runner]\nallow_root_tier_b = true\n")
    config.chmod(0o600)
    assert json.loads(open_workspace("run", "--tier", "b", *IDS).stdout)["output"]["stdout"] == "0\n"
    rows = {row["check"]: row for row in json.loads(open_workspace("doctor", "--json").stdout)["items"]}
    assert rows["tier B as root"]["status"] == "advice"
    assert "nobody in tier B" in rows["user"]["detail"]


def test_a_closed_workspace_is_refused_before_anything_starts(open_workspace: Cli) -> None:
    open_workspace.workspace.chmod(0o700)
    outcome = json.loads(open_workspace("run", "--tier", "b", *IDS).stdout)
    assert (outcome["status"], outcome["reason"]) == ("refused", "UNENFORCEABLE")
    assert "--allow-root-tier-b" in outcome["hint"]
