"""`python -m tests.soak.http --seconds 60`: a real daemon under mixed load over HTTP. Prints one JSON report.

Callers do what clients do: calls that work and calls that are refused, batches, streams that are read and streams that
are left midway, calls nobody waits for, cancellations, wrong tokens, bodies that are none. Every kind names what must
have become of it. While they do, the daemon's memory and open files are looked at: after the first quarter of the time
they may not grow. Exit code 1 when they did, when a call ended otherwise, or when the journal does not verify.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PALYRA = (sys.executable, "-m", "palyra")
LOOK_S = 0.5
GROWTH_BYTES = 24 << 20
"""What the kept outcomes of ended calls, SQLite's caches and the allocator's own may move by."""
GROWTH_FILES = 32


@dataclass
class Site:
    url: str
    pid: int
    token: str
    workspace: str
    ended: Counter[str] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)

    def line(self) -> http.client.HTTPConnection:
        host, port = self.url.split("//")[1].rsplit(":", 1)
        return http.client.HTTPConnection(host, int(port), timeout=120)

    def ask(self, line: http.client.HTTPConnection, method: str, path: str, body: Any = None, **more: str) -> Any:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        line.request(method, path, body=data, headers={"Authorization": f"Bearer {self.token}", **more})
        answer = line.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text

    def process(self, *words: str, **more: Any) -> dict[str, Any]:
        input = {"command": words[0], "args": list(words[1:])}
        return {"tool": "palyra.process.run", "input": input, "workspace": self.workspace, **more}


Kind = Callable[[Site, http.client.HTTPConnection], str]


def echo(site: Site, line: http.client.HTTPConnection) -> str:
    for number in range(5):
        status, outcome = site.ask(line, "POST", "/v1/calls", {"tool": "palyra.echo", "input": {"n": number}})
        if (status, outcome["output"]) != (200, {"n": number}):
            return f"{status} {outcome}"
    return ""


def program(site: Site, line: http.client.HTTPConnection) -> str:
    status, outcome = site.ask(line, "POST", "/v1/calls", site.process("seq", "3"))
    return "" if (status, outcome["output"].get("stdout")) == (200, "1\n2\n3\n") else f"{status} {outcome}"


def batch(site: Site, line: http.client.HTTPConnection) -> str:
    calls = [{"tool": "palyra.echo", "input": {"n": n}} for n in range(8)]
    status, outcomes = site.ask(line, "POST", "/v1/calls", calls)
    return "" if status == 200 and [one["output"]["n"] for one in outcomes] == list(range(8)) else f"{status}"


def refused(site: Site, line: http.client.HTTPConnection) -> str:
    status, outcome = site.ask(line, "POST", "/v1/calls", site.process("bash", "-c", "true"))
    return "" if (status, outcome["reason"]) == (200, "INTERPRETER_DENIED") else f"{status} {outcome}"


def followed(site: Site, line: http.client.HTTPConnection) -> str:
    status, begun = site.ask(line, "POST", "/v1/calls", site.process("seq", "2000", wait=False))
    if status != 202:
        return f"{status} {begun}"
    status, events = site.ask(line, "GET", f"/v1/calls/{begun['call_id']}/stream")
    return "" if status == 200 and b"event: outcome" in events else f"{status} {events[-200:]!r}"


def left_midway(site: Site, line: http.client.HTTPConnection) -> str:
    """An attended call ends with the connection it is read on."""
    own = site.line()
    body = json.dumps(site.process("yes")).encode()
    own.request("POST", "/v1/calls", body=body, headers={
        "Authorization": f"Bearer {site.token}", "Accept": "text/event-stream"})  # fmt: skip
    own.getresponse().read(4096)
    own.close()
    return ""


def cancelled(site: Site, line: http.client.HTTPConnection) -> str:
    status, begun = site.ask(line, "POST", "/v1/calls", site.process("sleep", "60", wait=False))
    if status != 202:
        return f"{status} {begun}"
    status, outcome = site.ask(line, "POST", f"/v1/calls/{begun['call_id']}/cancel")
    return "" if outcome["status"] == "cancelled" else f"{status} {outcome}"


def in_a_run(site: Site, line: http.client.HTTPConnection) -> str:
    _, run = site.ask(line, "POST", "/v1/runs", {"workspace": site.workspace, "calls_max": 1})
    call = {"tool": "palyra.echo", "run_id": run["run_id"]}
    reasons = [site.ask(line, "POST", "/v1/calls", call)[1]["reason"] for _ in range(2)]
    status, _ = site.ask(line, "POST", f"/v1/runs/{run['run_id']}/end")
    return "" if (reasons, status) == ([None, "BUDGET_SPENT"], 200) else f"{reasons} {status}"


def nonsense(site: Site, line: http.client.HTTPConnection) -> str:
    found = [
        site.ask(line, "POST", "/v1/calls", b'{"tool":')[0],
        site.ask(line, "POST", "/v1/calls", b"[1]")[0],
        site.ask(line, "GET", "/v1/calls/nobody")[0],
        site.ask(line, "GET", "/console/v1/approvals")[0],
        site.ask(line, "GET", "/v1/tools", Authorization="Bearer wrong")[0],
    ]
    return "" if found[:4] == [400, 422, 404, 403] and found[4] in (401, 429) else f"{found}"


def listed(site: Site, line: http.client.HTTPConnection) -> str:
    status, page = site.ask(line, "GET", "/v1/tools")
    return "" if status == 200 and page["items"] else f"{status}"


KINDS: tuple[Kind, ...] = (
    *(echo, program, batch, refused, echo, followed, left_midway, echo, cancelled, in_a_run, nonsense, listed),
)


def call_until(site: Site, until: float, first: int) -> None:
    line = site.line()
    for number in itertools.count(first):
        if time.monotonic() >= until:
            break
        kind = KINDS[number % len(KINDS)]
        try:
            told = kind(site, line)
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            told = f"{type(error).__name__}: {error}"
            line.close()
        site.ended[kind.__name__] += 1
        if told:
            site.odd.append(f"{kind.__name__}: {told}"[:400])
    line.close()


def look(pid: int) -> tuple[int, int]:
    """(resident bytes, open files) of the daemon."""
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident, len(os.listdir(f"/proc/{pid}/fd"))


def watch(site: Site, seconds: float, callers: int) -> list[tuple[int, int]]:
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=call_until, args=(site, until, number)) for number in range(callers)]
    for thread in threads:
        thread.start()
    seen = []
    while time.monotonic() < until:
        seen.append(look(site.pid))
        time.sleep(LOOK_S)
    for thread in threads:
        thread.join()
    return seen


def middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def soak(base: Path, *, seconds: float, callers: int) -> dict[str, Any]:
    environ = {**os.environ, "PALYRA_HOME": str(base / "home")}
    workspace = base / "workspace"
    workspace.mkdir()
    base.chmod(0o755)
    workspace.chmod(0o755)
    words = ("token", "create", "--principal", "agent:soak", "--workspace", str(workspace))
    token = subprocess.run([*PALYRA, *words], env=environ, check=True, capture_output=True).stdout.decode().strip()
    serve = [*PALYRA, "--json", "--quiet", "serve", "--port", "0"]
    with subprocess.Popen(serve, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as daemon:
        try:
            assert daemon.stdout is not None
            url = json.loads(daemon.stdout.readline())["listening"][0]
            site = Site(url, daemon.pid, token, str(workspace))
            watch(site, min(10.0, seconds / 4), callers)  # what a first call makes for good is no leak
            site.ended.clear()
            began = time.monotonic()
            seen = watch(site, seconds, callers)
            took = time.monotonic() - began
        finally:
            daemon.terminate()
            _, log = daemon.communicate(timeout=120)
    quarter = max(1, len(seen) // 4)
    early, late = seen[quarter : 2 * quarter], seen[-quarter:]
    verified = subprocess.run([*PALYRA, "journal", "verify"], env=environ, capture_output=True)
    return {
        "seconds": round(took, 1),
        "callers": callers,
        "done": sum(site.ended.values()),
        "by_kind": dict(sorted(site.ended.items())),
        "resident_mib": [middle([one[0] for one in part]) >> 20 for part in (early, late)],
        "open_files": [middle([one[1] for one in part]) for part in (early, late)],
        "exit_code": daemon.returncode,
        "log": log.decode("utf-8", "replace").splitlines()[:20],
        "odd": site.odd[:20],
        "odd_count": len(site.odd),
        "verified": verified.returncode == 0,
        "grew": middle([one[0] for one in late]) - middle([one[0] for one in early]) > GROWTH_BYTES
        or middle([one[1] for one in late]) - middle([one[1] for one in early]) > GROWTH_FILES,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak.http")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--callers", type=int, default=24)
    asked = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="palyra-http-soak-")).resolve()
    try:
        report = soak(base, seconds=asked.seconds, callers=asked.callers)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    sound = report["verified"] and report["exit_code"] == 0 and not report["odd"] and not report["log"]
    return 0 if sound and not report["grew"] else 1


if __name__ == "__main__":
    sys.exit(main())
