"""Tier C, a call end to end through the Python API in a warm sandbox, beside a cold minimal bubblewrap, sandlock,
sandbox-runtime and a bare child."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench import peers, srt
from bench.harness import Aim, Row
from bench.installation import Ground, open_ours


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        ours = stack.enter_context(open_ours(ground, "palyra tier C", tier="c", egress="strict"))
        yield Row(
            name="tier_c",
            title="Tier C, warm: one call of `true`, end to end",
            note="Ours decides, budgets, writes two durable journal entries, isolates, captures and signs; its sandbox "
            "was started ahead. The peers run without policy and journal, so the ratio is against less work.",
            contenders=(
                ours,
                peers.cold_bwrap(),
                stack.enter_context(peers.sandlock()),
                srt.start_true(),
                peers.bare_popen(),
            ),
            aims=(
                Aim(peer="cold bwrap true", at_most=0.5),
                Aim(peer="sandlock", at_most=0.4),
                Aim(peer="bare Popen", at_most=2.8),
            ),
        )
