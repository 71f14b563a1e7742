"""A small SVG writer: one horizontal bar a contender, the median as the bar and the 95th percentile as a whisker.

Pure: a result in, text out. No styling beyond what stays readable on a light and on a dark page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log2
from textwrap import shorten, wrap

from bench.growth import Idle, Step
from bench.harness import Result, Timing

WIDTH, LEFT, RIGHT = 760, 170, 210
TOP, BAR, STEP = 64, 22, 38
OURS, PEER, INK, PAPER = "#2f6f4f", "#8c9bab", "#1d2329", "#ffffff"


def draw(result: Result) -> str:
    """The whole picture of one row."""
    longest = max((t.p95_ns for t in result.timings), default=1)
    ratios = {ratio.peer: ratio.of_medians for ratio in result.ratios}
    parts = [text(20, 28, result.row.title, size=16)]
    parts.append(text(20, 48, f"median and p95 of {result.rounds} rounds", size=11))
    y = TOP
    for timing in result.timings:
        is_ours = timing.name == result.row.contenders[0].name
        parts += draw_bar(timing, y=y, longest_ns=longest, colour=OURS if is_ours else PEER)
        parts.append(text(WIDTH - RIGHT + 14, y + 15, label(timing, ratios.get(timing.name)), size=12))
        y += STEP
    for name, why in result.missing:
        parts += [text(20, y + 15, name), text(LEFT, y + 15, shorten(f"missing: {why}", 80), size=12)]
        y += STEP
    for line in wrap(result.row.note, 120):
        parts.append(text(20, y + 14, line, size=11))
        y += 16
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 16}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def draw_growth(steps: Sequence[Step], idle: Idle) -> str:
    """Latency over the number of calls at once, both on logarithmic axes: flat is good, a slope of one means full."""
    width, height, left, top = WIDTH, 300, 70, 60
    most = max(step.p95_ms for step in steps)
    least = min(step.p50_ms for step in steps)
    spread = log2(most / least) or 1.0

    def place(step: Step, value: float) -> tuple[float, float]:
        x = left + (width - left - 150) * log2(step.parallel) / max(1.0, log2(steps[-1].parallel))
        return x, top + (height - top - 50) * (1 - log2(value / least) / spread)

    parts = [text(20, 28, "Tier C calls at once, end to end", size=16), text(20, 48, "milliseconds a call", size=11)]
    for colour, label_, values in (
        (OURS, "median", [step.p50_ms for step in steps]),
        (PEER, "p95", [step.p95_ms for step in steps]),
    ):
        points = [place(step, value) for step, value in zip(steps, values, strict=True)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(text(points[-1][0] + 10, points[-1][1] + 4, f"{label_} {values[-1]:.0f} ms", size=12))
        parts.append(text(left - 60, points[0][1] + 4, f"{values[0]:.1f}", size=11))
    parts += [text(place(step, least)[0] - 6, height - 20, str(step.parallel), size=11) for step in steps]
    last = steps[-1]
    note = f"{last.calls_per_s:.0f} calls a second at {last.parallel}. An idle sandbox has {idle.pss_kib_each:.0f} KiB."
    parts.append(text(20, height + 6, note, size=11))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 20}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def draw_bar(timing: Timing, *, y: int, longest_ns: int, colour: str) -> list[str]:
    unit = (WIDTH - LEFT - RIGHT) / longest_ns
    end, whisker = LEFT + timing.p50_ns * unit, LEFT + timing.p95_ns * unit
    middle = y + BAR / 2
    return [
        text(20, y + 15, timing.name),
        f'<rect x="{LEFT}" y="{y}" width="{end - LEFT:.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
        f'<path d="M{end:.1f} {middle} H{whisker:.1f} M{whisker:.1f} {middle - 5} V{middle + 5}" stroke="{INK}"/>',
    ]


def label(timing: Timing, ratio: float | None) -> str:
    took = f"{timing.p50_ns / 1e6:.2f} ms"
    return took if ratio is None else f"{took}  (ours is {ratio:.2f} × this)"


def text(x: float, y: float, content: str, *, size: int = 13) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{INK}">{escape(content)}</text>'
