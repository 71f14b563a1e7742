"""One bind for all of /etc: a program sees what it would see without, and can change nothing of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palyra.launch.etc_folder import UNUSED_NS, _remove_unused
from palyra.launch.executor import LaunchFailed
from palyra.launch.held import template_of
from palyra.launch.pool import PoolSize
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.net import NO_NETWORK, NetGrant
from palyra.model.outcome import Status
from palyra.model.plan import ProcessPlan
from palyra.sandbox.etc_words import FOLDER_NAME
from palyra.sandbox.planner import plan_job
from tests.conformance.arena import OPEN, PRELUDE, PYTHON, Arena, Kept, arena, host, require
from tests.promises import promise

pytestmark = pytest.mark.slow

LOOK = """
import hashlib
found = {}
for folder, folders, files in os.walk("/etc"):
    for name in folders + files:
        path = os.path.join(folder, name)
        if os.path.islink(path):
            found[path] = ["link", os.readlink(path)]
        elif os.path.isdir(path):
            found[path] = ["folder", sorted(os.listdir(path))]
        else:
            with open(path, "rb") as file:
                found[path] = ["file", hashlib.sha256(file.read()).hexdigest(), os.access(path, os.X_OK)]
report(found)
"""


@pytest.fixture
def place():
    require(Tier.C)
    with arena(Tier.C, host().uid) as made:
        yield made


def planned(place: Arena, program: str, **changes: Any) -> ProcessPlan:
    return plan_job(place.job(PYTHON, "-I", "-S", "-c", PRELUDE + program, **changes), host())


async def told(made: ProcessExecutor, plan: ProcessPlan) -> Any:
    kept = Kept()
    execution = await made.run(plan, kept)
    assert execution.status is Status.COMPLETED, (execution, kept.stderr)
    return json.loads(kept.stdout)


@promise("fs-isolated.etc")
@pytest.mark.parametrize("net", [NO_NETWORK, OPEN], ids=["isolated", "shared network"])
def test_a_program_sees_the_same_etc_with_and_without_the_folder(place: Arena, net: NetGrant) -> None:
    async def story() -> tuple[Any, Any]:
        made, plan = ProcessExecutor(host()), planned(place, LOOK, net=net)
        try:
            without = await told(made, plan)
            made.etc.make(template_of(plan))
            with_it = await told(made, plan)
            assert made.etc.is_seen_to_work
        finally:
            await made.close()
        return without, with_it

    without, with_it = asyncio.run(story())
    assert with_it == without
    assert "/etc/passwd" in with_it


@pytest.mark.parametrize("folder", [False, True])
def test_programs_find_what_they_ask_etc_for(place: Arena, folder: bool) -> None:
    """`openssl req` makes no certificate without its settings, and scripts ask which system this is."""
    program = """
    report({path: os.path.exists(path) for path in ("/etc/ssl/openssl.cnf", "/etc/os-release")})
    """

    async def story() -> Any:
        made, plan = ProcessExecutor(host()), planned(place, textwrap.dedent(program))
        try:
            if folder:
                made.etc.make(template_of(plan))
            return await told(made, plan)
        finally:
            await made.close()

    found = asyncio.run(story())
    assert found == {path: os.path.exists(path) for path in found}


@promise("fs-isolated.etc")
def test_nothing_of_it_can_be_changed_from_inside(place: Arena) -> None:
    program = """
    def moved():
        os.rename("/etc/passwd", "/etc/other")
    report([
        tried(write, "/etc/passwd"), tried(write, "/etc/new"), tried(os.unlink, "/etc/group"), tried(moved),
        tried(os.chmod, "/etc", 0o777), tried(os.utime, "/etc/hosts"), tried(os.mkdir, "/etc/alternatives/x"),
        tried(write, "/etc/.palyra-start"), tried(os.symlink, "/tmp", "/etc/ssl/x"),
    ])
    """

    async def story() -> Any:
        made, plan = ProcessExecutor(host()), planned(place, textwrap.dedent(program))
        made.etc.make(template_of(plan))
        try:
            await told(made, planned(place, "report(0)"))
            return await told(made, plan)
        finally:
            await made.close()

    assert asyncio.run(story()) == ["EROFS"] * 9


@promise("fs-isolated.etc")
def test_a_sandbox_that_waited_is_not_used_once_the_host_has_other_files(place: Arena, tmp_path: Path) -> None:
    async def story() -> tuple[int, int]:
        made = ProcessExecutor(host(), warm=PoolSize(per_template=1, total=1, refill_after_s=0))
        plan = planned(place, "report(0)")
        assert made.pool is not None
        made.etc.make(template_of(plan))
        try:
            made.pool.wish(template_of(plan))
            await made.pool.settled()
            (_, held, _), *_ = made.pool._ready[template_of(plan)]
            assert held.host_files
            (tmp_path / "file").write_text("x")
            held.host_files = (*held.host_files, (str(tmp_path / "file"), None))  # which was not there
            await told(made, plan)
            return made.pool.counts.hits, made.pool.counts.discarded
        finally:
            await made.close()

    assert asyncio.run(story()) == (0, 1)


@promise("fs-isolated.etc")
def test_what_changes_on_the_host_while_a_sandbox_is_made_is_seen_by_it(place: Arena, tmp_path: Path) -> None:
    async def story() -> list[int]:
        made, plan = ProcessExecutor(host()), planned(place, "report(0)")
        template = template_of(plan)
        made.etc.make(template)
        started = []
        held = made._hold

        async def hold(given: Any, **words: Any) -> Any:
            started.append(len(given.host_files))
            return await held(given, **words)

        made._hold = hold  # type: ignore[assignment,method-assign]
        try:
            await told(made, plan)
            await told(made, plan)
            known = made.etc._made[template]
            nothing = ((str(tmp_path), None),)  # where something is
            made.etc._made[template] = replace(
                known, seen=nothing, template=replace(known.template, host_files=nothing)
            )
            await told(made, plan)
        finally:
            await made.close()
        return started

    first, second, *third = asyncio.run(story())
    assert (first, second > 1, third) == (0, True, [1, 0])


@pytest.mark.parametrize(("is_taken", "counted"), [(False, (1, 0)), (True, (0, 1))])
def test_a_sandbox_that_waited_while_a_machine_slept_for_days_does_not_come_with_an_empty_etc(
    place: Arena, is_taken: bool, counted: tuple[int, int]
) -> None:
    """A sandbox's age is counted by a clock that stands still meanwhile, a folder's by one that does not. Its holder
    keeps the folder; where somebody takes it away all the same, the sandbox is not used."""

    async def story() -> tuple[Any, int, int]:
        made = ProcessExecutor(host(), warm=PoolSize(per_template=1, total=1, refill_after_s=0))
        plan = planned(place, "report(sorted(os.listdir('/etc')))")
        assert made.pool is not None
        made.etc.make(template_of(plan))
        try:
            made.pool.wish(template_of(plan))
            await made.pool.settled()
            (_, held, _), *_ = made.pool._ready[template_of(plan)]
            assert held.host_files
            _remove_unused(os.path.join(host().state_home, FOLDER_NAME), time.time_ns() + 2 * UNUSED_NS)
            if is_taken:
                shutil.rmtree(os.path.join(host().state_home, FOLDER_NAME))
            return await told(made, plan), made.pool.counts.hits, made.pool.counts.discarded
        finally:
            await made.close()

    shown, hits, discarded = asyncio.run(story())
    assert "passwd" in shown
    assert (hits, discarded) == counted


def test_where_no_launcher_can_reach_it_sandboxes_start_without(place: Arena) -> None:
    async def story() -> None:
        made, plan = ProcessExecutor(host()), planned(place, "report(0)")
        made.etc.make(template_of(plan))
        held = made._hold

        async def refuse(template: Any, **given: Any) -> Any:
            if template.host_files:
                raise LaunchFailed("bwrap: Can't find source path: Permission denied")
            return await held(template, **given)

        made._hold = refuse  # type: ignore[method-assign]
        try:
            assert [await told(made, plan) for _ in range(3)] == [0, 0, 0]
            template = template_of(plan)
            assert made.etc.shortened(template) is template
        finally:
            await made.close()

    asyncio.run(story())
