"""The same call of a guest through the jailed worker, pipes and process switch included, beside extism in process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.harness import Aim, Row
from bench.installation import Ground
from bench.wasm import COUNT, EXTISM, extism, jailed, wrapper


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        yield Row(
            name="wasm_jailed",
            title=f"Tier A: {COUNT} calls of a guest through the jailed worker, one after the other",
            note="Ours crosses into a tier C sandbox and back for every call; the peers stay in their own process.",
            contenders=(stack.enter_context(jailed(ground)), wrapper(), stack.enter_context(extism())),
            aims=(Aim(peer=EXTISM, at_most=1.0),),
        )
