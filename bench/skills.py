"""What other installed skills cost a call: the same tool of the same skill, beside none and beside 199 others.

Every call is end to end and durable: the sealed row, the key, the files' times, policy, both schemas, the jailed guest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground, check_outcome, open_ground
from palyra.signing import SigningKey
from palyra.skills.bundle import pack
from palyra.skills.manifest import SkillManifest, ToolEntry

COUNT = 20
MANY = 200
ALONE = "1 skill installed"
ECHO = """(module
  (import "palyra:plugins/host@0.1.0" "input-len" (func $len (result i32)))
  (import "palyra:plugins/host@0.1.0" "input-read" (func $read (param i32 i32) (result i32)))
  (import "palyra:plugins/host@0.1.0" "output" (func $output (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "run") (result i32)
    (call $output (i32.const 0) (call $read (i32.const 0) (call $len)))))"""


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        other = stack.enter_context(open_ground())
        yield Row(
            name="skills",
            title=f"Skills: {COUNT} calls of one skill's tool, {MANY} skills installed",
            note="The calls are of the same skill in both homes; what differs is how many others are installed.",
            contenders=(
                stack.enter_context(_calls(ground, f"{MANY} skills installed", MANY)),
                stack.enter_context(_calls(other, ALONE, 1)),
            ),
            aims=(Aim(peer=ALONE, at_most=1.1),),
        )


@contextmanager
def _calls(ground: Ground, name: str, skills: int) -> Iterator[Contender]:
    from palyra import AsyncPalyra

    with asyncio.Runner() as runner:
        palyra = runner.run(AsyncPalyra.open(home=str(ground.home)).start())
        try:
            runner.run(_install(palyra.installation.skills, skills))
            run = palyra.run(principal="user:bench", workspace=ground.workspace)

            async def calls() -> list[Any]:
                return [await run.call("bench.tool0", {"n": 1}) for _ in range(COUNT)]

            yield Contender(name=name, run=timed(lambda: runner.run(calls()), _check))
        finally:
            runner.run(palyra.close())


def _check(outcomes: list[Any]) -> None:
    for outcome in outcomes:
        check_outcome(outcome)


async def _install(desk: Any, count: int) -> None:
    from wasmtime import wat2wasm

    key, module = SigningKey.generate(), bytes(wat2wasm(ECHO))
    await desk.trust_add("bench", key.public.raw.hex(), by="user:bench")
    for number in range(count):
        await desk.install(_package(number, module, key), by="user:bench")
        await desk.enable(f"bench.tool{number}", by="user:bench")


def _package(number: int, module: bytes, key: SigningKey) -> bytes:
    name = f"bench.tool{number}"
    tool = ToolEntry(
        id=name,
        name="Echo",
        description="Gives back what it is given.",
        module="modules/echo.wasm",
        input_schema={"type": "object"},
        output_schema={"type": "object"},
    )
    manifest = SkillManifest(
        skill_id=name, name="Echo", version="1.0.0", publisher="bench", tools=(tool,), review_required=False
    )
    return pack(manifest, {"modules/echo.wasm": module}, key, at_unix_ms=0)
