"""deploy/'s units under a real systemd: accepted whole, used with calls of every tier, killed, restarted, stopped."""

from __future__ import annotations

import configparser
import json
import re
import subprocess
from typing import Any

import pytest

from tests.deploy.conftest import DEPLOY, INSTALLATION

UNITS = ("palyrad", "palyra-keeper")
TIERS = {"tier A": "sandbox_tier_a", "tier B": "sandbox_tier_b", "tier C": "sandbox_tier_c_linux_bubblewrap"}


def test_every_directive_is_known_and_every_program_is_there(found):
    assert found["verify"] == {"code": 0, "out": "", "err": ""}


def test_a_fresh_user_and_no_configuration_are_enough(found):
    assert (found["useradd"]["code"], found["fresh"]["code"], found["fresh_healthz"]) == (0, 0, 200)


def test_a_start_returns_when_the_daemon_answers(found):
    assert (found["start"]["code"], found["healthz"]) == (0, 200)
    assert (found["readyz"]["status"], found["readyz"]["body"]["ready"]) == (200, True)


@pytest.mark.parametrize("tier", TIERS)
def test_calls_of_every_tier_run_under_the_units_walls(found, tier):
    outcome = found["calls"][tier]
    assert (outcome["status"], outcome["success"]) == ("completed", True), outcome
    assert outcome["attestation"]["executor"] == TIERS[tier]
    if tier != "tier B":
        promised = set(outcome["attestation"]["sandbox_enforcement"]["guarantees"])
        assert promised >= {"FS_ISOLATED", "NET_ISOLATED", "SYSCALL_FILTER", "TREE_KILL"}


def test_files_are_written_in_the_workspace_and_refusals_stay_refusals(found):
    calls = found["calls"]
    assert (calls["write"]["success"], calls["tier C"]["output"]["stdout"]) == (True, "made\n")
    assert (calls["refused"]["status"], calls["refused"]["reason"]) == ("refused", "OUTSIDE_WORKSPACE")


def test_the_owners_command_line_goes_through_the_daemon(found):
    assert found["through"]["code"] == 0, found["through"]
    assert json.loads(found["through"]["out"])["call_id"] in found["log"]


@pytest.mark.parametrize("unit", UNITS)
def test_what_is_not_needed_is_gone(found, unit):
    walls: dict[str, Any] = found["walls"][unit]
    assert {name: walls[name] for name in ("CapBnd", "CapEff", "NoNewPrivs", "Seccomp", "Umask")} == {
        "CapBnd": "0" * 16,
        "CapEff": "0" * 16,
        "NoNewPrivs": "1",
        "Seccomp": "2",
        "Umask": "0077",
    }
    assert walls["Uid"] != "0"
    closed = ("/etc", "/usr", "/opt/palyra", "/var/lib", "/home", "/root")
    assert [place for place in closed if walls[place] == 0] == [], "even root cannot write there from its mounts"
    assert [walls[place] for place in ("/var/lib/palyra/home", "/srv/workspaces", "/tmp")] == [0, 0, 0]
    assert found["walls"]["tmp_outside"] is False


def test_background_processes_go_on_over_a_crash_and_a_restart_of_the_daemon(found):
    assert found["outlive"] == {
        "at first": "running",
        "came back": True,
        "after a crash": "running",
        "restart": 0,
        "after a restart": "running",
        "stopped": "stopped",
    }


def test_upkeep_runs(found):
    assert found["upkeep"]["code"] == 0, found["journalctl"]


def test_it_ends_in_order_and_the_journal_holds(found):
    assert found["stopped"] == {unit: ["Result=success", "ExecMainStatus=0"] for unit in UNITS}
    assert found["keeper_stopped"] == ["Result=success", "ExecMainStatus=0"]
    assert found["failed"] == ""
    assert (found["journal"]["code"], json.loads(found["journal"]["out"])["findings"]) == (0, [])


def test_what_the_units_leave_out_would_break_calls(found):
    """What breaks nothing must not be left out."""
    harmless = [
        directive
        for directive, seen in found["too_much"].items()
        if all(one[0] == "completed" for one in seen.values() if isinstance(one, list)) and "start" not in seen
    ]
    assert harmless == []


@pytest.mark.skipif(not INSTALLATION, reason="needs root: make test-deploy")
def test_a_covered_proc_is_in_the_way_of_a_plain_users_sandbox():
    """Why ProtectKernelLogs= is left out; in a container's system it cannot be seen."""
    sandbox = "setpriv --reuid 65534 --regid 65534 --clear-groups bwrap --unshare-all --ro-bind / / --proc /proc true"
    for cover, code in (("true", 0), ("mount --bind /dev/null /proc/kmsg", 1)):
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", f"{cover} && {sandbox}"], capture_output=True, check=False
        )
        assert done.returncode == code, done.stderr


def test_the_exposure_that_systemd_sees_does_not_grow(found):
    scores = re.findall(r"^(palyra\S*)\.service\s+([0-9.]+)", found["security"], re.MULTILINE)
    assert {unit for unit, _ in scores} == set(UNITS)
    assert [score for _, score in scores if float(score) > 3.0] == []


def test_both_units_have_the_same_walls():
    def walls(unit: str) -> dict[str, str]:
        parsed = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
        parsed.optionxform = str  # type: ignore[assignment,method-assign]
        parsed.read_string((DEPLOY / f"{unit}.service").read_text())
        own = ("Type", "ExecStart", "RestartSec", "RuntimeDirectory", "RuntimeDirectoryMode")
        return {name: value for name, value in parsed["Service"].items() if name not in own}

    assert walls("palyrad") == walls("palyra-keeper")
