"""Draws a house as text and as SVG.

Text: a storey a rule, a room a line, with its size, its neighbours and whether it touches the world. SVG: a box a
room, wider when longer; green is pure, amber does I/O, a red line breaks a rule.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape

from house_plan import House, find_cycles


def draw_text(house: House, top: int) -> Iterator[str]:
    modules = list(house.modules.values())
    functions = sorted((f for m in modules for f in m.functions), key=lambda f: f.lines)
    kinds = Counter(e.kind for e in house.edges)
    at_run = find_cycles((e.source, e.target) for e in house.edges if e.kind == "run")
    knots = house.knots()
    yield (
        f"{house.name}: {len(modules)} modules, {sum(m.lines for m in modules):,} lines "
        f"({sum(m.code for m in modules):,} code); file {spread([m.lines for m in modules])}"
    )
    yield (
        f"{len(functions)} functions: {spread([f.lines for f in functions] or [0])} lines; "
        f"typed {percent(f.typed for f in functions)}; modules with a docstring "
        f"{percent(m.documented for m in modules)}; pure {percent(not m.world for m in modules)}"
    )
    yield from draw_storeys(house)
    yield (
        f"imports: {kinds['run']} at run, {kinds['lazy']} lazy, {kinds['type']} for types; "
        f"cycles: {len(at_run)} at import, {len(knots)} counting lazy imports"
    )
    for knot in knots[:top]:
        yield f"  knot of {len(knot)}: {' '.join(knot)}"[:160]
    longest = (f"{f.where} {f.lines} lines/{f.paths} paths" for f in functions[: -top - 1 : -1])
    biggest = (f"{m.inner} {m.lines}" for m in sorted(modules, key=lambda m: -m.lines)[:top])
    yield f"longest functions: {'; '.join(longest)}"
    yield f"biggest files: {'; '.join(biggest)}"


def draw_storeys(house: House) -> Iterator[str]:
    rooms, edges, storeys = house.rooms(), house.room_edges(), house.storeys()
    width, height = max(len(r) for r in rooms), len(house.layers or storeys)
    for number, storey in enumerate(storeys):
        if storey:
            yield f"── {f'storey {height - number}' if number < height else 'unplaced'} ".ljust(76, "─")
        for room in sorted(storey, key=lambda r: -sum(m.lines for m in rooms[r])):
            members = rooms[room]
            worldly = [m for m in members if m.world]
            why = " ".join(sorted({w for m in worldly for w in m.world}))
            names = sum(len(m.public) for m in members if not m.inner.rpartition(".")[2].startswith("_"))
            yield (
                f"  {room:<{width}} {sum(m.lines for m in members):>6} lines {len(members):>3} mod {names:>3} pub "
                f"←{sum(b == room for _, b in edges):<2} →{sum(a == room for a, _ in edges):<2} "
                + (f"● {len(worldly)} i/o: {why}"[:48] if worldly else "○ pure")
            )


def draw_svg(house: House) -> str:
    """A box a room, wider when longer: green is pure, amber does I/O; red lines break a rule."""
    rooms, width, height, gap, margin = house.rooms(), 1240, 44, 46, 20
    box: dict[str, tuple[float, int, float]] = {}
    storeys = [s for s in house.storeys() if s]
    for row, storey in enumerate(storeys):
        weight = {r: max(sum(m.lines for m in rooms[r]), 40) ** 0.5 for r in storey}
        unit = (width - 2 * margin - 10 * (len(storey) - 1)) / sum(weight.values())
        widths = {r: min(unit * weight[r], 9 * weight[r] + 60) for r in storey}
        x = (width - sum(widths.values()) - 10 * (len(storey) - 1)) / 2
        for room in storey:
            box[room] = (x, 90 + row * (height + gap), widths[room])
            x += widths[room] + 10
    bad = {(house.place(e.source)[1], house.place(e.target)[1]) for e, _ in house.violations()}
    parts = [f'<path d="M{margin} 78 L{width / 2} 6 L{width - margin} 78 Z" fill="#f4f4f4" stroke="#888"/>']
    parts.append(f'<text x="{width / 2}" y="58" font-size="20" text-anchor="middle">{escape(house.name)}</text>')
    for source, target in sorted(house.room_edges(), key=lambda pair: (pair in bad, pair)):
        (x1, y1, w1), (x2, y2, w2) = box[source], box[target]
        a, b = (y1 + height, y2) if y2 > y1 else (y1, y2 + height) if y2 < y1 else (y1, y2)
        x1, x2, bend = x1 + w1 / 2, x2 + w2 / 2, (a + b) / 2 - (30 if y1 == y2 else 0)
        curve = f"M{x1:.0f} {a} C{x1:.0f} {bend} {x2:.0f} {bend} {x2:.0f} {b}"
        colour = "#c00" if (source, target) in bad else "#c8c8c8"
        parts.append(f'<path d="{curve}" fill="none" stroke="{colour}"/>')
    for room, (x, y, w) in box.items():
        lines, share = sum(m.lines for m in rooms[room]), statistics.mean(bool(m.world) for m in rooms[room])
        fill = "#d9efd5" if not share else "#fbf0cf" if share < 0.5 else "#f6d7a5"
        parts.append(
            f'<g><title>{escape(room)}: {lines} lines</title><rect x="{x:.0f}" y="{y}" width="{w:.0f}" '
            f'height="{height}" rx="4" fill="{fill}" stroke="#555"/><text x="{x + 5:.0f}" y="{y + 18}" '
            f'font-size="12">{escape(room[: max(2, int(w / 7.2))])}</text><text x="{x + 5:.0f}" y="{y + 35}" '
            f'font-size="10" fill="#555">{lines}</text></g>'
        )
    tall = 90 + len(storeys) * (height + gap)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {tall}" font-family="sans-serif">'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def spread(numbers: list[int]) -> str:
    ordered = sorted(numbers)
    p90 = ordered[int(0.9 * (len(ordered) - 1))]
    return f"median {int(statistics.median(ordered))}, p90 {p90}, max {ordered[-1]}"


def percent(flags: Iterable[bool]) -> str:
    seen = list(flags)
    return f"{100 * sum(seen) // max(len(seen), 1)}%"
