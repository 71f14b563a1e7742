"""`[hooks]`: what the hooks of agents' hosts must know of those hosts (docs/guide/hooks.md)."""

from __future__ import annotations

from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksConfig:
    """`[hooks]`."""

    mcp_server: str = "palyra"
    """What Palyra's MCP server is called in the hosts' settings: its tools are decided when they are called, so the
    hook leaves them alone. Tools of any other server are for a person to decide. Empty: there is no such server."""
