"""The index of promises notices what is lost: a test, a case, a half in which a promise must be shown."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests import promises
from tests.promises import INDEX, Promise, collect_cases, count_cases, find_unshown, make_index

ATTACK = Promise(
    id="tree-kill.setsid", says="A daemonized child ends with its call.", source="TREE_KILL", shown_in=("root", "plain")
)
ROOT_ONLY = Promise(id="tier-b.root", says="Root drops its rights.", source="threat model", shown_in=("root",))
ELSEWHERE = Promise(id="podman.pids", says="A container is bounded.", source="PROCESS_LIMIT", shown_in=("test-podman",))
ALL = (ATTACK, ROOT_ONLY, ELSEWHERE)


def test_a_promise_that_ran_in_each_half_it_needs_is_shown() -> None:
    assert list(find_unshown(ALL, {"root": {ATTACK.id, ROOT_ONLY.id}, "plain": {ATTACK.id}})) == []


def test_a_promise_that_did_not_run_in_one_half_is_named() -> None:
    shown = {"root": {ATTACK.id, ROOT_ONLY.id}, "plain": set[str]()}
    assert list(find_unshown(ALL, shown)) == [
        "tree-kill.setsid was not shown as a plain user: A daemonized child ends with its call."
    ]


def test_a_half_that_did_not_run_at_all_is_not_asked() -> None:
    assert list(find_unshown(ALL, {"plain": {ATTACK.id}})) == []


def test_a_lost_case_and_a_lost_test_change_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "read_promises", lambda: {ATTACK.id: ATTACK})
    cases = {ATTACK.id: Counter({"tests/a.py::test_one": 3, "tests/a.py::test_two": 1})}
    one_case_less = {ATTACK.id: Counter({"tests/a.py::test_one": 2, "tests/a.py::test_two": 1})}
    one_test_less = {ATTACK.id: Counter({"tests/a.py::test_one": 3})}
    pages = [make_index(one) for one in (cases, one_case_less, one_test_less)]
    assert len(set(pages)) == 3
    assert "- `tests/a.py::test_one` 3" in pages[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="the index counts the cases that root collects")
def test_the_index_names_each_promises_tests_and_cases(request: pytest.FixtureRequest) -> None:
    """A lost attack test, or a lost case of one, is seen in the review of this page: make docs."""
    is_whole = [os.path.relpath(arg) for arg in request.config.args] == ["tests"]
    cases = count_cases(request.session.items) if is_whole else collect_cases()
    assert INDEX.read_text(encoding="utf-8") == make_index(cases)
