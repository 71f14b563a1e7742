"""Whoever is told that a journal does not verify is told what to do, whatever was found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palyra.cli.journal_advice import KEEP, advice_on

SOURCES = Path(__file__).parents[3] / "src" / "palyra"
CODES = sorted(
    {
        code
        for folder in ("journal", "state")
        for path in (SOURCES / folder).glob("*.py")
        for code in re.findall(r'(?:[fF]ind|Finding)\(\s*"([A-Z]+)"', path.read_text(encoding="utf-8"))
    }
    - {"MORE"}  # stands behind others
)


def test_nothing_found_is_nothing_to_do() -> None:
    assert advice_on([]) is None


@pytest.mark.parametrize("code", CODES)
def test_every_finding_has_its_advice(code: str) -> None:
    sentence = advice_on([code, "MORE"])
    assert sentence
    assert sentence.endswith("."), sentence


def test_the_codes_are_those_of_the_audit() -> None:
    assert {"EDITED", "TREE", "TRUNCATED", "KEPT", "DANGLING", "UNREADABLE"} <= set(CODES)


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (["KEPT", "EDITED"], "the first entry that is named"),
        (["EDITED", "TRUNCATED"], "restore the newest backup"),
        (["DANGLING", "KEPT"], "rows beside them"),
        (["DANGLING"], "as its owner"),
    ],
)
def test_the_gravest_finding_decides(codes: list[str], words: str) -> None:
    assert words in (advice_on(codes) or "")


def test_a_copy_is_kept_before_anything_is_restored() -> None:
    for code in ("EDITED", "TRUNCATED", "KEPT", "UNREADABLE"):
        assert (advice_on([code]) or "").startswith(KEEP)
