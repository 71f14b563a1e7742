"""`palyra bench [ROW …]`: the published ratios, measured again on this machine, as `make bench` does.

The benchmarks are programs of the source tree, with peers in an environment of their own; the installed package does
not carry them. Where they are missing this says so and where they are: a figure is measured here or not told at all.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout
from importlib import import_module
from pathlib import Path

import click

import palyra
from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say_failure


@click.command("bench", epilog="\b\nExamples:\n  palyra bench cli_version\n  palyra bench tier_c tier_b --rounds 200")
@click.argument("rows", nargs=-1, metavar="[ROW]...")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    metavar="N",
    help="How many rounds each side runs.",
)
@with_settings
def command(settings: Settings, rows: tuple[str, ...], rounds: int) -> int:
    """Measure Palyra beside its peers, as ratios; all rows when none is named. Needs the source tree.

    All rows take minutes. On first use the peers are installed from the package indexes into .make of that tree.
    """
    tree = Path(palyra.__file__).parents[2]
    if not (tree / "bench" / "__main__.py").is_file():
        say_failure(
            "NOT_FOUND",
            "The benchmarks are in the source tree, not in the installed package.",
            "In a checkout: make dev, then palyra bench, or make bench.",
        )
        return 1
    sys.path.insert(0, str(tree))
    benchmarks = import_module("bench.__main__")
    names = (*benchmarks.ROWS, benchmarks.GROWTH)
    if unknown := [row for row in rows if row not in names]:
        raise click.UsageError(f"no such row: {' '.join(unknown)}; there are {', '.join(names)}.")
    # With --json stdout belongs to the one value; the tables are for whoever watches.
    with redirect_stdout(sys.stderr) if settings.json else nullcontext():
        code: int = benchmarks.main([*rows, "--rounds", str(rounds)])
    if settings.json:
        _print_records(tree, rows or names)
    return code


def _print_records(tree: Path, rows: tuple[str, ...]) -> None:
    """Those that were just measured; a row without our own side has none."""
    import orjson

    places = [tree / "bench" / "results" / f"{row}.json" for row in rows]
    items = [orjson.loads(place.read_bytes()) for place in places if place.is_file()]
    click.echo(orjson.dumps({"items": items, "next": None}))
