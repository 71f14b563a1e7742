"""The harness: medians and ratios are right, missing peers stay missing, a wrong answer stops the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from xml.etree import ElementTree

import pytest

from bench.__main__ import describe
from bench.harness import WARM_UP_ROUNDS, Aim, Contender, Ratio, Result, Row, Timing, collect, measure, quantile, timed
from bench.plot import draw

MACHINE: dict[str, str | int | float] = {
    "processor": "a processor", "cores": 2, "kernel": "6.1", "python": "CPython 3.11", "bubblewrap": "0.8.0",
    "started_by": "root", "state_file_system": "ext4", "load_1m": 0.5,
}  # fmt: skip


def takes(*nanoseconds: int) -> Callable[[], int]:
    """A contender's work that reports these times in turn, its warm-up rounds aside."""

    def times() -> Iterator[int]:
        yield from [10**9] * WARM_UP_ROUNDS
        yield from nanoseconds

    return times().__next__


def example() -> Row:
    return Row(
        name="example",
        title="An example",
        note="Peers <do> less work.",
        contenders=(
            Contender(name="ours", run=takes(200, 300, 400)),
            Contender(name="peer", run=takes(100, 100, 100)),
            Contender(name="absent", run=None, why_missing="not on this machine"),
        ),
        aims=(Aim(peer="peer", at_most=2.5), Aim(peer="absent", at_most=1.0)),
    )


def test_medians_ratios_and_missing_peers_are_reported() -> None:
    row = example()
    assert measure(row, 3) == Result(
        row=row,
        rounds=3,
        timings=(
            Timing(name="ours", p50_ns=300, p95_ns=390, least_ns=200),
            Timing(name="peer", p50_ns=100, p95_ns=100, least_ns=100),
        ),
        ratios=(Ratio(peer="peer", of_medians=3.0, p25=2.5, p75=3.5, aim=2.5),),
        missing=(("absent", "not on this machine"),),
    )


def test_a_missed_aim_is_said() -> None:
    lines = list(describe(measure(example(), 3), MACHINE))
    assert "  ours is 3.00 × peer (middle half 2.50–3.50); aim ≤ 2.5: MISSED" in lines
    assert "  absent             missing: not on this machine" in lines


def test_a_busy_machine_and_a_state_in_memory_are_said() -> None:
    lines = list(describe(measure(example(), 3), MACHINE | {"load_1m": 3.0, "state_file_system": "tmpfs"}))
    assert lines[-2:] == [
        "  the machine was busy (load 3.0): other work ran between these rounds",
        "  the state lies in memory: durable writes were free, read these ratios with care",
    ]


def test_no_ratio_is_given_when_ours_is_missing() -> None:
    row = Row(
        name="example",
        title="An example",
        note="",
        contenders=(Contender(name="ours", run=None, why_missing="broken"), Contender(name="peer", run=takes(1, 2))),
    )
    assert measure(row, 2).ratios == ()


def test_rounds_are_interleaved() -> None:
    seen: list[str] = []

    def note(name: str) -> Callable[[], int]:
        def run() -> int:
            seen.append(name)
            return 1

        return run

    collect([("a", note("a")), ("b", note("b")), ("c", note("c"))], 4)
    rounds = [sorted(seen[start : start + 3]) for start in range(0, len(seen), 3)]
    assert rounds == [["a", "b", "c"]] * (WARM_UP_ROUNDS + 4)


def test_a_wrong_answer_stops_the_run() -> None:
    def check(answer: int) -> None:
        if answer:
            raise RuntimeError("it failed")

    answers = count()
    run = timed(lambda: next(answers), check)
    assert run() >= 0
    with pytest.raises(RuntimeError, match="it failed"):
        run()


@pytest.mark.parametrize(("q", "value"), [(0, 1), (0.5, 2.5), (0.95, 3.85), (1, 4)])
def test_quantiles_lie_between_the_nearest_samples(q: float, value: float) -> None:
    assert quantile([4, 1, 3, 2], q) == pytest.approx(value)


def test_the_picture_is_well_formed_and_names_everyone() -> None:
    picture = ElementTree.fromstring(draw(measure(example(), 3)))
    words = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"ours", "peer", "absent", "missing: not on this machine", "Peers <do> less work."} <= set(words)
