"""The style sheet: text can be read in light and dark (WCAG 2, 4.5 to 1), and nothing is loaded from elsewhere."""

from __future__ import annotations

import re

import pytest

from palyra.daemon.console.rendering import asset

CSS = asset("console.css").decode()
DARK = CSS.index("@media (prefers-color-scheme: dark)")
TEXT_ON = {
    "ink": ("bg", "panel", "raised", "sunken"),
    "soft": ("bg", "panel", "sunken", "plain-soft"),
    "faint": ("bg", "panel", "raised", "sunken"),
    "accent": ("bg", "panel", "accent-soft"),
    "accent-ink": ("accent",),
    "good": ("panel", "good-soft"),
    "warn": ("panel", "warn-soft"),
    "bad": ("panel", "bad-soft"),
}


def tokens(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", text))


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(scheme):
    colours = tokens(CSS[:DARK]) | (tokens(CSS[DARK:]) if scheme == "dark" else {})
    found = {
        f"{text} on {ground}": round(contrast(colours[text], colours[ground]), 2)
        for text, grounds in TEXT_ON.items()
        for ground in grounds
    }
    assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}


def test_every_token_of_light_has_one_for_dark():
    assert tokens(CSS[:DARK]).keys() == tokens(CSS[DARK:]).keys()


def test_nothing_comes_from_elsewhere():
    for name in ("console.css", "console.js", "icon.svg"):
        text = asset(name).decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|@import|url\(|innerHTML|eval\(|document\.write", text), name
