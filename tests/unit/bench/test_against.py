"""The comparison of two trees: the gate looks at the lower quartile, and a side that does not run fails it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import against


def play_sides(monkeypatch: pytest.MonkeyPatch, ours: Sequence[int], theirs: Sequence[int]) -> None:
    """Let the two trees report these nanoseconds, after their warm-up rounds."""

    @contextmanager
    def open_side(row: str, tree: Path) -> Iterator[Callable[[], int]]:
        yield iter([1] * 5 + list(ours if tree == against.PROJECT else theirs)).__next__

    monkeypatch.setattr(against, "open_side", open_side)


@pytest.mark.parametrize(
    ("ours", "holds"),
    [((100, 100, 100, 100), True), ((104, 104, 200, 200), True), ((106, 106, 106, 200), False)],
)
def test_a_gate_is_missed_when_the_lower_quartile_is_above_it(
    monkeypatch: pytest.MonkeyPatch, ours: Sequence[int], holds: bool
) -> None:
    play_sides(monkeypatch, ours, (100, 100, 100, 100))
    assert against.report_row("tier_b", Path("base"), rounds=4, gate=1.05) is holds


def test_a_side_that_does_not_run_fails_its_row(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def open_side(row: str, tree: Path) -> Iterator[Callable[[], int]]:
        def fail() -> int:
            raise RuntimeError("no bubblewrap")

        yield fail

    monkeypatch.setattr(against, "open_side", open_side)
    assert against.report_row("tier_c", Path("base"), rounds=4, gate=1.05) is False
    assert "not measured: no bubblewrap" in capsys.readouterr().out


def test_an_unknown_commit_is_named() -> None:
    with pytest.raises(SystemExit, match="there is no commit 'no-such-commit'"):
        against.prepare_tree("no-such-commit")
