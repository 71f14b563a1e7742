from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from palyra.model.call import Tier
from tests.conformance.arena import OWNERS, Arena, arena, require

COLD_AND_WARM = [(uid, warm) for uid in OWNERS for warm in (False, True)]


def named(owner: int, *, warm: bool) -> str:
    return f"owner{owner}-{'warm' if warm else 'cold'}"


@pytest.fixture(autouse=True)
def an_embedders_process() -> None:
    """A command that another test ran in this process made it the heir of orphans, which these executors know nothing
    of (test_usage has processes of its own for that)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):
        libc.prctl(36, 0, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


@pytest.fixture(params=COLD_AND_WARM, ids=lambda p: named(p[0], warm=p[1]))
def tier_c(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Every attack on tier C, against sandboxes made for it and against one that was started ahead."""
    require(Tier.C)
    owner, warm = request.param
    with arena(Tier.C, owner, warm=warm) as place:
        yield place


@pytest.fixture(params=COLD_AND_WARM, ids=lambda p: named(p[0], warm=p[1]))
def tier_b(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """The same for tier B: its held shell can be started ahead too."""
    require(Tier.B)
    owner, warm = request.param
    with arena(Tier.B, owner, warm=warm) as place:
        yield place


@pytest.fixture(
    params=[(tier, *which) for tier in (Tier.B, Tier.C) for which in COLD_AND_WARM],
    ids=lambda p: f"{p[0]}-{named(p[1], warm=p[2])}",
)
def any_tier(request: pytest.FixtureRequest) -> Iterator[Arena]:
    tier, owner, warm = request.param
    require(tier)
    with arena(tier, owner, warm=warm) as place:
        yield place


# Cold and warm are the arena's own ways to run an attack. A test that makes its own executor has one way, so it is run
# once an owner.


@pytest.fixture(params=OWNERS, ids=lambda uid: f"owner{uid}")
def place_b(request: pytest.FixtureRequest) -> Iterator[Arena]:
    require(Tier.B)
    with arena(Tier.B, request.param) as place:
        yield place


@pytest.fixture(params=OWNERS, ids=lambda uid: f"owner{uid}")
def place_c(request: pytest.FixtureRequest) -> Iterator[Arena]:
    require(Tier.C)
    with arena(Tier.C, request.param) as place:
        yield place


@pytest.fixture(
    params=[(tier, uid) for tier in (Tier.B, Tier.C) for uid in OWNERS], ids=lambda p: f"{p[0]}-owner{p[1]}"
)
def place(request: pytest.FixtureRequest) -> Iterator[Arena]:
    tier, owner = request.param
    require(tier)
    with arena(tier, owner) as place:
        yield place


@pytest.fixture(params=[Tier.B, Tier.C], ids=str)
def each_tier(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Once a tier: for what the kernel does by a limit. That it is set whoever starts the program: test_shells."""
    require(request.param)
    with arena(request.param, OWNERS[-1]) as place:
        yield place
