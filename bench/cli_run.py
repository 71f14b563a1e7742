"""`palyra run -- true` from the command line, embedded: a whole process, from its first import to its exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench import peers
from bench.commands import command
from bench.harness import Aim, Row
from bench.installation import Ground


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    yield Row(
        name="cli_run",
        title="Command line: `palyra run -- true`",
        note="Ours starts an interpreter, imports, opens the home, decides, writes two durable journal entries, "
        "starts a sandbox, captures and signs; no daemon helps. The peer is a program of C that starts the least of "
        "sandboxes.",
        contenders=(command(ground, "palyra run", "run", "--", "true"), peers.cold_bwrap()),
        aims=(Aim(peer="cold bwrap true", at_most=35.0),),
    )
