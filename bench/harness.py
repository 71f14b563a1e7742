"""Measures contenders side by side and turns the times into medians and ratios.

Rules: the contenders of a row run in one process run, interleaved round by round in an order that is shuffled with a
fixed seed, so that a noisy moment hits all of them and none always follows the same neighbour. A contender checks
that its work was done, outside of the clock. One that cannot run here is reported as missing, with the reason; no
number is invented for it.

Not here: what is measured (one file a row), the machine (machine.py), the drawing (plot.py).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
WARM_UP_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Something to time. `run` does the work once and returns the nanoseconds it took."""

    name: str
    run: Callable[[], int] | None
    why_missing: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Ours may take at most `at_most` times what `peer` takes."""

    peer: str
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One published comparison. The first contender is ours."""

    name: str
    title: str
    note: str
    contenders: tuple[Contender, ...]
    aims: tuple[Aim, ...] = ()
    most_rounds: int | None = None
    """Of a row whose one round takes seconds; its warm-up is one round then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one contender took, in nanoseconds."""

    name: str
    p50_ns: int
    p95_ns: int
    least_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Ours against one peer: the ratio of the medians, and the middle half of the rounds' own ratios."""

    peer: str
    of_medians: float
    p25: float
    p75: float
    aim: float | None

    @property
    def holds(self) -> bool | None:
        return None if self.aim is None else self.of_medians <= self.aim


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    row: Row
    rounds: int
    timings: tuple[Timing, ...]
    ratios: tuple[Ratio, ...]
    missing: tuple[tuple[str, str], ...] = field(default=())


def timed(work: Callable[[], T], check: Callable[[T], None]) -> Callable[[], int]:
    """`work` under the clock, then `check` of what it returned, outside of it; `check` raises on a wrong answer."""

    def run() -> int:
        start = time.perf_counter_ns()
        answer = work()
        took = time.perf_counter_ns() - start
        check(answer)
        return took

    return run


def measure(row: Row, rounds: int) -> Result:
    present = [(c.name, c.run) for c in row.contenders if c.run is not None]
    if row.most_rounds is not None:
        rounds = min(rounds, row.most_rounds)
    samples = collect(present, rounds, warm_up=WARM_UP_ROUNDS if row.most_rounds is None else 1)
    return Result(
        row=row,
        rounds=rounds,
        timings=tuple(summarise(name, samples[name]) for name, _ in present),
        ratios=compare(row, samples),
        missing=tuple((c.name, c.why_missing) for c in row.contenders if c.run is None),
    )


def collect(
    present: Sequence[tuple[str, Callable[[], int]]], rounds: int, *, warm_up: int = WARM_UP_ROUNDS
) -> dict[str, list[int]]:
    """`rounds` times of each, interleaved. The first rounds warm caches and are thrown away."""
    order = list(present)
    shuffle = random.Random(0).shuffle
    samples: dict[str, list[int]] = {name: [] for name, _ in present}
    for number in range(warm_up + rounds):
        shuffle(order)
        for name, run in order:
            took = run()
            if number >= warm_up:
                samples[name].append(took)
    return samples


def summarise(name: str, samples: Sequence[int]) -> Timing:
    return Timing(
        name=name,
        p50_ns=round(statistics.median(samples)),
        p95_ns=round(quantile(samples, 0.95)),
        least_ns=min(samples),
    )


def compare(row: Row, samples: dict[str, list[int]]) -> tuple[Ratio, ...]:
    """Ours against each peer that ran. Empty when ours is the one that is missing."""
    ours, *peers = row.contenders
    if ours.run is None:
        return ()
    aims = {aim.peer: aim.at_most for aim in row.aims}
    return tuple(
        make_ratio(samples[ours.name], samples[peer.name], peer=peer.name, aim=aims.get(peer.name))
        for peer in peers
        if peer.run is not None
    )


def make_ratio(ours: Sequence[int], theirs: Sequence[int], *, peer: str, aim: float | None) -> Ratio:
    each = [a / b for a, b in zip(ours, theirs, strict=True)]
    return Ratio(
        peer=peer,
        of_medians=statistics.median(ours) / statistics.median(theirs),
        p25=quantile(each, 0.25),
        p75=quantile(each, 0.75),
        aim=aim,
    )


def quantile(samples: Sequence[float], q: float) -> float:
    """By linear interpolation between the two nearest samples."""
    ordered = sorted(samples)
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
