"""The warm pool: each sandbox used once, checked when taken, bounded, gone when closed; correct when empty."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace

import pytest

from palyra.launch import leftovers
from palyra.launch.held import template_of
from palyra.launch.pool import PoolSize
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.outcome import Status
from palyra.sandbox.planner import plan_job
from tests.conformance.arena import PYTHON, Arena, Kept, arena, host, marked_processes, require
from tests.promises import promise

pytestmark = pytest.mark.slow
SIZE = PoolSize(per_template=1, total=2, refill_after_s=0)


@pytest.fixture
def place():
    require(Tier.C)
    with arena(Tier.C, host().uid) as made:
        yield made


def executor(**changes: object) -> ProcessExecutor:
    return ProcessExecutor(host(), warm=replace(SIZE, **changes))


async def run(made: ProcessExecutor, place: Arena, *argv: str, **changes: object) -> str:
    kept = Kept()
    execution = await made.run(plan_job(place.job(*argv, **changes), host()), kept)
    assert execution.status is Status.COMPLETED, (execution, kept.stderr)
    return kept.stdout


async def warmed(made: ProcessExecutor, place: Arena, **changes: object) -> None:
    assert made.pool is not None
    made.pool.wish(template_of(plan_job(place.job("/usr/bin/true", **changes), host())))
    await made.pool.settled()
    assert made.pool.idle >= 1


@promise("fs-isolated.single-use")
def test_each_sandbox_serves_one_call_and_nothing_of_it_reaches_the_next(place: Arena) -> None:
    async def story() -> list[str]:
        made = executor()
        told = []
        for _ in range(3):
            await warmed(made, place)
            told.append(
                await run(made, place, "/bin/sh", "-c", "ls /tmp /home/agent | wc -l; touch /tmp/x ~/y; echo $$")
            )
        await made.close()
        assert made.pool is not None
        assert (made.pool.counts.hits, made.pool.idle) == (3, 0)
        return [text.split()[0] for text in told]

    first, second, third = asyncio.run(story())
    assert first == second == third


@promise("fs-isolated.single-use")
def test_a_copy_that_was_made_of_other_bytes_is_not_used(place: Arena) -> None:
    """Written in place, the file is the same one, and its mount stays: only its bytes, and its times, are others."""
    settings = place.workspace / "settings"
    settings.write_text("old")
    os.chown(settings, place.owner, place.owner)
    closed = {"protected": (str(settings),), "copied": (str(settings),)}

    async def story() -> list[str]:
        made = executor()
        await warmed(made, place, **closed)
        first = await run(made, place, "/bin/cat", "settings", **closed)
        await warmed(made, place, **closed)
        settings.write_text("new and longer")
        second = await run(made, place, "/bin/cat", "settings", **closed)
        await made.close()
        assert made.pool is not None
        assert (made.pool.counts.hits, made.pool.counts.discarded) == (1, 1)
        return [first, second]

    assert asyncio.run(story()) == ["old", "new and longer"]


def test_an_empty_pool_starts_cold(place: Arena) -> None:
    async def story() -> str:
        made = executor()
        try:
            return await run(made, place, "/bin/echo", "cold")
        finally:
            await made.close()

    assert asyncio.run(story()) == "cold\n"


def test_the_environment_and_arguments_are_those_of_the_call(place: Arena) -> None:
    async def story() -> str:
        made = executor()
        await warmed(made, place)
        text = await run(made, place, "/usr/bin/env", env=(("A", "it's"), ("B", "two\nlines")))
        await made.close()
        return text

    assert asyncio.run(story()) == "A=it's\nB=two\nlines\n"


@promise("fs-isolated.single-use")
@pytest.mark.parametrize("change", ["renamed workspace", "renamed .git", "killed"])
def test_a_sandbox_that_is_no_longer_as_planned_is_thrown_away(place: Arena, change: str) -> None:
    git = place.workspace / ".git"
    (git / "hooks").mkdir(parents=True)
    protected = (str(git / "hooks"),)

    async def story() -> tuple[str, int]:
        made = executor()
        assert made.pool is not None
        await warmed(made, place, protected=protected)
        if change == "renamed workspace":
            place.workspace.rename(place.folder / "old")
            (git / "hooks").mkdir(parents=True)
        elif change == "renamed .git":
            git.rename(place.workspace / "old")
            (git / "hooks").mkdir(parents=True)
        else:
            held = next(iter(made.pool._ready.values()))[0][1]
            import os
            import signal

            os.kill(held.program, signal.SIGKILL)
            await asyncio.sleep(0.2)
        attack = "try: open('.git/hooks/x', 'w'); print('planted')\nexcept OSError as e: print('refused')"
        text = await run(made, place, PYTHON, "-I", "-S", "-c", attack, protected=protected)
        await made.close()
        return text, made.pool.counts.hits

    assert asyncio.run(story()) == ("refused\n", 0)


@promise("fs-isolated.replaced-folder")
@pytest.mark.parametrize("how", ["its program", "granted"])
def test_a_folder_replaced_on_the_host_is_not_shown_as_it_was_by_a_sandbox_started_before(
    each_tier: Arena, how: str
) -> None:
    """The digest that was judged and is attested is of the program that is there now: an update of a toolchain, moved
    into place, ran the old one for a minute. And what was moved out of a granted folder's place was still shown."""
    tools = each_tier.folder / "tools"
    program = tools / "hello"

    def put(text: str) -> None:
        tools.mkdir()
        program.write_text(f"#!/bin/sh\necho {text}\n")
        program.chmod(0o755)
        tools.chmod(0o755)

    put("old")
    roots = {"read_roots": (str(tools),), "granted_roots": (str(tools),)}
    argv = (str(program),) if how == "its program" else ("/bin/sh", str(program))
    changes = {"program_file": str(program)} if how == "its program" else roots

    plan = plan_job(each_tier.job(*argv, **changes), host())
    holds = plan.pid_namespace or plan.landlock is not None  # else it goes by the name when it begins

    async def story() -> tuple[str, str, int]:
        made = executor()
        assert made.pool is not None
        before = await run(made, each_tier, *argv, **changes)
        await made.pool.settled()
        assert made.pool.idle == 1
        tools.rename(each_tier.folder / "tools.before")
        put("new")
        after = await run(made, each_tier, *argv, **changes)
        await made.close()
        return before, after, made.pool.counts.discarded

    assert asyncio.run(story()) == ("old\n", "new\n", int(holds))


def test_a_plain_child_waits_ahead_of_its_call_without_landlock_too() -> None:
    """As on kernels before 6.2: none could be started ahead, and closing the executor failed."""
    older = replace(host(), landlock_abi=2)

    async def story(place: Arena) -> tuple[str, int]:
        made, kept = ProcessExecutor(older, warm=SIZE), Kept()
        assert made.pool is not None
        plan = plan_job(place.job("/bin/echo", "warm"), older)
        made.pool.wish(template_of(plan))
        await made.pool.settled()
        await made.run(plan, kept)
        await made.close()
        return kept.stdout, made.pool.counts.hits

    require(Tier.B)
    with arena(Tier.B, host().uid) as place:
        assert asyncio.run(story(place)) == ("warm\n", 1)


@promise("sandbox.cleanup-time")
def test_a_crowd_of_files_in_a_private_folder_holds_up_no_other_call(
    place: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each second of a program that makes files is half a second for who has the kernel remove them: not the loop."""
    where: list[threading.Thread] = []
    real = leftovers._close_all

    def closing(fds: list[int]) -> None:
        if fds:
            where.append(threading.current_thread())
        real(fds)

    many = "import os\nfor n in range(20000): os.close(os.open(f'/tmp/{n}', os.O_CREAT))"

    async def story() -> None:
        made = executor()
        monkeypatch.setattr(leftovers, "_close_all", closing)
        await run(made, place, PYTHON, "-I", "-S", "-c", many)
        await run(made, place, "/bin/true")  # alone, so what is left is let go where somebody waits anyway
        await asyncio.sleep(leftovers.LET_GO_AFTER_S * 4)
        await asyncio.get_running_loop().shutdown_default_executor()
        await made.close()

    asyncio.run(story())
    assert where
    assert where[0] is not threading.main_thread()


def test_old_sandboxes_end_by_themselves_and_the_number_is_bounded(place: Arena) -> None:
    async def story() -> None:
        made = executor(max_age_s=0.4, per_template=2, total=2)
        assert made.pool is not None
        await warmed(made, place)
        await warmed(made, place, read_roots=("/var/lib",))
        assert made.pool.idle <= 2
        await asyncio.sleep(1.0)
        assert made.pool.idle == 0
        await made.close()

    asyncio.run(story())


def test_closing_leaves_no_process_and_no_descriptor(place: Arena) -> None:
    import os

    async def story() -> tuple[int, int]:
        before = len(os.listdir("/proc/self/fd"))
        made = executor(per_template=2)
        await warmed(made, place)
        await made.close()
        return before, len(os.listdir("/proc/self/fd"))

    before, after = asyncio.run(story())
    assert before == after
    assert marked_processes(str(place.workspace)) == []
