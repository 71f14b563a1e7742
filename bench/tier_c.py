"""Tier C, a call end to end through the Python API in a warm sandbox, beside a cold minimal bubblewrap, sandlock, a
bare child, and that child between two syncs: the least that a call can take whose intent is durable before it runs.
Beside them the same of our own parts: a launch in a warm sandbox between two appends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench import peers
from bench.harness import Aim, Row
from bench.installation import Ground, open_least, open_ours


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        ours = stack.enter_context(open_ours(ground, "palyra tier C", tier="c", egress="strict"))
        yield Row(
            name="tier_c",
            title="Tier C, warm: one call of `true`, end to end",
            note="Ours decides, budgets, writes two durable journal entries, isolates, captures and signs; its sandbox "
            "was started ahead. The peers run without policy and journal, so the ratio is against less work. Popen "
            "between two fsyncs of a page is what no call can undercut that is durable before it runs and after; a "
            "warm launch between two appends to the journal is what this one cannot, whatever it decides and keeps.",
            contenders=(
                ours,
                peers.cold_bwrap(),
                stack.enter_context(peers.sandlock()),
                peers.bare_popen(),
                stack.enter_context(peers.popen_between_syncs(ground.home)),
                stack.enter_context(open_least(ground, "warm launch, two appends")),
            ),
            aims=(
                Aim(peer="cold bwrap true", at_most=0.5),
                Aim(peer="sandlock", at_most=0.4),
                Aim(peer="bare Popen", at_most=2.8),
            ),
        )
