"""What one warm call, one append and one granted connection cost, counted by area; the numbers may only fall.

`make ratchet` records numbers that fell. It refuses to record a total that rose.
"""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.ratchet.counts import STORIES, TRACED, combine, measure, read_record, rises

CPYTHON_OF_THE_RECORD = (3, 11)
"""Other versions inline other functions; the record is of Debian 12's."""


MEASUREMENTS = 3
"""Counted is the least of these: on a busy machine a measurement may be too high, never too low."""


@pytest.mark.skipif(sys.version_info[:2] != CPYTHON_OF_THE_RECORD, reason="the record is of CPython 3.11")
@pytest.mark.parametrize("story", STORIES)
def test_a_story_costs_no_more_than_it_did(story: str) -> None:
    if story in TRACED and shutil.which("strace") is None:
        pytest.skip("strace is not installed: `make test` installs it as root")
    record, measured = read_record()[story], measure(story)
    for _ in range(MEASUREMENTS - 1):
        if not list(rises({story: record}, {story: measured})):
            break
        measured = combine(measured, measure(story), min)
    assert list(rises({story: record}, {story: measured})) == []


def test_one_call_more_is_a_rise() -> None:
    record = {"append": {"calls": {"state": 37, "journal": 10}}}
    measured = {"append": {"calls": {"state": 38, "journal": 9}}}
    assert list(rises(record, measured)) == ["append: calls of state rose from 37 to 38"]


def test_a_call_in_a_new_area_is_a_rise() -> None:
    assert list(rises({"append": {"calls": {}}}, {"append": {"calls": {"log": 1}}})) == [
        "append: calls of log rose from 0 to 1"
    ]
