"""Cedar decisions that were made before, through the exact decision cache, beside cedarpy with text arguments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.cedar import COUNT, TEXT, as_text, check_all, requests
from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground
from palyra.policy.decide import verdict_of
from palyra.policy.store import load_posture


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    bundle = load_posture("standard")
    asked = requests()

    def work() -> list[str]:
        return [verdict_of(bundle, one).effect for one in asked]

    yield Row(
        name="cedar_cached",
        title=f"Cedar: {COUNT} decisions on the default bundle that were made before",
        note="Remembered by everything that a policy of the bundle looks at, exactly; errors are never remembered.",
        contenders=(Contender(name="palyra, cached", run=timed(work, check_all("allow"))), as_text(bundle, COUNT)),
        aims=(Aim(peer=TEXT, at_most=1 / 300),),
    )
