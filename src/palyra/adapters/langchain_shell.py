"""LangChain's shell tool: its persistent shell as one `palyra run`. Extra `palyra[langchain]`.

    agent = create_agent(model=…, middleware=[
        ShellToolMiddleware(workspace_root="project", execution_policy=PalyraExecutionPolicy()),
    ])

The middleware keeps one shell and writes its lines to it; that shell is one call: decided once, confined for all its
life, its output redacted, ended with its session. Each single line is therefore not decided by itself: for that, give
the agent the tools over MCP, or deepagents with `palyra.adapters.deepagents`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from langchain.agents.middleware.shell_tool import BaseExecutionPolicy

PENDING = 75
ASK_EVERY_S = 0.5
READY = "palyra-shell-ready"
KEPT = ("PATH", "HOME", "LANG", "PALYRA_HOME", "XDG_DATA_HOME", "PYTHONPATH")
"""Of our own environment, for the `palyra` that is started; the shell inside has one made by Palyra."""


@dataclass
class PalyraExecutionPolicy(BaseExecutionPolicy):
    principal: str = "agent:langchain"
    home: str | None = None
    allow_hosts: tuple[str, ...] = ()
    session_timeout_s: int = 3600
    """How long the shell may live, all its lines together."""

    wait_s: float = 0.0
    """How long the shell waits for a person, where policy asks for one."""

    def spawn(self, *, workspace: Path, env: Mapping[str, str], command: Sequence[str]) -> subprocess.Popen[str]:
        """A shell that answers; RuntimeError with the reason when policy refuses it."""
        deadline = time.monotonic() + self.wait_s
        while True:
            process = self._start(workspace, env, command)
            refused = _refusal(process)
            if refused is None:
                return process
            if process.returncode != PENDING or time.monotonic() >= deadline:
                raise RuntimeError(refused)
            time.sleep(ASK_EVERY_S)

    def _start(self, workspace: Path, env: Mapping[str, str], command: Sequence[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self._palyra(), "run", *self._options(workspace, env), "--", *_inside(command)],
            env=_own_environment(workspace),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            bufsize=1,
            start_new_session=True,
        )

    def _palyra(self) -> list[str]:
        """-P: the current folder may be the workspace, and `-m` would take the agent's own `palyra` from there."""
        return [sys.executable, "-P", "-m", "palyra", *(["--home", self.home] if self.home else [])]

    def _options(self, workspace: Path, env: Mapping[str, str]) -> list[str]:
        """The policy object is the operator's own: what it names is granted for this one shell. Of the environment only
        what was set for it goes in, not what this process happens to have."""
        hosts = [word for host in self.allow_hosts for word in ("--allow-host", host)]
        own = [(name, value) for name, value in env.items() if os.environ.get(name) != value]
        given = [word for name, value in own for word in ("--env", f"{name}={value}") if name not in KEPT]
        return [
            "--workspace", str(workspace), "--as", self.principal, "--allow-interpreters", *hosts, *given,
            "--timeout", str(self.session_timeout_s), "--quiet",
        ]  # fmt: skip


def _refusal(process: subprocess.Popen[str]) -> str | None:
    """None once the shell has answered: who writes into a pipe that nobody reads waits for a time-out."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with suppress(OSError):
        process.stdin.write(f"printf '{READY}\\n'\n")
        process.stdin.flush()
    if process.stdout.readline().strip() == READY:
        return None
    said = process.stderr.read()
    process.wait()
    return said.strip() or f"the shell ended with {process.returncode}"


def _own_environment(workspace: Path) -> dict[str, str]:
    """Nothing in it lets Python import from the workspace: what lies there is the agent's."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    folder = workspace.resolve()
    places = [Path(place) for place in kept.pop("PYTHONPATH", "").split(os.pathsep)]
    ours = [str(place) for place in places if place.is_absolute() and not place.resolve().is_relative_to(folder)]
    return kept | ({"PYTHONPATH": os.pathsep.join(ours)} if ours else {})


def _inside(command: Sequence[str]) -> list[str]:
    """Programs are named, not pointed at: `/bin/bash` is `bash`."""
    return [Path(command[0]).name, *command[1:]]
