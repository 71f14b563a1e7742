"""The world a component is built to: it imports the interfaces that its manifest's capabilities justify, and no other.

A component imports whatever its world names, used or not; built to the whole surface it would ask, in every audit, for
more than it needs. So building adds a world of the project's own to the SDK's interfaces.
"""

from __future__ import annotations

from palyra.skills.capabilities import Capabilities

WIT = "sdk/palyra.wit"
WORLD = "built"


def with_world(wit: str, asked: Capabilities) -> str:
    """The SDK's text and this skill's world behind it."""
    named = {
        "http": asked.http_egress_allowlist,
        "secrets": asked.secrets,
        "storage": asked.read_roots or asked.write_roots,
        "channels": asked.channels,
        "log": True,
    }
    imports = "".join(f"  import {name};\n" for name, wanted in named.items() if wanted)
    run = "  export run: func(input: string) -> result<string, string>;\n"
    return f"{wit.rstrip()}\n\nworld {WORLD} {{\n{imports}{run}}}\n"
