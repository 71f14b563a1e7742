"""The picture of a terminal in the quickstart: `palyra demo` is run, and what it says is drawn.

    python tools/picture.py [--output docs/pictures/demo.svg]

Nothing is touched up: what differs from run to run (the home's name, times, ports) is put in a fixed form, so that the
same demo makes the same picture. No fonts or scripts from elsewhere.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

PROJECT = Path(__file__).parents[1]
COLUMNS, LINE, CHAR, MARGIN = 108, 19, 8.4, 20
STEADY = (
    (re.compile(r"/\S*palyra-demo-\w+"), "/tmp/palyra-demo"),
    (re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d"), "Jan  1 12:00"),
    (re.compile(r"127\.0\.0\.1([\"']), \d+\)"), r"127.0.0.1\1, 8080)"),
    (re.compile(r"\b01[0-9A-Z]{24}\b"), "01J00000000000000000000000"),
    (re.compile(r"line \d+, in"), "line 1, in"),
    (re.compile(r"/usr/lib/python3\.\d+/"), "/usr/lib/python3/"),
)
COLOURS = (
    (re.compile(r"^• "), "#7dcfff"),
    (re.compile(r"^\s+→ refused|^\s+→ timeout"), "#f7768e"),
    (re.compile(r"^\s+→ "), "#9ece6a"),
    (re.compile(r"^\s+hint:"), "#e0af68"),
    (re.compile(r"^\s+\$ "), "#ffffff"),
    (re.compile(r"^\s+\| "), "#a9b1d6"),
)


def record() -> list[str]:
    argv = [sys.executable, "-m", "palyra", "demo"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=PROJECT)
    text = done.stdout
    for pattern, steady in STEADY:
        text = pattern.sub(steady, text)
    lines = ["$ palyra demo", *text.strip("\n").splitlines()]
    return [piece for line in lines for piece in _wrapped(line)]


def _wrapped(line: str) -> list[str]:
    if len(line) <= COLUMNS:
        return [line]
    at = line.rfind(" ", 0, COLUMNS)
    at = at if at > COLUMNS // 2 else COLUMNS
    return [line[:at], *_wrapped("      " + line[at:].strip())]


def draw(lines: list[str]) -> str:
    width, height = COLUMNS * CHAR + 2 * MARGIN, len(lines) * LINE + 3 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
        "<title>palyra demo</title>",
        f'<rect width="{width:.0f}" height="{height}" rx="8" fill="#1a1b26"/>',
        *(f'<circle cx="{MARGIN + at * 18}" cy="18" r="5" fill="{fill}"/>' for at, fill in
          enumerate(("#f7768e", "#e0af68", "#9ece6a"))),
        '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">',
    ]  # fmt: skip
    for number, line in enumerate(lines):
        colour = next((fill for pattern, fill in COLOURS if pattern.search(line)), "#c0caf5")
        y = 2 * MARGIN + number * LINE + 8
        if line.strip():
            parts.append(f'<text x="{MARGIN}" y="{y}" fill="{colour}">{escape(line)}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=PROJECT / "docs" / "pictures" / "demo.svg")
    given = parser.parse_args()
    given.output.write_text(draw(record()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
