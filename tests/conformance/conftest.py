from __future__ import annotations

from collections.abc import Iterator

import pytest

from palyra.model.call import Tier
from tests.conformance.arena import OWNERS, Arena, arena, require


@pytest.fixture(params=OWNERS, ids=lambda uid: f"owner{uid}")
def tier_c(request: pytest.FixtureRequest) -> Iterator[Arena]:
    require(Tier.C)
    with arena(Tier.C, request.param) as place:
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
