"""Tier C, a call end to end in a warm sandbox, beside sandbox-runtime alone.

A pair of its own: srt starts node and takes a hundred times as long, and whoever runs after it finds the processor's
caches filled with that. Ours pays for it here, where it is said, and not beside the peers of its own size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench import srt
from bench.harness import Row
from bench.installation import Ground, open_ours


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with open_ours(ground, "palyra tier C", tier="c", egress="strict") as ours:
        yield Row(
            name="tier_c_srt",
            title="Tier C, warm: one call of `true`, each after a third of a second of another program",
            note="The peer runs without policy and journal. It takes so long that every call of ours begins with cold "
            "caches: what a call takes that comes after something else had the processor.",
            contenders=(ours, srt.start_true()),
        )
