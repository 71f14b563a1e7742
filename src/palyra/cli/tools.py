"""`palyra tools list | show TOOL`: what can be called, with schemas and capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import NounGroup, Settings, login_principal, with_settings
from palyra.cli.say import say, say_refusal

if TYPE_CHECKING:
    from palyra.config.schema import Config
    from palyra.model.tool import ToolSpec


@click.group("tools", cls=NounGroup)
def command() -> None:
    """List the tools, or show one with its schemas."""


@command.command("list", epilog="\b\nExamples:\n  palyra tools list --json\n  palyra tools list --as agent:demo")
@click.option("--as", "principal", metavar="PRINCIPAL", help="Who would call them (default: you).")
@click.option("--all", "everything", is_flag=True, help="Include tools that policy could never allow.")
@with_settings
def list_tools(settings: Settings, principal: str | None, everything: bool) -> int:
    """Every tool that could be allowed: its name, capabilities and what it does."""
    from palyra.cli.policy import in_force
    from palyra.config.load import find_home, load_config
    from palyra.engine.listing import tools_for
    from palyra.model.call import parse_principal
    from palyra.protocol.catalog import BUILTIN_TOOLS
    from palyra.protocol.registry import make_registry
    from palyra.protocol.wire import tool_json

    config, _ = load_config(find_home(settings.home), settings.config)
    specs = sorted((*BUILTIN_TOOLS, *_skill_tools(settings, config)), key=lambda spec: spec.name)
    count = len(specs)
    if not everything:
        who, (bundle, _) = parse_principal(principal or login_principal()), in_force(settings)
        shown = frozenset(spec.name for spec in tools_for(who, make_registry(specs), config, bundle))
        specs = [spec for spec in specs if spec.name in shown]
    if settings.json:
        click.echo(orjson.dumps({"items": [tool_json(spec) for spec in specs], "next": None}))
        return 0
    for spec in specs:
        needs = ", ".join(sorted(c.value for c in spec.capabilities)) or "no capabilities"
        say(f"{spec.name}  ({needs})\n    {spec.description.splitlines()[0]}")
    hidden = count - len(specs)
    if hidden and not settings.quiet:
        click.echo(f"{hidden} more could never be allowed here: --all shows them", err=True)
    return 0


@command.command("show", epilog="Example: palyra tools show palyra.process.run")
@click.argument("tool")
@with_settings
def show_tool(settings: Settings, tool: str) -> int:
    """Everything about one tool: description, capabilities, caps, input and output schema."""
    from palyra.config.load import find_home, load_config
    from palyra.errors import Rejected
    from palyra.protocol.catalog import BUILTIN_TOOLS
    from palyra.protocol.registry import make_registry
    from palyra.protocol.wire import tool_json

    others: tuple[ToolSpec, ...] = ()
    if not tool.startswith("palyra."):
        others = _skill_tools(settings, load_config(find_home(settings.home), settings.config)[0])
    try:
        spec = make_registry((*BUILTIN_TOOLS, *others)).get(tool).spec
    except Rejected as refusal:
        say_refusal(refusal.reason.value, refusal.detail, refusal.hint)
        return 1
    option = 0 if settings.json else orjson.OPT_INDENT_2
    click.echo(orjson.dumps(tool_json(spec), option=option))
    return 0


def _skill_tools(settings: Settings, config: Config) -> tuple[ToolSpec, ...]:
    """Of the skills that are enabled in this home; none where there is no home yet."""
    from palyra.config.load import find_home, read_passphrase
    from palyra.wiring.clock import SystemClock
    from palyra.wiring.cluster import open_state
    from palyra.wiring.skill_door import SkillDoor

    root = find_home(settings.home).root
    if not config.cluster.database and not (root / "state" / "palyra.db").exists():
        return ()
    writer = open_state(root, config, passphrase=read_passphrase(config))
    try:
        return tuple(SkillDoor(writer, SystemClock(), root).specs())
    finally:
        writer.close()
