"""Plots: sound SVG without styles or scripts, described in words, whatever names and figures come."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from palyra.daemon.console.plots import Bar, Step, meter, nice_ceiling, rows_plot, stacked, timeline
from tests.consoles import HOSTILE

NAMES = ("completed", "refused")
texts = st.text(max_size=40)


def read(svg) -> ElementTree.Element:
    """Strict XML: whatever stands in it, it is one tree of known elements."""
    tree = ElementTree.fromstring(str(svg))
    for element in tree.iter():
        assert element.tag in ("svg", "title", "desc", "g", "rect", "line", "text"), element.tag
        assert not {"style", "onload", "href"} & set(element.keys())
    return tree


@given(st.lists(st.tuples(texts, st.integers(0, 10**9), st.integers(0, 10**9)), max_size=12))
def test_stacked_bars_are_sound_and_stay_inside(items):
    bars = [Bar(label=label, parts=(one, two), says=label) for label, one, two in items]
    tree = read(stacked(bars, names=NAMES, title="t", plot_id="p"))
    for rect in tree.iter("rect"):
        assert float(rect.get("y", "0")) >= -1.5
        assert float(rect.get("height", "0")) > 0


@given(st.lists(st.tuples(texts, st.integers(0, 10**12)), max_size=12))
def test_rows_are_sound(items):
    tree = read(rows_plot(items, title=HOSTILE, plot_id="p", part="refused"))
    assert len(list(tree.iter("rect"))) == len(items)


@given(st.lists(st.tuples(texts, st.integers(0, 10**9), st.integers(0, 10**9)), max_size=8))
def test_timelines_are_sound(items):
    steps = [Step(name=name, begin_us=begin, end_us=begin + wide, part="run") for name, begin, wide in items]
    read(timeline(steps, title="t", plot_id="p"))


@given(st.integers(-10, 10**12), st.none() | st.integers(0, 10**9), texts)
def test_meters_are_never_fuller_than_full(used, most, label):
    tree = read(meter(used, most, label=label))
    assert all(0 <= float(rect.get("width", "0")) <= 100 for rect in tree.iter("rect"))


@given(st.integers(0, 10**12))
def test_an_axis_ends_at_a_round_number_above(value):
    top = nice_ceiling(value)
    assert value <= top <= max(4, 2 * value)
    assert str(top).rstrip("0") in ("1", "2", "4", "5", "6", "8")


def test_a_plot_says_in_words_what_it_shows():
    bars = [Bar(label="04:00", parts=(3, 1)), Bar(label="", parts=(2, 0))]
    tree = read(stacked(bars, names=NAMES, title="Calls", plot_id="hours"))
    assert [tree.findtext("title"), tree.findtext("desc")] == ["Calls", "5 completed, 1 refused"]
    assert tree.get("aria-labelledby") == "hours-t hours-d"
