"""A component imports what its manifest's capabilities justify, and no other interface."""

from __future__ import annotations

import pytest

from palyra.skills.capabilities import Capabilities, SecretScope
from palyra.skills.templates.load import read_sdk
from palyra.skills.world import with_world

TOKEN = SecretScope(scope="skill:acme.a", key_names=("token",))


@pytest.mark.parametrize(
    ("asked", "imports"),
    [
        (Capabilities(), ["log"]),
        (Capabilities(http_egress_allowlist=("api.example.com",), secrets=(TOKEN,)), ["http", "secrets", "log"]),
        (Capabilities(read_roots=("a",)), ["storage", "log"]),
        (Capabilities(write_roots=("a",), channels=("report",)), ["storage", "channels", "log"]),
    ],
)
def test_a_world_imports_what_is_asked_for(asked: Capabilities, imports: list[str]) -> None:
    text = with_world(read_sdk("palyra.wit"), asked)
    world = text.partition("world built {")[2]
    assert [line.split()[1].rstrip(";") for line in world.splitlines() if "import" in line] == imports
    assert "export run: func(input: string) -> result<string, string>;" in world
    assert text.startswith(read_sdk("palyra.wit").rstrip())
