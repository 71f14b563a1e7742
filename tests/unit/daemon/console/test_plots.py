"""Plots: sound SVG without styles or scripts, described in words, whatever names and figures come."""

from __future__ import annotations

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from palyra.daemon.console.plots import (
    NARROW_WIDTH,
    Bar,
    Paper,
    Step,
    both,
    meter,
    nice_ceiling,
    rows_plot,
    stacked,
    timeline,
)
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


papers = st.sampled_from(Paper)


@given(st.lists(st.tuples(texts, st.integers(0, 10**9), st.integers(0, 10**9)), max_size=12), papers)
def test_stacked_bars_are_sound_and_stay_inside(items, paper):
    bars = [Bar(label=label, parts=(one, two), says=label) for label, one, two in items]
    tree = read(stacked(bars, names=NAMES, title="t", plot_id="p", paper=paper))
    for rect in tree.iter("rect"):
        assert float(rect.get("y", "0")) >= -1.5
        assert float(rect.get("height", "0")) > 0


@given(st.lists(st.tuples(texts, st.integers(0, 10**12)), max_size=12), papers)
def test_rows_are_sound(items, paper):
    tree = read(rows_plot(items, title=HOSTILE, plot_id="p", part="refused", paper=paper))
    assert len(list(tree.iter("rect"))) == len(items)


@given(st.lists(st.tuples(texts, st.integers(0, 10**9), st.integers(0, 10**9)), max_size=8), papers)
def test_timelines_are_sound(items, paper):
    steps = [Step(name=name, begin_us=begin, end_us=begin + wide, part="run") for name, begin, wide in items]
    read(timeline(steps, title="t", plot_id="p", paper=paper))


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


def test_a_telephones_drawings_have_its_width_their_own_names_and_every_bar_within():
    narrow = Paper.NARROW
    rows = [("palyra.process.run", 900_000), ("x" * 60, 1)]
    steps = [Step(name="a" * 40, begin_us=0, end_us=5, part="run"), Step(name="b", begin_us=5, end_us=9, part="run")]
    for tree in (
        read(stacked([Bar(label="04:00", parts=(3, 1))] * 24, names=NAMES, title="t", plot_id="p", paper=narrow)),
        read(rows_plot(rows, title="t", plot_id="p", part="refused", paper=narrow)),
        read(timeline(steps, title="t", plot_id="p", paper=narrow)),
    ):
        assert str(tree.get("viewBox")).split()[2] == str(NARROW_WIDTH)
        assert tree.get("aria-labelledby") == "p-narrow-t p-narrow-d"
        ends = [float(rect.get("x", "0")) + float(rect.get("width", "0")) for rect in tree.iter("rect")]
        assert max(ends) <= NARROW_WIDTH - 4
        names = [text for text in tree.iter("text") if text.get("class") == "label"]
        assert all(text.get("x") == "0" for text in names)


def test_both_drawings_are_on_the_page_and_share_no_id():
    page = str(both(lambda paper: rows_plot([("a", 1)], title="t", plot_id="p", part="refused", paper=paper)))
    assert page.count('<div class="wide">') == page.count('<div class="narrow">') == 1
    ids = [piece.split('"')[0] for piece in page.split(' id="')[1:]]
    assert len(ids) == len(set(ids)) == 4
