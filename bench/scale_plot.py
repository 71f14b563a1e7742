"""Two pictures in one: calls a second over the nodes that were started here, and over those of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

from bench.plot import OURS, PAPER, PEER, WIDTH, text

HEIGHT, TOP, FOOT = 300, 70, 40


def draw_scale(record: Mapping[str, Any]) -> str:
    parts = [text(20, 28, "Calls a second in a cluster", size=16)]
    parts.append(text(20, 48, "measured: nodes of this machine, two slots each", size=11))
    parts.append(text(400, 48, "simulated: 16 slots a node, programs of 100 ms", size=11))
    for name, colour in (("waiting", OURS), ("busy", PEER)):
        rows = [row for row in record["throughput"] if row["program"] == name]
        points = [(row["nodes"], row["calls_per_s"]) for row in rows]
        parts += _line(
            points, left=50, width=250, colour=colour, label=name, most=_most(record["throughput"]), logs=False
        )
    for daemons, colour in ((1, PEER), (3, OURS), (10, "#7a5c9e")):
        rows = [row for row in record["model"] if row["daemons"] == daemons]
        points = [(row["nodes"], row["calls_per_s"]) for row in rows]
        label = f"{daemons} daemons" if daemons > 1 else "1 daemon"
        parts += _line(points, left=430, width=210, colour=colour, label=label, most=_most(record["model"]), logs=True)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def _most(rows: Sequence[Mapping[str, Any]]) -> float:
    return max(float(row["calls_per_s"]) for row in rows)


def _line(
    points: Sequence[tuple[int, float]], *, left: int, width: int, colour: str, label: str, most: float, logs: bool
) -> list[str]:
    def place(nodes: int, rate: float) -> tuple[float, float]:
        share = log10(nodes) / log10(points[-1][0]) if logs else (nodes - 1) / (points[-1][0] - 1)
        tall = log10(max(1.0, rate)) / log10(most) if logs else rate / most
        return left + width * share, HEIGHT - FOOT - (HEIGHT - TOP - FOOT) * tall

    placed = [place(*point) for point in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    parts = [f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>']
    parts.append(text(placed[-1][0] + 6, placed[-1][1] + 4, f"{label} {points[-1][1]:.0f}/s", size=11))
    parts += [text(x - 4, HEIGHT - 18, str(nodes), size=11) for (nodes, _), (x, _) in zip(points, placed, strict=True)]
    return parts
