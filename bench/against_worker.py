"""One tree's side of a row for `bench.against`: a line on standard input asks for one round.

Runs under the tree's own python, with its own `bench` and `palyra`; only this file comes from the newer tree. It uses
what every tree has: `bench.installation.open_ground`, `open_row` of the row's module, and the first contender.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any


def main(tree: str, name: str) -> int:
    sys.path[0] = tree  # instead of this file's folder, which is another tree's
    peers: Any = importlib.import_module("bench.peers")
    installation = importlib.import_module("bench.installation")
    try:
        row_module = importlib.import_module(f"bench.{name}")
    except ModuleNotFoundError:
        print(f"{tree} has no row {name}", flush=True)
        return 1
    peers.install_peers = refuse_peers
    if hasattr(row_module, "srt"):
        row_module.srt.install = refuse_peers
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever the row prints must not be taken for an answer
    with installation.open_ground() as ground, row_module.open_row(ground) as row:
        ours = row.contenders[0]
        for _ in sys.stdin:
            answer = ours.why_missing if ours.run is None else ours.run()
            print(answer, file=answers, flush=True)
    return 0


def refuse_peers(*_: object) -> str:
    """Stand in for the installation of peers, which this comparison never times."""
    raise OSError("peers are not started here")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
