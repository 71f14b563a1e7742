"""What building and testing skills needs of this machine, without opening the home's database: sandboxes and guests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from palyra.config.load import Home, user_home
from palyra.config.schema import Config
from palyra.launch.process import ProcessExecutor
from palyra.skills.bundle import Skill, read_untrusted
from palyra.skills.project import ProjectError
from palyra.skills.recorded import Verdict, parse_cases
from palyra.values import dataclass
from palyra.wiring.guests import GuestHouse
from palyra.wiring.host import look_at_host
from palyra.wiring.skill_building import DIST
from palyra.wiring.skill_testing import Proving
from palyra.wiring.skill_workshop import Workshop, load_project, read_plain

MAX_PACKAGE_BYTES = 66 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    config: Config
    workshop: Workshop
    house: GuestHouse


@asynccontextmanager
async def open_bench(home: Home, config: Config, *, path: Sequence[str]) -> AsyncIterator[Bench]:
    """`path`: where the caller's programs are."""
    home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    host = look_at_host(home, config, owns_process=True)
    executor = ProcessExecutor(host)
    house = GuestHouse(executor, host, config.tool_call.wasm_runtime, home.root / "compiled", spare=0)
    try:
        workshop = Workshop(executor, host, path=path, user_home=user_home())
        yield Bench(config=config, workshop=workshop, house=house)
    finally:
        await house.close()
        await executor.close()


async def try_project(folder: Path, bench: Bench) -> tuple[Skill, tuple[Verdict, ...]]:
    """The built package of a project on the project's recorded inputs. Raises ProjectError, SkillRefused."""
    project = load_project(folder)
    cases = parse_cases(project.files, project.manifest)
    if not cases:
        raise ProjectError(
            "There are no recorded inputs in tests/.", 'tests/NAME.json holds {"input": …, "expect": …}.'
        )
    built = folder / DIST / project.artifact_name
    try:
        skill = read_untrusted(read_plain(built, most=MAX_PACKAGE_BYTES))
    except FileNotFoundError:
        raise ProjectError(f"{built} is missing.", f"Build it first: palyra skills build {folder}") from None
    proving = Proving(skill, bench.house, bench.config.tool_call.wasm_runtime)
    return skill, tuple([await proving.prove(case) for case in cases])
