"""`palyra tools list | show TOOL`: what can be called, with schemas and capabilities."""

from __future__ import annotations

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say_error, say_json_error


@click.group("tools")
def command() -> None:
    """List the tools, or show one with its schemas."""


@command.command("list", epilog="Example: palyra tools list --json")
@with_settings
def list_tools(settings: Settings) -> int:
    """Every tool: its name, capabilities and what it does."""
    from palyra.protocol.catalog import BUILTIN_TOOLS
    from palyra.protocol.wire import tool_json

    specs = sorted(BUILTIN_TOOLS, key=lambda spec: spec.name)
    if settings.json:
        click.echo(orjson.dumps({"items": [tool_json(spec) for spec in specs], "next": None}))
        return 0
    for spec in specs:
        needs = ", ".join(sorted(c.value for c in spec.capabilities)) or "no capabilities"
        click.echo(f"{spec.name}  ({needs})\n    {spec.description.splitlines()[0]}")
    return 0


@command.command("show", epilog="Example: palyra tools show palyra.process.run")
@click.argument("tool")
@with_settings
def show_tool(settings: Settings, tool: str) -> int:
    """One tool whole: description, capabilities, caps, input and output schema."""
    from palyra.errors import Rejected
    from palyra.protocol.catalog import BUILTIN_TOOLS
    from palyra.protocol.registry import make_registry
    from palyra.protocol.wire import tool_json

    try:
        spec = make_registry(BUILTIN_TOOLS).get(tool).spec
    except Rejected as refusal:
        if settings.json:
            say_json_error(refusal.reason.value, refusal.detail, refusal.hint)
        say_error(f"{refusal.reason}: {refusal.detail}", refusal.hint)
        return 1
    option = 0 if settings.json else orjson.OPT_INDENT_2
    click.echo(orjson.dumps(tool_json(spec), option=option))
    return 0
