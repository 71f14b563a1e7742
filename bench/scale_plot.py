"""Two pictures in one: calls a second over the nodes that were started here, and over those of the model.

Both have axes that begin at nothing (measured) or at one (simulated, logarithmic on both sides), every measured point
with its figure, and each line's name where no other one's is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

from bench.plot import INK, OURS, PAPER, PEER, WIDTH, text

HEIGHT, TOP, FOOT = 340, 84, 56
LINE_PX = 15
NAMES = {"waiting": "programs that wait 100 ms", "busy": "programs that end at once"}
COLOURS = (OURS, PEER, "#7a5c9e")
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    left: int
    width: int
    across: Callable[[float], float]
    """A value's share of the width, 0 to 1."""
    up: Callable[[float], float]

    def place(self, point: Point) -> Point:
        bottom = HEIGHT - FOOT
        return self.left + self.width * self.across(point[0]), bottom - (bottom - TOP) * self.up(point[1])

    def axes(self, xs: Sequence[float], ys: Sequence[float]) -> list[str]:
        bottom, right = HEIGHT - FOOT, self.left + self.width
        parts = [_stroke([(self.left, TOP), (self.left, bottom), (right, bottom)], INK)]
        parts += [text(self.place((x, ys[0]))[0] - 3 * len(f"{x:g}"), bottom + 16, f"{x:g}", size=11) for x in xs]
        for y in ys:
            at = self.place((xs[0], y))[1]
            parts += [
                _stroke([(self.left, at), (right, at)], "#e3e6e9"),
                text(self.left - 34, at + 4, f"{y:g}", size=11),
            ]
        parts.append(text(self.left + self.width / 2 - 16, bottom + 34, "nodes", size=11))
        return parts


def draw_scale(record: Mapping[str, Any]) -> str:
    parts = [text(20, 28, "Calls a second in a cluster", size=16)]
    parts.append(text(20, 50, "measured: nodes of one machine, two slots each", size=11))
    parts.append(text(400, 50, "simulated: 3 daemons, 16 slots a node, programs of", size=11))
    body = "\n".join([*parts, *_measured(record["throughput"]), *_simulated(record["model"])])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def _measured(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    most = _round_up(max(float(row["calls_per_s"]) for row in rows))
    nodes = sorted({int(row["nodes"]) for row in rows})
    panel = Panel(left=58, width=270, across=lambda x: (x - 0.8) / (nodes[-1] - 0.6), up=lambda y: y / most)
    parts = panel.axes(nodes, [most * step / 4 for step in range(5)])
    for at, (name, told) in enumerate(NAMES.items()):
        points = [(float(row["nodes"]), float(row["calls_per_s"])) for row in rows if row["program"] == name]
        parts += _line(panel, points, COLOURS[at], figures=True)
        parts += _legend(64, 66 + at * LINE_PX, COLOURS[at], told)
    return parts


def _simulated(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    chosen = [row for row in rows if row["daemons"] == 3]
    most = max(float(row["calls_per_s"]) for row in chosen)
    top = 10 ** (int(log10(most)) + 1)
    nodes = sorted({int(row["nodes"]) for row in chosen})
    panel = Panel(
        left=440, width=190, across=lambda x: log10(x) / log10(nodes[-1]), up=lambda y: log10(max(y, 1)) / log10(top)
    )
    parts = panel.axes(nodes, [10**step for step in range(int(log10(top)) + 1)])
    ends: list[tuple[float, str]] = []
    for at, program in enumerate(sorted({float(row["program_ms"]) for row in chosen})):
        lines = [row for row in chosen if float(row["program_ms"]) == program]
        points = [(float(row["nodes"]), float(row["calls_per_s"])) for row in lines]
        parts += _line(panel, points, COLOURS[at], figures=False)
        told = f"{program / 1000:g} s" if program >= 1000 else f"{program:g} ms"
        ends.append((panel.place(points[-1])[1], f"{told}: {points[-1][1]:.0f}/s"))
    below: float = TOP - LINE_PX
    for y, told in sorted(ends):  # one below the other, though their ends meet
        below = max(y + 4, below + LINE_PX)
        parts.append(text(panel.left + panel.width + 8, below, told, size=11))
    return parts


def _line(panel: Panel, points: Sequence[Point], colour: str, *, figures: bool) -> list[str]:
    placed = [panel.place(point) for point in points]
    parts = [_stroke(placed, colour, width=2)]
    for (x, y), (_, value) in zip(placed, points, strict=True):
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        if figures:
            parts.append(text(x - 8, y - 8, f"{value:.0f}", size=11))
    return parts


def _legend(x: float, y: float, colour: str, told: str) -> list[str]:
    return [_stroke([(x, y - 4), (x + 16, y - 4)], colour, width=2), text(x + 22, y, told, size=11)]


def _stroke(points: Sequence[Point], colour: str, *, width: int = 1) -> str:
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width}"/>'


def _round_up(value: float) -> float:
    step: float = 10 ** int(log10(value))
    return next(step * factor for factor in (1, 2, 4, 6, 8, 10, 20) if step * factor >= value)
