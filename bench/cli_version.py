"""`palyra --version` beside an interpreter that does nothing: what every command pays before its own work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.commands import command, interpreter
from bench.harness import Aim, Row
from bench.installation import Ground


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    yield Row(
        name="cli_version",
        title="Command line: `palyra --version`",
        note="The peer is the same interpreter with nothing to do.",
        contenders=(command(ground, "palyra --version", "--version"), interpreter()),
        aims=(Aim(peer="python -c pass", at_most=6.0),),
    )
