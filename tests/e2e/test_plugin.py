"""`palyra call palyra.plugin.run` as a user types it: a module that was never seen before, run in tier A or refused."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from typing import Any

import pytest

from palyra.model.call import Tier
from tests.conformance.arena import require
from tests.promises import promise
from tests.unit.inside.wasm.guests import ECHO, LOOP, module, wasm

ALLOWING = 'posture = "developer"\n[tool_call]\nexecution_timeout_ms = 20000\n[tool_call.wasm_runtime]\n'
ALLOWING += "allow_inline_modules = true\n"


def plugin(cli: Any, guest: bytes, given: Any = None, *, config: str = ALLOWING) -> tuple[int, dict[str, Any]]:
    require(Tier.C)
    cli.home.mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text(config)
    (cli.home / "palyra.toml").chmod(0o600)
    asked = json.dumps({"module_base64": base64.b64encode(guest).decode(), "input": given})
    done = cli("call", "palyra.plugin.run", "-", "--json", stdin=asked.encode())
    assert b"Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_module_runs_in_tier_a_and_the_record_verifies(cli: Any) -> None:
    code, outcome = plugin(cli, ECHO, {"n": 1.5, "é": [None]})
    assert (code, outcome["status"], outcome["output"]["result"]) == (0, "completed", {"n": 1.5, "é": [None]})
    assert outcome["attestation"]["executor"] == "sandbox_tier_a"
    assert outcome["usage"]["fuel"] > 0
    assert cli("verify", "-", stdin=json.dumps(outcome).encode()).returncode == 0
    assert cli("journal", "verify", "--replay").returncode == 0
    again, second = plugin(cli, ECHO, [])
    assert (again, second["output"]["result"]) == (0, [])


@promise("guest.limits")
@pytest.mark.parametrize(
    ("guest", "code", "status", "reason"),
    [
        pytest.param(LOOP, 1, "out_of_fuel", "OUT_OF_FUEL", id="loop"),
        pytest.param(module(body="(unreachable)"), 1, "trapped", "TRAPPED", id="trap"),
        pytest.param(
            module("output", body="(call $output (i32.const 0) (i32.const 1))"), 1, "trapped", "TRAPPED", id="no JSON"
        ),
        pytest.param(
            module(body="(i32.const 0)", memory='(memory (export "memory") 2000)'),
            1, "failed", "MEMORY_LIMIT", id="memory",
        ),
        pytest.param(
            wasm('(module (import "wasi" "fd_write" (func)) (func (export "run") (result i32) i32.const 0))'),
            126, "refused", "BAD_ARGUMENTS", id="undeclared import",
        ),
        pytest.param(b"(module)", 126, "refused", "BAD_ARGUMENTS", id="text"),
    ],
)  # fmt: skip
def test_each_way_too_far_has_its_own_reason(cli: Any, guest: bytes, code: int, status: str, reason: str) -> None:
    got, outcome = plugin(cli, guest)
    assert (got, outcome["status"], outcome["reason"]) == (code, status, reason), outcome["message"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [("", "CAPABILITY_DENIED"), ("[tool_call.wasm_runtime]\nallow_inline_modules = true\n", "POLICY_DENIED")],
)
def test_a_module_in_the_input_needs_the_setting_and_the_posture(cli: Any, config: str, reason: str) -> None:
    code, outcome = plugin(cli, ECHO, config=config)
    assert (code, outcome["reason"]) == (126, reason)
    assert outcome["hint"]


def test_a_skill_that_is_not_installed_is_not_active(cli: Any) -> None:
    outcome = cli.outcome("call", "palyra.plugin.run", '{"skill_id": "acme.none"}', "--json")
    assert (outcome["status"], outcome["reason"]) == ("refused", "SKILL_NOT_ACTIVE")


NO_NEW_CODE = """
import ctypes, os, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""PR_SET_MDWE, which systemd sets for MemoryDenyWriteExecute= and every child inherits."""


def test_where_memory_may_not_become_code_the_refusal_names_the_directive(cli: Any) -> None:
    plugin(cli, ECHO, [1])  # compiled and kept: loading it is refused as well
    asked = json.dumps({"module_base64": base64.b64encode(ECHO).decode(), "input": [1]})
    start = [sys.executable, "-c", NO_NEW_CODE, *cli.argv]
    call = [*start, "call", "palyra.plugin.run", asked, "--json"]
    done = subprocess.run(call, cwd=cli.workspace, env=cli.environ, capture_output=True, check=False)
    if done.returncode == 77:
        pytest.skip("this kernel has no PR_SET_MDWE")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["status"], outcome["reason"]) == (126, "refused", "UNENFORCEABLE")
    assert "MemoryDenyWriteExecute=" in outcome["hint"]
    assert "wasm_runtime" in outcome["hint"]
    doctor = subprocess.run([*start, "doctor", "--json"], env=cli.environ, capture_output=True, check=False)
    assert [one["status"] for one in json.loads(doctor.stdout)["items"] if "tier A" in one["check"]] == ["advice"]
    assert (
        subprocess.run([*start, "run", "--", "true"], cwd=cli.workspace, env=cli.environ, check=False).returncode == 0
    )
