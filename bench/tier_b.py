"""Tier B, a call end to end through the Python API, beside the same program under bare asyncio and bare Popen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench import peers
from bench.harness import Aim, Row
from bench.installation import Ground, open_ours


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        ours = stack.enter_context(open_ours(ground, "palyra tier B", tier="b", egress="none"))
        yield Row(
            name="tier_b",
            title="Tier B: one call of `true`, end to end",
            note="Ours decides, budgets, writes two durable journal entries, limits, captures and signs. "
            "The peers run without policy and journal, so the ratio is against less work.",
            contenders=(ours, stack.enter_context(peers.bare_asyncio()), peers.bare_popen()),
            aims=(Aim(peer="bare asyncio", at_most=3.0),),
        )
