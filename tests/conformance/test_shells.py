"""The launch message is understood by every shell the probe accepts as /bin/sh, and by our own start program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from palyra.errors import Reason
from palyra.launch.process import ProcessExecutor
from palyra.model.limits import Limits
from palyra.model.outcome import Status
from palyra.sandbox.planner import plan_job
from tests.conformance.arena import PYTHON, Arena, Kept, Result, host
from tests.promises import promise

pytestmark = pytest.mark.slow
OURS = "start"
SHELLS = [path for path in ("/usr/bin/dash", "/usr/bin/bash", "/usr/bin/busybox") if Path(path).exists()]
EVERY_BYTE = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
ANY_BYTES = st.binary(max_size=60).map(lambda raw: raw.replace(b"\0", b"").decode("utf-8", "surrogateescape"))


@pytest.fixture(params=[*SHELLS, OURS], ids=lambda path: Path(path).name)
def run(request: pytest.FixtureRequest, place: Arena) -> Callable[..., Result]:
    """Under the name `sh`, as systems have it: bash counts in other units under its own."""
    if request.param == OURS and not host().starter:
        pytest.skip("our start program does not run here")
    shell = place.workspace / "sh"
    shell.symlink_to(request.param)
    here = replace(host(), shell=str(shell), starter=request.param == OURS)

    def work(*argv: str, **changes: object) -> Result:
        plan, output = plan_job(place.job(*argv, **changes), here), Kept()
        return Result(asyncio.run(ProcessExecutor(here).run(plan, output)), plan, output)

    return work


def test_it_becomes_the_program(run: Callable[..., Result]) -> None:
    result = run("/bin/sh", "-c", 'echo "$K"; exit 7', env=(("K", "it's"),), stdin=b"x")
    assert (result.execution.status, result.execution.exit_code, result.output.stdout) == (
        Status.COMPLETED,
        7,
        "it's\n",
    )


@promise("sandbox.first-process")
def test_the_environment_holds_nothing_of_the_shell(run: Callable[..., Result]) -> None:
    shown = set(run("/usr/bin/env", env=(("K", "v"),)).output.stdout.splitlines())
    assert shown - {"SHLVL=0"} == {"K=v"}  # bash alone counts itself, whatever it is told


@pytest.mark.parametrize(
    "changes", [{"program": "/usr/bin/palyra-missing"}, {"cwd": "/palyra-missing"}, {"program": "/usr"}]
)
def test_a_program_that_cannot_start_is_told_from_one_that_ends(
    run: Callable[..., Result], changes: dict[str, str]
) -> None:
    result = run("/usr/bin/true", **changes)
    assert (result.execution.status, result.execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    assert "\x1f" not in result.output.stderr


@promise("sandbox.first-process")
def test_every_limit_is_in_force(run: Callable[..., Result]) -> None:
    program = """
import json, os, resource as r
print(json.dumps([r.getrlimit(getattr(r, "RLIMIT_" + n)) for n in ("CPU", "DATA", "NOFILE", "FSIZE", "CORE", "STACK")]
                 + [list(r.getrlimit(r.RLIMIT_NPROC))]))
"""
    limits = Limits(cpu_ms=2500, memory_bytes=200 << 20, open_files=99, file_bytes=3 << 20, processes=77)
    result = run(PYTHON, "-I", "-S", "-c", program, limits=limits)
    cpu, data, files, size, core, stack, processes = result.json
    assert (cpu, data, files) == ([3, 4], [200 << 20] * 2, [99] * 2)
    assert (size, core) == ([3 << 20] * 2, [0, 0])
    assert stack[1] <= 200 << 20
    child_uid = result.plan.run_as[0] if result.plan.run_as else host().uid
    if child_uid and result.plan.pid_namespace:
        assert processes == [77, 77]


@settings(max_examples=4, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(arguments=st.lists(ANY_BYTES, max_size=5), value=ANY_BYTES)
@example(arguments=[EVERY_BYTE, "", EVERY_BYTE[::-1]], value=EVERY_BYTE)
def test_every_byte_arrives(run: Callable[..., Result], arguments: list[str], value: str) -> None:
    program = "import os,sys,json\nprint(json.dumps([os.fsencode(a).hex() for a in [*sys.argv[1:], os.environ['K']]]))"
    result = run(PYTHON, "-I", "-S", "-c", program, *arguments, env=(("K", value),))
    assert result.json == [word.encode("utf-8", "surrogateescape").hex() for word in [*arguments, value]]
