"""Plots as SVG text, drawn on the server: they need no script, scale with the page and take its colours.

Pure. Rules: every plot has a title and a description for who does not see it, and its figures also stand in a table
beside it (the templates'); nothing is told by colour alone: parts differ in pattern and are named in a legend. No
style attributes, which the page's Content-Security-Policy forbids: colours are classes of console.css. A telephone has
a drawing of its own, of which console.css shows one: shrunk, the other's letters could not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from markupsafe import Markup, escape

from palyra.model.visible import visible_line
from palyra.values import dataclass

HEIGHT = 190
LEFT, RIGHT, TOP, BOTTOM = 36, 4, 8, 22
MAX_LABEL_CHARS = 28


class Paper(StrEnum):
    WIDE = "wide"
    NARROW = "narrow"
    """As wide as a telephone's page, with names above their bars."""


NARROW_WIDTH = 340
_ABOVE = 16
"""For a name above its bar."""


def both(draw: Callable[[Paper], Markup]) -> Markup:
    """Whichever fits; the other is not there for who listens either."""
    drawings = (f'<div class="{paper}">{draw(paper)}</div>' for paper in Paper)
    return Markup("".join(drawings))  # noqa: S704  # names of ours around plots of ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    label: str
    """Under the axis; empty for none."""
    parts: tuple[int, ...]
    says: str = ""
    """For who points at it."""


def stacked(
    bars: Sequence[Bar], *, names: Sequence[str], title: str, plot_id: str, paper: Paper = Paper.WIDE
) -> Markup:
    """Columns of stacked parts, in the order of `names`; a part's class is `part-NAME`."""
    most = nice_ceiling(max((sum(bar.parts) for bar in bars), default=0))
    full_width = 1040 if paper is Paper.WIDE else NARROW_WIDTH
    inner_width, inner_height = full_width - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    step = inner_width / max(1, len(bars))
    out = [_open(title, _describe(bars, names), plot_id, paper, full_width, HEIGHT)]
    for tick in sorted({0, most // 2, most}):
        y = TOP + inner_height * (1 - tick / most)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{full_width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>')
    for place, bar in enumerate(bars):
        x, width = LEFT + place * step + step * 0.14, step * 0.72
        out.append(f"<g><title>{_text(bar.says or bar.label)}</title>")
        out += _column(bar, names, x=x, width=width, scale=inner_height / most)
        if bar.label:
            middle = x + width / 2
            label = _text(bar.label)
            out.append(f'<text class="tick" x="{middle:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{label}</text>')
        out.append("</g>")
    return Markup("".join(out) + "</svg>")  # noqa: S704  # every piece above is a number or escaped


def _column(bar: Bar, names: Sequence[str], *, x: float, width: float, scale: float) -> list[str]:
    out, y = [], float(HEIGHT - BOTTOM)
    for name, value in zip(names, bar.parts, strict=True):
        if value <= 0:
            continue
        tall = max(1.0, value * scale)
        y -= tall
        cls = _text(name)
        out.append(f'<rect class="part part-{cls}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{tall:.1f}"/>')
    return out


def rows_plot(
    items: Sequence[tuple[str, int]], *, title: str, plot_id: str, part: str, paper: Paper = Paper.WIDE
) -> Markup:
    """One horizontal bar an item, with its figure."""
    line, label_width, width, above = (24, 210, 480, 0) if paper is Paper.WIDE else (38, 0, NARROW_WIDTH, _ABOVE)
    height = max(1, len(items)) * line
    most = max((count for _, count in items), default=1) or 1
    described = "; ".join(f"{_clip(name)}: {count}" for name, count in items) or "nothing"
    out = [_open(title, described, plot_id, paper, width, height)]
    for place, (name, count) in enumerate(items):
        y, wide = place * line + above, max(2.0, (width - label_width - 52) * count / most)
        cls = _text(part)
        out.append(f"<g><title>{_text(name)}: {count}</title>")
        out.append(_name(name, y=y + 16, label_width=label_width - 8))
        out.append(f'<rect class="part part-{cls}" x="{label_width}" y="{y + 5}" width="{wide:.1f}" height="14"/>')
        out.append(f'<text class="figure" x="{label_width + wide + 6:.1f}" y="{y + 16}">{count}</text></g>')
    return Markup("".join(out) + "</svg>")  # noqa: S704  # every piece above is a number or escaped


def meter(used: int, most: int | None, *, label: str) -> Markup:
    """How much of a limit is used; without one an empty track."""
    share = 0.0 if not most else min(1.0, max(0.0, used / most))
    tone = "bad" if share >= 0.9 else "warn" if share >= 0.7 else "good"
    said = f"{label}: {used} of {'no limit' if most is None else most}"
    return Markup(  # noqa: S704  # numbers, and text that is escaped
        f'<svg class="meter" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{_text(said)}">'
        f'<rect class="track" width="100" height="8"/>'
        f'<rect class="fill {tone}" width="{share * 100:.1f}" height="8"/></svg>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing on a time line, in microseconds from its beginning."""

    name: str
    begin_us: int
    end_us: int
    part: str


def timeline(steps: Sequence[Step], *, title: str, plot_id: str, paper: Paper = Paper.WIDE) -> Markup:
    """Steps under each other, each where it was in time."""
    line, label_width, width, above = (26, 160, 640, 0) if paper is Paper.WIDE else (40, 0, NARROW_WIDTH, _ABOVE)
    height = max(1, len(steps)) * line
    whole = max((step.end_us for step in steps), default=1) or 1
    inner = width - label_width - 90
    described = "; ".join(f"{_clip(s.name)} {s.end_us - s.begin_us} µs" for s in steps) or "nothing"
    out = [_open(title, described, plot_id, paper, width, height)]
    for place, step in enumerate(steps):
        x, y = label_width + inner * step.begin_us / whole, place * line + above
        wide = max(2.0, inner * (step.end_us - step.begin_us) / whole)
        took = f"{(step.end_us - step.begin_us) / 1000:.1f} ms"
        out.append(_name(step.name, y=y + 17, label_width=label_width - 10))
        out.append(
            f'<rect class="part part-{_text(step.part)}" x="{x:.1f}" y="{y + 5}" width="{wide:.1f}" height="16"/>'
        )
        out.append(f'<text class="figure" x="{x + wide + 6:.1f}" y="{y + 17}">{took}</text>')
    return Markup("".join(out) + "</svg>")  # noqa: S704  # every piece above is a number or escaped


def nice_ceiling(value: int) -> int:
    """A round number at or above it, at least 4."""
    if value <= 4:
        return 4
    size = int("1" + "0" * (len(str(value)) - 1))
    return next(step * size // 10 for step in (10, 20, 40, 50, 60, 80, 100) if step * size // 10 >= value)


def _name(text: str, *, y: int, label_width: int) -> str:
    """Before its bar, or above it where there is no room."""
    label = _text(_clip(text))
    if label_width < 0:
        return f'<text class="label" x="0" y="{y - _ABOVE + 1}">{label}</text>'
    return f'<text class="label" x="{label_width}" y="{y}" text-anchor="end">{label}</text>'


def _open(title: str, described: str, plot_id: str, paper: Paper, width: int, height: int) -> str:
    name = _text(plot_id) + ("" if paper is Paper.WIDE else f"-{paper}")
    return (
        f'<svg class="plot" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{_text(title)}</title><desc id="{name}-d">{_text(described)}</desc>'
    )


def _describe(bars: Sequence[Bar], names: Sequence[str]) -> str:
    totals = [sum(bar.parts[place] for bar in bars) for place in range(len(names))]
    return ", ".join(f"{total} {name}" for name, total in zip(names, totals, strict=True))


def _clip(text: str) -> str:
    return text if len(text) <= MAX_LABEL_CHARS else f"{text[: MAX_LABEL_CHARS - 1]}…"


def _text(text: str) -> str:
    return str(escape(visible_line(text)))
