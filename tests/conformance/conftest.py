from __future__ import annotations

from collections.abc import Iterator

import pytest

from palyra.model.call import Tier
from tests.conformance.arena import OWNERS, Arena, arena, require


@pytest.fixture(
    params=[*((uid, False) for uid in OWNERS), (OWNERS[-1], True)],
    ids=lambda p: f"owner{p[0]}-{'warm' if p[1] else 'cold'}",
)
def tier_c(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Every attack on tier C, against sandboxes made for it and against one that was started ahead."""
    require(Tier.C)
    owner, warm = request.param
    with arena(Tier.C, owner, warm=warm) as place:
        yield place


@pytest.fixture(params=OWNERS, ids=lambda uid: f"owner{uid}")
def tier_b(request: pytest.FixtureRequest) -> Iterator[Arena]:
    require(Tier.B)
    with arena(Tier.B, request.param) as place:
        yield place


@pytest.fixture(
    params=[(tier, uid) for tier in (Tier.B, Tier.C) for uid in OWNERS], ids=lambda p: f"{p[0]}-owner{p[1]}"
)
def any_tier(request: pytest.FixtureRequest) -> Iterator[Arena]:
    tier, owner = request.param
    require(tier)
    with arena(tier, owner) as place:
        yield place
