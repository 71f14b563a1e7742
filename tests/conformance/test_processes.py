"""TREE_KILL, and what every call keeps: nothing survives, nothing leaks in, nothing is left behind."""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from palyra.errors import Reason
from palyra.launch import _os
from palyra.launch.waiting import readable
from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.model.outcome import Status
from palyra.sandbox.landlock import SCOPE_ABI
from tests.conformance.arena import PYTHON, Arena, Result, claimed, host, marked_processes, overtaken
from tests.conformance.survivors import SURVIVOR, Typed, still_writing
from tests.promises import promise

pytestmark = pytest.mark.slow


@promise("tree-kill.setsid")
def test_a_double_fork_with_setsid_does_not_survive_the_programs_end(any_tier: Arena) -> None:
    mark = f"palyra-mark-{os.urandom(8).hex()}"
    starter = f'{PYTHON} -I -S -c "$0" {mark}; sleep 0.3'
    result = any_tier.run("/bin/sh", "-c", starter, SURVIVOR)
    claimed(result, Guarantee.TREE_KILL)
    assert result.execution.status is Status.COMPLETED
    assert (any_tier.workspace / "alive").exists()
    assert not still_writing(any_tier)
    assert marked_processes(mark) == []


RUNNER = """
import os, sys, time
for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        while True:  # a new pid all the time: whoever looks for it finds the last one
            if os.fork():
                os._exit(0)
            with open("alive", "a") as file:
                file.write(".")
time.sleep(0.3)
"""


@promise("tree-kill.endless-forks")
def test_processes_that_fork_and_exit_for_ever_do_not_survive(any_tier: Arena) -> None:
    result = any_tier.run(PYTHON, "-I", "-S", "-c", RUNNER, limits=Limits(wall_ms=30_000))
    claimed(result, Guarantee.TREE_KILL)
    assert (result.execution.exit_code, result.execution.degraded) == (0, ())
    assert (any_tier.workspace / "alive").exists()
    assert not still_writing(any_tier)


@promise("tree-kill.other-processes")
def test_ending_a_call_ends_nothing_else(any_tier: Arena) -> None:
    """Neither a process of the same user outside, nor another call in the same workspace."""
    user = None if os.getuid() else any_tier.owner

    async def go() -> tuple[Result, Result]:
        other = asyncio.create_task(any_tier.start("/bin/sh", "-c", "sleep 1; echo lived"))
        await asyncio.sleep(0.3)
        one = await any_tier.start("/bin/sh", "-c", "setsid sleep 60 & exit 3")
        return one, await other

    with subprocess.Popen(["/bin/sleep", "60"], user=user) as beside:
        try:
            one, other = asyncio.run(go())
            assert beside.poll() is None
        finally:
            beside.kill()
    assert (one.execution.exit_code, other.output.stdout) == (3, "lived\n")


@promise("tree-kill.deadline")
@pytest.mark.parametrize(
    "limits", [Limits(wall_ms=500), Limits(output_bytes=10, wall_ms=30_000)], ids=["deadline", "quota"]
)
def test_nothing_survives_the_deadline_or_the_quota(any_tier: Arena, limits: Limits) -> None:
    mark = f"palyra-mark-{os.urandom(8).hex()}"
    script = f'{PYTHON} -I -S -c "$0" {mark}; sleep 0.2; echo more than ten bytes of output; sleep 30'
    result = any_tier.run("/bin/sh", "-c", script, SURVIVOR, limits=limits)
    claimed(result, Guarantee.TREE_KILL)
    assert result.execution.status in (Status.TIMEOUT, Status.QUOTA_EXCEEDED)
    assert not still_writing(any_tier)
    assert marked_processes(mark) == []


@promise("tree-kill.cancelled")
def test_cancelling_kills_the_tree_before_it_returns(any_tier: Arena) -> None:
    mark = f"palyra-mark-{os.urandom(8).hex()}"

    async def go() -> Result | None:
        task = asyncio.create_task(
            any_tier.start("/bin/sh", "-c", f'{PYTHON} -I -S -c "$0" {mark}; sleep 30', SURVIVOR)
        )
        while not (any_tier.workspace / "alive").exists():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert marked_processes(mark) == [] or any_tier.tier.value == "B"
        return None

    asyncio.run(go())
    for pid in marked_processes(mark):  # tier B where no tree kill is claimed
        os.kill(pid, 9)


@promise("tree-kill.cancelled")
def test_cancelling_at_any_moment_of_the_start_leaves_nothing(any_tier: Arena) -> None:
    """One way to fail: a helper of ours, unreaped in a dying PID namespace, keeps it from ending for ever."""
    mark = f"palyra-mark-{os.urandom(8).hex()}"

    async def cancel_after(delay_s: float) -> None:
        task = asyncio.create_task(any_tier.start("/bin/sh", "-c", f": {mark}; sleep 30"))
        await asyncio.sleep(delay_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def go() -> None:
        for first in range(0, 40, 4):
            await asyncio.gather(*(cancel_after(n * 0.0005) for n in range(first, first + 4)))

    before, children = open_files(), own_children()
    asyncio.run(go())
    if any_tier.tier.value == "B":  # without a namespace the last ones may still be dying
        time.sleep(0.2)
    assert marked_processes(mark) == marked_processes(str(any_tier.folder)) == []
    assert open_files() == before
    assert set(own_children()) <= set(children)


def test_a_program_that_never_starts_is_told_apart_from_one_that_fails(any_tier: Arena) -> None:
    missing = any_tier.run("/usr/bin/palyra-does-not-exist")
    assert (missing.execution.status, missing.execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    assert "/usr/bin/palyra-does-not-exist" in (missing.execution.message or "")
    nowhere = any_tier.run("/bin/true", cwd=str(any_tier.workspace / "gone"))
    assert (nowhere.execution.status, nowhere.execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    for code in (1, 125, 126, 127, 137, 255):
        own = any_tier.run("/bin/sh", "-c", f"exit {code}")
        assert (own.execution.status, own.execution.exit_code, own.execution.signal) == (Status.COMPLETED, code, None)


@promise("tree-kill.engine-thread")
def test_no_thread_of_the_engine_can_be_sent_a_signal(tier_b: Arena) -> None:
    """The one that can end a call whole was in the call's own domain: a signal to that thread, whose number is easily
    guessed, ended the engine, with every other call, and the program went on without a deadline. Strangers of the
    program's own uid are out of reach only where Landlock scopes signals."""
    result = tier_b.attack(
        """
        import ctypes
        libc, engine, own, tgkill = ctypes.CDLL(None), os.getppid(), os.getpid(), int(sys.argv[2])
        others = [number for number in range(min(engine, own), max(engine, own) + 64) if number != own]
        anybody = others if sys.argv[1] == "scoped" else [engine]
        reached = [number for number in anybody if tried(os.kill, number, 0) is None]
        reached += [number for number in others if libc.syscall(tgkill, engine, number, 0) == 0]
        report([len(others) > 60, reached])
        """,
        "scoped" if host().landlock_abi >= SCOPE_ABI else "not scoped",
        str({"x86_64": 234, "aarch64": 131}[host().machine]),
    )
    claimed(result, Guarantee.TREE_KILL)
    assert result.json == [True, []]


def test_a_signal_is_told_apart_from_an_exit_code(any_tier: Arena) -> None:
    for number in (9, 11, 15):
        ended = any_tier.run("/bin/sh", "-c", f"kill -{number} $$").execution
        assert (ended.status, ended.exit_code, ended.signal) == (Status.COMPLETED, None, number)


@pytest.fixture(params=["before 6.13", "6.13 and 6.14"])
def older_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former do not know the question how a process ended that is not our child, the latter never answer it."""

    def unknown(pidfd: int) -> int | None:
        if request.param == "before 6.13":
            raise _os.Unsupported
        return None

    monkeypatch.setattr(_os, "exit_status", unknown)
    monkeypatch.setattr(_os, "tells_exits", lambda: False)


@pytest.mark.usefixtures("older_kernel")
def test_an_older_kernel_tells_exit_codes_and_signals_where_our_own_program_waited(tier_c: Arena) -> None:
    """Its first process says how the program ended. Where a shell waited there is only the launcher's exit code, in
    which signal 9 and exit 137 look alike."""
    for script, code in (("exit 0", 0), ("exit 7", 7), ("exit 137", 137), ("kill -9 $$", 137), ("kill -15 $$", 143)):
        ended = tier_c.run("/bin/sh", "-c", script).execution
        is_told = script.startswith("kill") and host().starter
        seen = (None, code - 128) if is_told else (code, None)
        assert (ended.status, ended.exit_code, ended.signal) == (Status.COMPLETED, *seen)


@promise("tree-kill.older-kernel")
@pytest.mark.usefixtures("older_kernel")
def test_on_an_older_kernel_too_what_a_program_leaves_behind_ends_with_it(tier_c: Arena) -> None:
    mark = f"palyra-{os.urandom(8).hex()}"
    started = tier_c.run(
        "/bin/sh", "-c", f"(setsid sleep 60 {mark} >/dev/null 2>&1 &) ; sh -c 'exec -a {mark} sleep 60' & exit 3"
    )
    assert (started.execution.exit_code, started.execution.degraded) == (3, ())
    assert marked_processes(mark) == marked_processes(str(tier_c.folder)) == []


@pytest.mark.usefixtures("older_kernel")
def test_on_an_older_kernel_too_a_program_that_was_killed_has_no_exit_code(tier_c: Arena) -> None:
    """The first process inside is killed with it and says nothing; 137, the launcher's word for that, was taken for
    what the program had ended with."""
    if not host().starter:
        pytest.skip("a shell waits here: there is nothing but the launcher's word")
    script = "trap '' TERM; echo begun; while :; do sleep 1; done"
    ended = overtaken(lambda limits: tier_c.run("/bin/sh", "-c", script, limits=limits), after="begun").execution
    assert (ended.status, ended.exit_code, ended.signal) == (Status.TIMEOUT, None, None)


def test_a_launcher_that_fails_says_why(tier_c: Arena) -> None:
    result = tier_c.run("/bin/true", protected=(str(tier_c.workspace / "not-there"),))
    assert (result.execution.status, result.execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    assert "could not be closed" in (result.execution.message or "")


@promise("fs-isolated.descriptors")
def test_only_the_three_streams_are_open_inside(any_tier: Arena) -> None:
    inheritable, other = os.pipe()
    os.set_inheritable(inheritable, True)
    os.set_inheritable(other, True)
    try:
        found = any_tier.attack("report([fd for fd in range(1024) if tried(os.fstat, fd) != 'EBADF'])").json
    finally:
        os.close(inheritable)
        os.close(other)
    assert found == [0, 1, 2]


@promise("fs-isolated.descriptors")
def test_no_process_of_a_call_holds_an_open_file_of_ours(any_tier: Arena) -> None:
    """Whoever reads the other end of a pipe of ours must see us close it, launchers and first processes or not."""
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)

    async def story() -> bool:
        running = asyncio.create_task(any_tier.start("/bin/sleep", "0.5"))
        await asyncio.sleep(0.05)
        os.close(theirs)
        closed = asyncio.create_task(readable(ours))
        await asyncio.wait({running, closed}, return_when=asyncio.FIRST_COMPLETED)
        seen = closed.done() and not running.done()
        await asyncio.gather(running, closed)
        return seen

    assert asyncio.run(story())
    os.close(ours)


@promise("fs-isolated.engine-environment")
def test_the_environment_is_exactly_the_plans(any_tier: Arena) -> None:
    env = (("PATH", "/usr/bin:/bin"), ("K", 'it\'s "a" $b `c`\n\\n\té'), ("PWD", "/x"), ("EMPTY", ""))
    result = any_tier.run("/usr/bin/env", "-0", env=env)
    assert sorted(result.output.stdout.split("\0")[:-1]) == sorted(f"{k}={v}" for k, v in env)
    assert any_tier.run("/usr/bin/env", env=()).output.stdout == ""


def test_every_byte_of_every_argument_arrives(any_tier: Arena) -> None:
    every = "".join(chr(c) for c in range(1, 256))
    raw = bytes(range(128, 256)).decode("utf-8", "surrogateescape")
    arguments = (every, raw, "", "-n", "$(id)", "`id`", "a b\n'c'\"d\"\\", *(["x" * 4096] * 128))
    result = any_tier.run(PYTHON, "-I", "-S", "-c", "import os,sys,hashlib\nfor a in sys.argv[1:]:"
                          " print(hashlib.sha256(os.fsencode(a)).hexdigest())", *arguments)  # fmt: skip
    expected = [hashlib.sha256(os.fsencode(a)).hexdigest() for a in arguments]
    assert result.output.stdout.split() == expected


def test_stdin_is_given_whole_and_recorded(any_tier: Arena) -> None:
    data = os.urandom(300_000)
    result = any_tier.run("/usr/bin/sha256sum", stdin=data)
    assert result.output.stdout.split()[0] == hashlib.sha256(data).hexdigest()
    assert (result.execution.stdin_bytes, result.execution.stdin_sha256) == (
        len(data),
        hashlib.sha256(data).hexdigest(),
    )


def test_a_streamed_stdin_ends_with_the_program(any_tier: Arena) -> None:
    result = asyncio.run(any_tier.start("/usr/bin/head", "-n1", source=Typed([b"one\n"]), stdin_streamed=True))
    assert (result.output.stdout, result.execution.exit_code) == ("one\n", 0)
    assert (result.execution.stdin_bytes, result.execution.stdin_sha256) == (4, hashlib.sha256(b"one\n").hexdigest())


def test_a_program_without_input_reads_an_end(any_tier: Arena) -> None:
    result = any_tier.run("/bin/cat")
    assert (result.output.stdout, result.execution.exit_code, result.execution.stdin_sha256) == ("", 0, None)


def test_both_streams_are_apart_and_can_be_opened_by_name(any_tier: Arena) -> None:
    result = any_tier.run("/bin/sh", "-c", "echo out > /dev/stdout; echo err > /dev/stderr")
    assert (result.output.stdout, result.output.stderr) == ("out\n", "err\n")


def scores(mark: str) -> set[str]:
    inside = [pid for pid in marked_processes(mark) if os.readlink(f"/proc/{pid}/exe").startswith("/usr/bin/py")]
    return {Path(f"/proc/{pid}/oom_score_adj").read_text() for pid in inside}


@promise("memory-limit.out-of-memory-order")
def test_the_call_goes_first_when_memory_runs_out(any_tier: Arena) -> None:
    """Read from outside: a confined program does not see its own /proc."""
    mark = f"palyra-mark-{os.urandom(8).hex()}"

    async def go() -> set[str]:
        argv = (PYTHON, "-I", "-S", "-c", f"input(); '{mark}'")
        task = asyncio.create_task(any_tier.start(*argv, source=Typed([b"go\n"], after_s=0.5), stdin_streamed=True))
        await asyncio.sleep(0.3)
        found = scores(mark)
        await task
        return found

    assert asyncio.run(go()) == {"500\n"}


@promise("sandbox.no-new-privileges")
def test_no_privileges_can_be_gained(any_tier: Arena) -> None:
    found = any_tier.attack(
        """
        import ctypes
        libc = ctypes.CDLL(None)
        held = (ctypes.c_uint32 * 6)()
        asked = libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), held)
        report([libc.prctl(39, 0, 0, 0, 0), asked, list(held)])
        """
    ).json
    assert found == [1, 0, [0] * 6]  # no_new_privs; effective, permitted and inheritable, in two halves


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def own_children() -> list[str]:
    """Ours, dead ones included."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()


@promise("tree-kill.concurrent-calls")
def test_sixty_four_calls_at_once_leave_nothing_behind(
    any_tier: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"palyra-mark-{os.urandom(8).hex()}"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def go() -> list[Result]:
        calls = (any_tier.start("/bin/sh", "-c", f"echo {n}; : {mark}; sleep 0.05 & exit {n % 3}") for n in range(64))
        return list(await asyncio.gather(*calls))

    before, children = open_files(), own_children()
    results = asyncio.run(go())
    assert [(r.output.stdout, r.execution.exit_code) for r in results] == [(f"{n}\n", n % 3) for n in range(64)]
    if Guarantee.TREE_KILL in results[0].plan.guarantees:
        assert marked_processes(mark) == []
    assert (set(own_children()) - set(children), open_files(), os.listdir(tmp_path)) == (set(), before, [])
