"""A home that has lived: calls that completed, were refused, and said hostile things; requests that wait; a process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from palyra.engine.runs import start_run
from palyra.engine.trip import CallRequest
from palyra.model.call import Door, RequestContext, parse_principal
from palyra.model.outcome import Outcome
from palyra.skills.capabilities import Capabilities
from palyra.skills.manifest import OperatorInfo
from palyra.wiring.clock import SystemClock
from tests.daemons import OPERATOR, Daemon, daemon
from tests.making_skills import package, tool

SCRIPT = "<script>alert('palyra')</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
ANSI = "\x1b[2J\x1b]0;owned\x07\x9b31m"
BIDI = "safe\u202etxt.exe\u2066\u200b\ufeff"
SIGNED_UNIX_MS = 1_700_000_000_000
HOSTILE = f"{SCRIPT}{IMAGE}{ANSI}{BIDI}\r\x00{{{{ 7*7 }}}}{{% raw %}}</pre></textarea>&lt;b&gt;\n"
LONG_LINE = "A" * (1024 * 1024 - 4096)
ASKS = """
@id("local.ask-before-git")
@reason("A person looks at git <b>first</b>.")
permit (principal, action == Action::"approval::confirm", resource);

@id("local.git-asks")
@code("NOT_APPROVED")
@reason("A person looks at git first.")
forbid (principal, action == Action::"tool::execute", resource == Tool::"palyra.process.run")
when { context.effective_program == "git" && !context.approved };
"""


@dataclass
class World:
    daemon: Daemon
    workspace: Path
    calls: dict[str, Outcome] = field(default_factory=dict)

    def call(
        self, tool: str, input: Mapping[str, Any], *, principal: str = "agent:demo", run_id: str | None = None
    ) -> Outcome:
        ports = self.daemon.state.installation.ports
        run = start_run(
            ports.config,
            run_id=run_id or ports.ids.ulid(),
            context=RequestContext(principal=parse_principal(principal), door=Door.HTTP),
            workspace=str(self.workspace),
            now_unix_ms=ports.clock.now_unix_ms(),
        )
        outcome: Outcome = self.daemon.run(
            self.daemon.state.installation.engine.call(CallRequest(tool=tool, input=dict(input), run=run))
        )
        return outcome

    def run_program(self, *argv: str, **more: Any) -> Outcome:
        call = {"command": argv[0], "args": list(argv[1:])} | more.pop("input", {})
        return self.call("palyra.process.run", call, **more)

    def page(self, path: str, **options: Any) -> httpx.Response:
        return self.daemon.ask("GET", path, **({"session": self.session} | options))

    def send(self, path: str, fields: Mapping[str, str] | None = None, **options: Any) -> httpx.Response:
        """A form, as a browser without scripts sends it."""
        data = {"csrf": self.session[1], **(fields or {})}
        return self.daemon.ask("POST", path, **({"session": self.session, "data": data} | options))

    def __post_init__(self) -> None:
        self.session = self.daemon.login(OPERATOR)


@contextmanager
def world(base: Path) -> Iterator[World]:
    """Everything a page can be asked to show, with hostile text wherever somebody else chooses it."""
    home, workspace = base / "home", base / "workspace"
    workspace.mkdir(parents=True)
    (home / "policies").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "policies" / "local.cedar").write_text(ASKS)
    (workspace / "hostile.txt").write_text(HOSTILE)
    (workspace / "long.txt").write_text(LONG_LINE)
    with daemon(home) as served:
        lived = World(served, workspace)
        live(lived)
        yield lived


def live(lived: World) -> None:
    run = lived.daemon.state.ids.ulid()
    lived.calls["hostile"] = lived.run_program("cat", "hostile.txt", run_id=run)
    lived.calls["long"] = lived.run_program("cat", "long.txt", run_id=run)
    lived.calls["echo"] = lived.call("palyra.echo", {HOSTILE: [HOSTILE, {"n": 1}]}, run_id=run)
    lived.calls["refused"] = lived.run_program("bash", "-c", HOSTILE.replace("\x00", ""), run_id=run)
    lived.calls["unknown"] = lived.call(SCRIPT, {})
    lived.calls["asks"] = lived.run_program("git", "log", SCRIPT + BIDI + ANSI, run_id=run)
    lived.calls["failed"] = lived.run_program("ls", IMAGE, run_id=run)
    install_skills(lived)


def packed(skill_id: str, version: str, **more: Any) -> bytes:
    return package(skill_id, version, at_unix_ms=SIGNED_UNIX_MS, **more)


@contextmanager
def portrait(base: Path) -> Iterator[World]:
    """A home as it looks after an ordinary day, without anything hostile: for pictures."""
    home, workspace = base / "home", base / "workspace"
    workspace.mkdir(parents=True)
    (home / "policies").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    (home / "policies" / "local.cedar").write_text(ASKS.replace(" <b>first</b>", " first"))
    (workspace / "notes.txt").write_text("notes\n")
    real = SystemClock.now_unix_ms
    with daemon(home) as served:
        lived = World(served, workspace)
        lived.calls["portrait"] = lived.call("palyra.echo", {})
        for hour in range(23, -1, -1):
            with patch.object(SystemClock, "now_unix_ms", lambda clock, late=hour: real(clock) - late * 3_600_000):
                ordinary_hour(lived, hour)
        lived.run_program("git", "push", "origin", "main", principal="agent:release")
        lived.run_program("git", "fetch", "--all", principal="agent:builder")
        desk = served.state.installation.skills
        lived.daemon.run(desk.install(packed("acme.echo", "0.1.0"), by=OPERATOR, tofu=True))
        yield lived


def ordinary_hour(lived: World, hour: int) -> None:
    run = lived.daemon.state.ids.ulid()
    busy = (3, 2, 2, 1, 1, 2, 4, 7, 11, 14, 13, 9, 8, 12, 15, 14, 12, 9, 7, 6, 5, 4, 4, 3)[hour]
    for number in range(busy):
        lived.call("palyra.echo", {"n": number}, principal="agent:builder", run_id=run)
    lived.call("palyra.fs.read", {"path": "notes.txt"}, principal="agent:builder", run_id=run)
    if busy > 6:
        lived.run_program("bash", "-c", "make", principal="agent:release")
        lived.run_program("ls", "-la", principal="agent:builder", run_id=run)
    if busy > 11:
        lived.run_program("curl", "https://example.com", principal="agent:research")
        lived.call("acme.summarise", {}, principal="agent:research")


def install_skills(lived: World) -> None:
    """One that is enabled, with a newer version waiting that asks for more; one that waits for its first time."""
    desk, run = lived.daemon.state.installation.skills, lived.daemon.run
    hostile = OperatorInfo(display_name=SCRIPT, summary=f"Echoes {IMAGE} back.")
    tools = (tool("acme.echo", description=f"Gives back {SCRIPT}."),)
    run(desk.install(packed("acme.echo", "0.1.0", operator=hostile, tools=tools), by=OPERATOR, tofu=True))
    run(desk.enable("acme.echo", by=OPERATOR))
    more = Capabilities(http_egress_allowlist=("api.example.com",), write_roots=("notes",))
    run(desk.install(packed("acme.echo", "0.2.0", operator=hostile, tools=tools, capabilities=more), by=OPERATOR))
    run(desk.install(packed("acme.other", "1.0.0", tools=(tool("acme.other"),)), by=OPERATOR))
