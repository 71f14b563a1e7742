"""CPU_LIMIT, MEMORY_LIMIT, PROCESS_LIMIT, and the bounds on output and time that every plan has."""

from __future__ import annotations

import pytest

from palyra.errors import Reason
from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.model.outcome import Status
from palyra.sandbox.backend import namespace_pid_max
from tests.conformance.arena import Arena, claimed, marked_processes, overtaken
from tests.promises import promise

pytestmark = pytest.mark.slow


@promise("cpu-limit.endless-loop")
def test_a_program_that_burns_cpu_is_ended_and_named(each_tier: Arena) -> None:
    result = each_tier.attack("while True: pass", limits=Limits(cpu_ms=1000, wall_ms=30_000))
    assert Guarantee.CPU_LIMIT in result.plan.guarantees
    assert (result.execution.status, result.execution.reason) == (Status.COMPLETED, Reason.CPU_LIMIT)
    assert result.execution.usage.wall_us < 20_000_000


@promise("cpu-limit.forged-signal")
def test_a_program_that_sends_itself_the_cpu_signal_is_not_said_to_have_used_its_cpu_time(any_tier: Arena) -> None:
    result = any_tier.run("/bin/sh", "-c", "kill -XCPU $$")
    execution = result.execution
    assert (execution.status, execution.reason, execution.message) == (Status.COMPLETED, None, None)
    assert (execution.exit_code, execution.signal) == (None, 24)


@promise("cpu-limit.ignored-signal")
def test_a_program_that_ignores_the_cpu_signal_is_killed(each_tier: Arena) -> None:
    program = """
        import signal
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
        while True: pass
    """
    result = each_tier.attack(program, limits=Limits(cpu_ms=1000, wall_ms=30_000))
    assert (result.execution.status, result.execution.signal) == (Status.COMPLETED, 9)


@promise("memory-limit.bomb")
def test_a_memory_bomb_stops_at_the_limit(any_tier: Arena) -> None:
    program = """
        import resource
        held = []
        def grow():
            while len(held) < 64:
                held.append(bytearray(16 << 20))
        what = tried(grow)
        raised = tried(resource.setrlimit, resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        stack = tried(resource.setrlimit, resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        report([what, len(held) * 16, raised, stack])
    """
    result = any_tier.attack(program, limits=Limits(memory_bytes=128 << 20, wall_ms=30_000))
    assert Guarantee.MEMORY_LIMIT in result.plan.guarantees
    what, mib, raised, stack = result.json
    assert what == "MemoryError"
    assert mib <= 128
    assert (raised, stack) == ("ValueError", "ValueError")


@promise("syscall-filter.growing-stack")
def test_memory_that_grows_down_is_no_way_past_the_limit(any_tier: Arena) -> None:
    program = """
        import ctypes, mmap
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        def ask(flags):
            got = libc.mmap(None, 64 << 20, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | flags, -1, 0)
            return "mapped" if got != ctypes.c_void_p(-1).value else errno.errorcode[ctypes.get_errno()]
        report([ask(0), ask(0x100)])
    """
    result = any_tier.attack(program, limits=Limits(memory_bytes=256 << 20, wall_ms=30_000))
    if Guarantee.SYSCALL_FILTER not in result.plan.guarantees:
        pytest.skip("no filter is claimed here")
    assert result.json == ["mapped", "EPERM"]


@promise("process-limit.fork-bomb")
def test_a_fork_bomb_stops_at_the_limit(any_tier: Arena) -> None:
    program = """
        made, failed = 1, ""
        while made < 1500 and not failed:
            try:
                if os.fork() == 0:
                    time.sleep(60)
                    os._exit(0)
                made += 1
            except OSError as error:
                failed = errno.errorcode[error.errno]
        report([made, failed])
    """
    result = any_tier.attack(program, limits=Limits(processes=100, wall_ms=30_000))
    claimed(result, Guarantee.PROCESS_LIMIT)
    made, failed = result.json
    bound = namespace_pid_max(100) if result.plan.namespace_pid_max else 100
    if any_tier.tier.value == "B":
        bound += 10  # counted together with the user's other processes, some of which end meanwhile
    assert (failed, made <= bound) == ("EAGAIN", True), (made, bound)


@promise("tree-kill.fork-bomb")
def test_a_spreading_fork_bomb_ends_with_the_call(tier_c: Arena) -> None:
    script = "b() { b | b & }; b; sleep 60; : palyra-bomb-mark"
    result = tier_c.run("/bin/sh", "-c", script, limits=Limits(processes=100, wall_ms=700))
    assert result.execution.status in (Status.TIMEOUT, Status.COMPLETED, Status.QUOTA_EXCEEDED)
    assert marked_processes("palyra-bomb-mark") == []


def test_small_builds_are_not_strangled_after_many_processes(tier_c: Arena) -> None:
    """With pid_max near the kernel's lowest, pids run out after the first turn: one process at a time."""
    script = "i=0; while [ $i -lt 700 ]; do /bin/true; i=$((i+1)); done; /bin/echo a | /bin/cat | /bin/cat | /bin/cat"
    result = tier_c.run("/bin/sh", "-c", script, limits=Limits(processes=32, wall_ms=60_000))
    assert (result.execution.exit_code, result.output.stdout) == (0, "a\n"), result.output.stderr


@promise("calls.output-quota")
def test_a_flood_is_ended_at_the_quota_with_what_was_captured(any_tier: Arena) -> None:
    result = any_tier.run("/bin/sh", "-c", "yes | head -c 1073741824", limits=Limits(output_bytes=1 << 20))
    assert (result.execution.status, result.execution.reason) == (Status.QUOTA_EXCEEDED, Reason.QUOTA_EXCEEDED)
    assert result.output.stdout == "y\n" * (1 << 19)
    assert result.execution.truncated


@promise("calls.output-quota")
def test_a_flood_on_stderr_alone_counts_too(any_tier: Arena) -> None:
    result = any_tier.run("/bin/sh", "-c", "yes >&2", limits=Limits(output_bytes=4096))
    assert (result.execution.status, len(result.output.stderr)) == (Status.QUOTA_EXCEEDED, 4096)


@promise("calls.deadline")
def test_a_slow_drip_does_not_outlive_the_deadline(any_tier: Arena) -> None:
    script, some = "while :; do echo .; sleep 0.05; done", ".\n.\n"
    result = overtaken(lambda limits: any_tier.run("/bin/sh", "-c", script, limits=limits), after=some)
    assert (result.execution.status, result.execution.reason) == (Status.TIMEOUT, Reason.TIMEOUT)
    assert result.output.stdout.startswith(some)
    assert result.execution.usage.wall_us < 20_000_000


@promise("tree-kill.deadline")
def test_a_program_may_tidy_up_at_the_deadline_but_not_stay(any_tier: Arena) -> None:
    script = 'trap "echo tidy; exit 0" TERM; echo begun; sleep 30 & wait'
    tidy = overtaken(lambda limits: any_tier.run("/bin/sh", "-c", script, limits=limits), after="begun")
    assert (tidy.execution.status, tidy.output.stdout) == (Status.TIMEOUT, "begun\ntidy\n")
    program = """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        report("begun")
        time.sleep(30)
    """
    stubborn = overtaken(lambda limits: any_tier.attack(program, limits=limits), after='"begun"')
    assert (stubborn.execution.status, stubborn.execution.signal) == (Status.TIMEOUT, 9)


@promise("calls.file-limits")
def test_files_and_descriptors_are_bounded(any_tier: Arena) -> None:
    program = """
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        def descriptors():
            while True:
                os.dup(0)
        def big():
            with open("big", "wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
        found = [tried(big), os.path.getsize("big"), tried(descriptors)]
        for fd in range(3, 64):
            tried(os.close, fd)
        report(found)
    """
    limits = Limits(open_files=64, file_bytes=1 << 20, wall_ms=30_000)
    assert any_tier.attack(program, limits=limits).json == ["EFBIG", 1 << 20, "EMFILE"]
