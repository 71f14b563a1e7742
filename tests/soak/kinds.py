"""What clients of a daemon do, one function a kind: each says what was odd about what became of it, or nothing.

Agents: every tier, batches, refusals, streams, cancellations, runs, background processes, nonsense. Operators: calls in
tier B, decisions on what waits, the console's pages. Everything goes over HTTP.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

PAGES = ("", "/calls", "/approvals", "/runs", "/journal", "/skills", "/processes", "/policy", "/doctor", "/tokens")


@dataclass
class Site:
    url: str
    pid: int
    token: str
    operator: str
    workspace: str
    ended: Counter[str] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)
    numbers: Any = field(default_factory=itertools.count)
    over: threading.Event = field(default_factory=threading.Event)

    def line(self) -> http.client.HTTPConnection:
        host, port = self.url.split("//")[1].rsplit(":", 1)
        return http.client.HTTPConnection(host, int(port), timeout=120)

    def ask(self, line: http.client.HTTPConnection, method: str, path: str, body: Any = None, **more: str) -> Any:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        line.request(method, path, body=data, headers={"Authorization": f"Bearer {self.token}", **more})
        answer = line.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text[:1] in (b"{", b"[") else text

    def operate(self, line: http.client.HTTPConnection, method: str, path: str, body: Any = None) -> Any:
        return self.ask(line, method, path, body, Authorization=f"Bearer {self.operator}")

    def process(self, *words: str, **more: Any) -> dict[str, Any]:
        input = {"command": words[0], "args": list(words[1:]), **more.pop("input", {})}
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


def guest(site: Site, line: http.client.HTTPConnection) -> str:
    """Tier A: a tool of an installed skill."""
    status, outcome = site.ask(line, "POST", "/v1/calls", {"tool": "acme.echo", "input": {"n": 1}})
    return "" if (status, outcome["output"].get("result")) == (200, {"n": 1}) else f"{status} {outcome}"


def tier_b(site: Site, line: http.client.HTTPConnection) -> str:
    call = site.process("seq", "3", tier="b", egress="none")
    status, outcome = site.operate(line, "POST", "/v1/calls", call)
    told = (status, outcome["output"].get("stdout"), outcome["attestation"]["executor"])
    return "" if told == (200, "1\n2\n3\n", "sandbox_tier_b") else f"{status} {outcome}"


def files(site: Site, line: http.client.HTTPConnection) -> str:
    name = f"made-{next(site.numbers) % 64}.txt"
    write = {"tool": "palyra.fs.write", "input": {"path": name, "text": "x"}, "workspace": site.workspace}
    read = {"tool": "palyra.fs.read", "input": {"path": name}, "workspace": site.workspace}
    found = [site.ask(line, "POST", "/v1/calls", call)[1] for call in (write, read)]
    return "" if all(one["success"] for one in found) else f"{found}"


def approved(site: Site, line: http.client.HTTPConnection) -> str:
    """Asked for, decided by an operator, repeated, used."""
    call = site.process("git", "version", f"--soak-{next(site.numbers)}")
    status, pending = site.ask(line, "POST", "/v1/calls", call)
    if (status, pending["status"]) != (202, "pending_approval"):
        return f"{status} {pending}"
    path = f"/console/v1/approvals/{pending['approval']['approval_id']}/approve"
    status, said = site.operate(line, "POST", path, {})
    if status != 200:
        return f"{status} {said}"
    status, outcome = site.ask(line, "POST", "/v1/calls", call)
    return "" if (status, outcome["status"]) == (200, "completed") else f"{status} {outcome}"


def denied(site: Site, line: http.client.HTTPConnection) -> str:
    _, pending = site.ask(line, "POST", "/v1/calls", site.process("git", "log", f"--soak-{next(site.numbers)}"))
    path = f"/console/v1/approvals/{pending['approval']['approval_id']}/deny"
    status, said = site.operate(line, "POST", path, {"reason": "a soak"})
    return "" if status == 200 else f"{status} {said}"


def background(site: Site, line: http.client.HTTPConnection) -> str:
    more = {"background": True, "lifetime": "detached"}
    status, outcome = site.ask(line, "POST", "/v1/calls", site.process("sleep", "60", input=more))
    if outcome["status"] != "completed":
        return "" if outcome["reason"] == "BUSY" else f"{status} {outcome}"
    path = f"/console/v1/processes/{outcome['output']['process_id']}/stop"
    status, stopped = site.operate(line, "POST", path)
    return "" if (status, stopped.get("status")) == (200, "stopped") else f"{status} {stopped}"


def console(site: Site, line: http.client.HTTPConnection) -> str:
    """Log in, look at every page, log out."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    line.request("POST", "/console/login", body=urlencode({"token": site.operator}), headers=form)
    answer = line.getresponse()
    answer.read()
    cookie = (answer.getheader("Set-Cookie") or "").split(";")[0]
    found, page = [], b""
    for path in PAGES:
        line.request("GET", f"/console{path}", headers={"Cookie": cookie})
        answer = line.getresponse()
        page = answer.read()
        found.append(answer.status)
    csrf = page.partition(b'name="csrf" value="')[2][:64].decode()
    line.request("POST", "/console/logout", body=urlencode({"csrf": csrf}), headers={**form, "Cookie": cookie})
    answer = line.getresponse()
    answer.read()
    return "" if (set(found), answer.status) == ({200}, 303) else f"{found} {answer.status}"


KINDS: tuple[Kind, ...] = (
    *(echo, program, batch, refused, guest, echo, followed, left_midway, tier_b, approved, echo, cancelled, in_a_run),
    *(nonsense, files, listed, console, guest, denied, program, background),
)


# ── those that stay ──


def listen(site: Site) -> None:
    """To all that happens, until it is over; comes back where it was, as a browser does."""
    last = ""
    while not site.over.is_set():
        line = site.line()
        line.timeout = 5
        headers = {"Authorization": f"Bearer {site.operator}"} | ({"Last-Event-ID": last} if last else {})
        try:
            line.request("GET", "/console/v1/events", headers=headers)
            answer = line.getresponse()
            for _ in range(2000):
                text = answer.readline()
                if site.over.is_set() or not text:
                    break
                if text.startswith(b"id: "):
                    seen = text[4:].strip().decode()
                    if last and int(seen) != int(last) + 1:
                        site.odd.append(f"listen: {seen} came after {last}")
                    last = seen
                    site.ended["event heard"] += 1
        except (OSError, http.client.HTTPException):
            pass  # quiet for longer than this one waits, or over
        finally:
            line.close()
