"""For tests that build skills: where `make test` put the AssemblyScript compiler, and a bench to build and try at."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from palyra.config.load import Home
from palyra.config.schema import Config
from palyra.model.call import Tier
from palyra.wiring.skill_bench import Bench, open_bench
from tests.conformance.arena import require

PROJECT = Path(__file__).parents[1]
SAMPLES = PROJECT / "examples" / "skills"
COMPILER = PROJECT / ".make" / "assemblyscript"
T = TypeVar("T")


def assemblyscript() -> tuple[str, ...]:
    """The search path with the compiler and a node on it; without them the test is skipped and says so."""
    if not (COMPILER / ".ready").exists():
        pytest.skip("there is no AssemblyScript compiler: make .make/assemblyscript/.ready")
    own = (str(COMPILER / "node_modules" / ".bin"), str(COMPILER / "python" / "bin"))
    return (*own, *os.environ.get("PATH", os.defpath).split(os.pathsep))


def at_the_bench(home: Path, work: Callable[[Bench], Awaitable[T]], *, path: tuple[str, ...] = ()) -> T:
    require(Tier.C)

    async def whole() -> T:
        async with open_bench(Home(home), Config(), path=path) as bench:
            return await work(bench)

    return asyncio.run(whole())


def copy_of(sample: str, folder: Path) -> Path:
    return Path(
        shutil.copytree(SAMPLES / sample, folder / sample, ignore=shutil.ignore_patterns("dist", "node_modules"))
    )
