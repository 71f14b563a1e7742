"""For tests that build skills: new projects, where `make test` put the AssemblyScript compiler, a bench to try at."""

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
from palyra.skills.languages import LANGUAGES, Language
from palyra.skills.scaffold import project_files
from palyra.skills.templates.load import read_sdk, read_templates
from palyra.wiring.skill_bench import Bench, open_bench
from tests.conformance.arena import require

PROJECT = Path(__file__).parents[1]
SAMPLES = PROJECT / "examples" / "skills"
COMPILER = PROJECT / ".make" / "assemblyscript"
T = TypeVar("T")


def new_project(skill_id: str, language: Language) -> dict[str, str]:
    sdk = {name: read_sdk(name) for name, _ in LANGUAGES[language].sdk}
    return project_files(skill_id, language, templates=read_templates(language.value), sdk=sdk)


def place_files(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return folder


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
