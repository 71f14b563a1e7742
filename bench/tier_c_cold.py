"""Tier C cold: the launch alone with the whole plan, no pool, no policy and no journal, beside a minimal bubblewrap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench import peers
from bench.harness import Aim, Row
from bench.installation import Ground, open_cold


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with open_cold(ground, "palyra tier C cold") as ours:
        yield Row(
            name="tier_c_cold",
            title="Tier C, cold: the launch of `true` alone",
            note="Ours is the whole plan: seccomp, sized private folders, synthetic /etc, no user namespaces, every "
            "mount verified while the launcher waits, limits set before the first instruction. The peer is the least "
            "that can be called a sandbox.",
            contenders=(ours, peers.cold_bwrap()),
            aims=(Aim(peer="cold bwrap true", at_most=1.4),),
        )
