"""`palyra hook install | status | uninstall AGENT`: the policies decide before an agent's host runs a tool itself."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import NounGroup, Settings, with_settings
from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.cli.hook_files import HookFile

AGENTS = ("claude-code", "codex", "cursor")
AGENT = click.argument("agent", type=click.Choice(AGENTS))
NEXT = {
    "claude-code": "Restart Claude Code; /hooks shows it.",
    "codex": "Codex runs hooks if its config.toml has codex_hooks = true under [features].",
    "cursor": "Restart Cursor; its settings list the hook.",
}


@click.group("hook", cls=NounGroup)
def command() -> None:
    """Let the policies decide what Claude Code, Codex or Cursor run themselves."""


@command.command("install", epilog="Example: palyra hook install claude-code")
@AGENT
@with_settings
def install(settings: Settings, agent: str) -> int:
    """Put the hook into the agent's own settings; the previous contents are kept and can be restored."""
    file = _file(settings, agent)
    changed = file.install()
    _show(settings, file, "installed" if changed else "was installed already")
    if changed and not settings.json and not settings.quiet:
        say(NEXT[agent], err=True)
    return 0


@command.command("uninstall", epilog="Example: palyra hook uninstall claude-code")
@AGENT
@with_settings
def uninstall(settings: Settings, agent: str) -> int:
    """Remove the hook: the file is restored byte for byte, unless it was changed since."""
    file = _file(settings, agent)
    _show(settings, file, file.uninstall())
    return 0


@command.command("status", epilog="\b\nExamples:\n  palyra hook status\n  palyra hook status claude-code")
@click.argument("agent", type=click.Choice(AGENTS), required=False)
@with_settings
def status(settings: Settings, agent: str | None) -> int:
    """Check whether the hook is installed and starts this Palyra. Exit 1 if not. Without an agent: every agent."""
    if agent is None:
        return _status_of_all(settings)
    file = _file(settings, agent)
    state = file.state()
    _show(settings, file, state)
    return 0 if state == "installed" else 1


@command.command("answer", hidden=True)
@AGENT
@with_settings
def answer(settings: Settings, agent: str) -> int:
    """Answer the hook's program where no daemon is running: an event on stdin, the host's answer on stdout."""
    from palyra.cli.session import with_installation
    from palyra.protocol.agent_events import MAX_EVENT_BYTES, Agent
    from palyra.wiring.embedded import Installation
    from palyra.wiring.hooks import answer_hook

    event = sys.stdin.buffer.read(MAX_EVENT_BYTES + 1)
    project = os.environ.get("CLAUDE_PROJECT_DIR", "")

    async def work(installation: Installation) -> int:
        said = await answer_hook(installation, Agent(agent), event, project=project)
        sys.stdout.buffer.write(said.stdout)
        sys.stderr.buffer.write(said.stderr)
        return said.code

    return with_installation(settings, work)


def _status_of_all(settings: Settings) -> int:
    files = [_file(settings, agent) for agent in AGENTS]
    if settings.json:
        items = [_line(file, file.state()) for file in files]
        click.echo(orjson.dumps({"items": items, "next": None}))
    else:
        for file in files:
            _show(settings, file, file.state())
    return 0


def _line(file: HookFile, state: str) -> dict[str, str]:
    return {"agent": file.agent.value, "state": state, "file": str(file.path)}


def _file(settings: Settings, agent: str) -> HookFile:
    from palyra.cli.hook_files import find
    from palyra.config.load import find_home
    from palyra.protocol.agent_events import Agent

    return find(Agent(agent), find_home(settings.home).root)


def _show(settings: Settings, file: HookFile, state: str) -> None:
    if settings.json:
        click.echo(orjson.dumps(_line(file, state)))
    elif not settings.quiet:
        say(f"{file.agent}: {state}  {file.path}")
