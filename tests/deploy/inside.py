"""Runs inside the booted system, as root, on its own Python: starts the units, uses the daemon, and writes what it saw.

Only looks and tells: what must be so is said by test_units.py. Standard library alone.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

OUT = Path(sys.argv[1])
HOME = "/var/lib/palyra/home"
PALYRA = "/opt/palyra/bin/palyra"
CONFIG = 'posture = "developer"\n[tool_call.wasm_runtime]\nallow_inline_modules = true\n'
WORKSPACE = "/srv/workspaces/a"
DROP_IN = "/etc/systemd/system/palyrad.service.d/try.conf"
LEFT_OUT = (
    "MemoryDenyWriteExecute=yes",
    "RestrictNamespaces=yes",
    "SystemCallFilter=~@mount",
    "ProcSubset=pid",
    "ProtectKernelTunables=yes",
    "ProtectHostname=yes",
)
"""What the units say they do without, and why."""
found: dict[str, Any] = {}


def sh(*argv: str, timeout: float = 90) -> dict[str, Any]:
    done = subprocess.run(argv, capture_output=True, timeout=timeout, check=False)
    return {
        "code": done.returncode,
        "out": done.stdout.decode("utf-8", "replace"),
        "err": done.stderr.decode("utf-8", "replace"),
    }


def as_palyra(*words: str) -> dict[str, Any]:
    return sh("/usr/sbin/runuser", "-u", "palyra", "--", PALYRA, "--home", HOME, "--json", *words)


def ask(method: str, path: str, body: Any = None, token: str = "") -> dict[str, Any]:
    line = http.client.HTTPConnection("127.0.0.1", 7142, timeout=60)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    line.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
    answer = line.getresponse()
    text = answer.read().decode()
    line.close()
    return {"status": answer.status, "body": json.loads(text) if text[:1] in "{[" and text else text}


def main_pid(unit: str) -> int:
    return int(sh("systemctl", "show", "-P", "MainPID", unit)["out"] or 0)


def until(look: Any, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if look():
            return True
        time.sleep(0.1)
    return False


def answers() -> bool:
    try:
        return ask("GET", "/healthz")["status"] == 200
    except OSError:
        return False


def call(token: str, tool: str, input: dict[str, Any], **more: Any) -> Any:
    return ask("POST", "/v1/calls", {"tool": tool, "input": input, "workspace": WORKSPACE, **more}, token)["body"]


def set_up() -> None:
    found["useradd"] = sh(
        "useradd",
        "--system",
        "--create-home",
        "--home-dir",
        "/var/lib/palyra",
        "--shell",
        "/usr/sbin/nologin",
        "palyra",
    )
    Path(WORKSPACE).mkdir(parents=True)
    sh("chown", "-R", "palyra:", "/srv/workspaces")
    found["verify"] = sh(
        "systemd-analyze", "--man=no", "verify", *map(str, sorted(Path("/etc/systemd/system").glob("palyra*")))
    )
    found["fresh"] = sh("systemctl", "start", "palyrad")
    found["fresh_healthz"] = ask("GET", "/healthz")["status"]
    sh("systemctl", "stop", "palyrad", "palyra-keeper")
    config = Path(HOME) / "palyra.toml"
    config.write_text(CONFIG)
    config.chmod(0o600)
    sh("chown", "palyra:", str(config))


def use() -> None:
    found["start"] = sh("systemctl", "start", "palyrad")
    found["healthz"] = ask("GET", "/healthz")["status"]
    agent = json.loads(as_palyra("token", "create", "--principal", "agent:deploy", "--workspace", WORKSPACE)["out"])[
        "token"
    ]
    operator = json.loads(as_palyra("token", "create", "--principal", "user:deploy", "--operator")["out"])["token"]
    found["readyz"] = ask("GET", "/readyz", token=operator)
    found["doctor"] = ask("GET", "/console/v1/doctor", token=operator)["body"]
    guest = base64.b64encode((OUT / "echo.wasm").read_bytes()).decode()
    run = "palyra.process.run"
    found["calls"] = {
        "tier A": call(operator, "palyra.plugin.run", {"module_base64": guest, "input": {"n": 1}}),
        "tier B": call(operator, run, {"command": "ls"}, tier="b", egress="none"),
        "write": call(agent, "palyra.fs.write", {"path": "made.txt", "text": "made\n"}),
        "tier C": call(agent, run, {"command": "cat", "args": ["made.txt"]}),
        "refused": call(agent, run, {"command": "cat", "args": ["/etc/shadow"]}),
    }
    found["through"] = as_palyra("call", "palyra.echo", '{"by": "the owner"}')
    look_at_walls()
    outlive(agent, operator)
    found["upkeep"] = sh("systemctl", "start", "palyra-upkeep.service")
    found["log"] = sh("journalctl", "--no-pager", "-o", "cat", "-u", "palyrad")["out"]
    found["too_much"] = {directive: with_directive(directive, agent, operator, guest) for directive in LEFT_OUT}
    Path(DROP_IN).unlink()
    sh("systemctl", "daemon-reload")
    found["restarted"] = sh("systemctl", "restart", "palyrad")
    found["stop"] = sh("systemctl", "stop", "palyrad")
    found["stopped"] = {
        unit: sh("systemctl", "show", "-p", "Result,ExecMainStatus", unit)["out"].split()
        for unit in ("palyrad", "palyra-keeper")
    }
    sh("systemctl", "stop", "palyra-keeper")
    found["keeper_stopped"] = sh("systemctl", "show", "-p", "Result,ExecMainStatus", "palyra-keeper")["out"].split()
    found["journal"] = as_palyra("journal", "verify")
    found["security"] = sh("systemd-analyze", "security", "--no-pager", "palyrad.service", "palyra-keeper.service")[
        "out"
    ]


def with_directive(directive: str, agent: str, operator: str, guest: str) -> dict[str, Any]:
    """What becomes of calls where the unit has this as well."""
    Path(DROP_IN).parent.mkdir(exist_ok=True)
    Path(DROP_IN).write_text(f"[Service]\n{directive}\n")
    sh("systemctl", "daemon-reload")
    if sh("systemctl", "restart", "palyrad")["code"]:
        sh("systemctl", "reset-failed", "palyrad")
        return {"start": "failed"}
    calls = {
        "tier A": call(operator, "palyra.plugin.run", {"module_base64": guest, "input": {"n": 1}}),
        "tier C": call(agent, "palyra.process.run", {"command": "cat", "args": ["made.txt"]}),
    }
    return {name: [one.get("status"), one.get("reason"), one.get("message")] for name, one in calls.items()}


def look_at_walls() -> None:
    """What the daemon's own place in the system forbids it, tried with root's hands from within its mounts."""
    walls: dict[str, Any] = {}
    for unit in ("palyrad", "palyra-keeper"):
        pid = main_pid(unit)
        status = dict(
            line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
        )
        names = ("Uid", "CapBnd", "CapEff", "NoNewPrivs", "Seccomp", "Umask")
        walls[unit] = {name: status.get(name, "").split("\t")[0].strip() for name in names}
        for place in ("/etc", "/usr", "/opt/palyra", "/var/lib", "/home", "/root"):
            walls[unit][place] = sh("nsenter", "-t", str(pid), "-m", "--", "touch", f"{place}/was-here")["code"]
        for place in (HOME, "/srv/workspaces", "/tmp"):
            walls[unit][place] = sh("nsenter", "-t", str(pid), "-m", "--", "touch", f"{place}/was-here")["code"]
    walls["tmp_outside"] = Path("/tmp/was-here").exists()
    found["walls"] = walls


def outlive(agent: str, operator: str) -> None:
    started = call(
        agent, "palyra.process.run", {"command": "sleep", "args": ["200"], "background": True, "lifetime": "detached"}
    )
    process = started["output"]["process_id"]

    def standing() -> str:
        return str(ask("GET", f"/console/v1/processes/{process}", token=operator)["body"].get("status"))

    before = main_pid("palyrad")
    seen: dict[str, object] = {"at first": standing()}
    os.kill(before, signal.SIGKILL)
    seen["came back"] = until(lambda: main_pid("palyrad") not in (0, before) and answers())
    seen["after a crash"] = standing()
    seen["restart"] = sh("systemctl", "restart", "palyrad")["code"]
    seen["after a restart"] = standing()
    seen["stopped"] = ask("POST", f"/console/v1/processes/{process}/stop", token=operator)["body"].get("status")
    found["outlive"] = seen


try:
    set_up()
    use()
except Exception:  # noqa: BLE001  # whatever it was, it is told outside
    found["trouble"] = traceback.format_exc()
found["failed"] = sh("systemctl", "--no-pager", "--plain", "--no-legend", "list-units", "--failed", "palyra*")["out"]
found["journalctl"] = sh("journalctl", "--no-pager", "-u", "palyrad", "-u", "palyra-keeper", "-u", "palyra-upkeep")[
    "out"
][-20000:]
(OUT / "found.json").write_text(json.dumps(found, indent=1))
