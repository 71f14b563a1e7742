"""`palyra mcp`: Palyra's tools for any MCP client, over stdin and stdout."""

from __future__ import annotations

import sys

import click

from palyra.cli.options import Settings, with_settings

EPILOG = """\b
Examples:
  palyra mcp
  palyra mcp --as agent:writer --workspace ~/projects/site
  claude mcp add palyra -- palyra mcp --workspace .

The client starts this command and speaks MCP with it. What the agent may do is decided by the policies of the home:
palyra policy show. Requests that wait for a person: palyra approvals list.
"""


AT_TERMINAL = """\
palyra: waiting for an MCP client on stdin, which is this terminal. A client starts this command itself:
  claude mcp add palyra -- palyra mcp --workspace .
Ctrl-D ends it; palyra mcp --help says more."""


@click.command("mcp", epilog=EPILOG)
@click.option("--as", "principal", default="agent:mcp", metavar="PRINCIPAL", help="Who asks (default: agent:mcp).")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="The folder tools may work in (default: the current folder).",
)
@with_settings
def command(settings: Settings, principal: str, workspace: str | None) -> int:
    """Serve the tools to an MCP client over stdin and stdout."""
    try:
        import mcp_types  # noqa: F401  # an extra: palyra[mcp]
    except ImportError as error:
        raise click.ClickException(
            "palyra mcp needs an extra. In a checkout of Palyra: pip install '.[mcp]'"
        ) from error
    from palyra.cli.mcp_session import serve

    if sys.stdin is not None and sys.stdin.isatty() and not settings.quiet:
        click.echo(AT_TERMINAL, err=True)
    return serve(settings, principal=principal, workspace=workspace)
