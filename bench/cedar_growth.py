"""How a decision grows with the number of policies: the default bundle alone and with 10, 100 and 1000 more.

The further policies are what an operator of many agents writes: each is about one agent and one program, and a tenth of
them about every agent, so that they are evaluated for each request.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bench.cedar import COUNT, as_text, decisions
from bench.harness import Row
from bench.installation import Ground
from palyra.policy.store import load_posture

SIZES = (10, 100, 1000)


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    grown = [load_posture("standard", {"many.cedar": further(size)}) for size in SIZES]
    most = as_text(grown[-1], COUNT)
    yield Row(
        name="cedar_growth",
        title=f"Cedar: {COUNT} decisions, nothing remembered, as policies grow",
        note="A tenth of the further policies is about every agent and is evaluated each time; the others are about "
        "one agent each. The text peer has all of the 1000.",
        contenders=(
            decisions(load_posture("standard"), "the default bundle"),
            *(decisions(bundle, f"and {size} more") for size, bundle in zip(SIZES, grown, strict=True)),
            type(most)(name="text, 1000 more", run=most.run),
        ),
    )


def further(size: int) -> str:
    return "\n".join(_policy(at) for at in range(size))


def _policy(at: int) -> str:
    who = "principal is Agent" if at % 10 == 0 else f'principal == Agent::"agent{at}"'
    return (
        f'@id("local.no-{at}") @reason("Not here.") forbid ({who}, action == Action::"tool::execute", resource)\n'
        f'when {{ context.effective_program == "program{at}" }};'
    )
