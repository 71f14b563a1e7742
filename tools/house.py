#!/usr/bin/env python3
"""Draw a Python package as a house: storeys, rooms, and who leans on whom; and check that it stands.

    house.py PKG_DIR [--layers FILE|TEXT] [--pure PATTERNS] [--skip PATTERNS] [--depth N] [--documented]
             [--max-file N] [--max-func N] [--top N] [--edges] [--modules] [--quiet] [--svg OUT]
    house.py @FILE      the same arguments, one a line

A room is a module or sub-package, `--depth` levels below PKG_DIR. `--layers` lists the
storeys, roof first, one a line (or parted by ';'), rooms parted by spaces, '#' for comments;
rooms on a storey that begins with '=' may not import each other. A room may import its own
storey and those below; the longest name wins, so `egress` and `egress.server` may live on two
storeys. Without `--layers` the storeys are derived from the imports; with them every module must have a place and
no imports may form a knot. A module that `--pure` names (`model.*,policy.*,!*.store`) may touch no I/O, nor lean on
a module that does.

Exits 1 when a rule given on the command line is broken. Reads source with `ast`, runs none.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from house_drawing import draw_svg, draw_text
from house_plan import House, find_impure, parse_layers
from house_reading import read_package


def build_parser() -> argparse.ArgumentParser:
    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(description=about, fromfile_prefix_chars="@")
    parser.add_argument("package", type=Path, help="the package's directory, such as src/pkg")
    parser.add_argument("--layers", default="", help="file or text: the storeys, roof first")
    parser.add_argument("--pure", default="", help="patterns of modules that may touch no I/O")
    parser.add_argument("--skip", default="", help="patterns of modules to leave out")
    parser.add_argument("--depth", type=int, default=1, help="levels below the root that make a room")
    parser.add_argument("--max-file", type=int, default=10**9, help="fail on a file with more lines")
    parser.add_argument("--max-func", type=int, default=10**9, help="fail on a function with more lines")
    parser.add_argument("--documented", action="store_true", help="fail on a module without a docstring")
    parser.add_argument("--top", type=int, default=4, help="rows in each list of the worst")
    parser.add_argument("--edges", action="store_true", help="list what each room imports")
    parser.add_argument("--modules", action="store_true", help="list every module with its public names")
    parser.add_argument("--quiet", action="store_true", help="print the broken rules alone")
    parser.add_argument("--svg", type=Path, help="also write a drawing here")
    return parser


def split_patterns(text: str) -> list[str]:
    return [p.strip() for p in text.split(",") if p.strip()]


def build_house(args: argparse.Namespace) -> House:
    root = args.package.resolve()
    modules, edges = read_package(root, split_patterns(args.skip))
    is_text = not args.layers or ";" in args.layers or "\n" in args.layers
    layers, apart = parse_layers(args.layers if is_text else Path(args.layers).read_text("utf-8"))
    return House(root.name, modules, edges, args.depth, layers, apart)


def find_broken(house: House, args: argparse.Namespace) -> Iterator[str]:
    """A sentence for each rule that does not hold."""
    modules = house.modules.values()
    for edge, how in house.violations():
        yield f"{edge.source} {how} {edge.target} ({edge.kind})"
    for inner in house.unplaced():
        yield f"no storey: {inner} is not named in the layers"
    for knot in house.knots() if house.layers else []:
        yield f"knot: {' '.join(knot)} import each other"
    yield from find_impure(split_patterns(args.pure), house.modules, house.edges)
    for module in modules:
        if module.lines > args.max_file:
            yield f"too long: {module.inner} {module.lines} lines"
        if args.documented and module.lines and not module.documented:
            yield f"no docstring: {module.inner}"
    for function in (f for m in modules for f in m.functions):
        if function.lines > args.max_func:
            yield f"too long: {function.where} {function.lines} lines"


def print_house(house: House, args: argparse.Namespace) -> None:
    print("\n".join(draw_text(house, args.top)))
    for room in sorted(house.rooms()) if args.edges else []:
        print(f"{room} → {' '.join(sorted(b for a, b in house.room_edges() if a == room)) or '∅'}")
    for module in house.modules.values() if args.modules else []:
        print(f"{module.inner} {module.lines} {'●' if module.world else '○'} {' '.join(module.public)}")


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    try:
        house = build_house(args)
    except SyntaxError as error:
        print(f"  ✗ not Python: {error.filename}:{error.lineno}: {error.msg}")
        return 1
    if not house.modules:
        parser.error(f"no Python modules under {args.package}")
    if not args.quiet:
        print_house(house, args)
    if args.svg:
        args.svg.write_text(draw_svg(house), encoding="utf-8")
    broken = list(find_broken(house, args))
    print("".join(f"  ✗ {line}\n" for line in broken), end="")
    print(f"rules broken: {len(broken)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
