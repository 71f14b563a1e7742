"""What an attacker with time found: limits shed through the first process, files emptied through the launcher."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path

import pytest

from palyra.launch.executor import WorkspaceMoved
from palyra.model.limits import MIB, Limits
from palyra.model.outcome import Status
from palyra.sandbox.starter import START_FILE
from tests.conformance.arena import Arena
from tests.promises import promise

pytestmark = pytest.mark.slow


@promise("sandbox.first-process")
def test_no_process_inside_has_a_higher_limit_than_the_plan(tier_c: Arena) -> None:
    """A program could write its own code into the first process, which has its uid, and run on without any limit."""
    limits = Limits(wall_ms=30_000, cpu_ms=7000, memory_bytes=256 * MIB, open_files=99, file_bytes=MIB, processes=77)
    found = tier_c.attack(
        """
        import resource
        def limits(pid):
            rows = read(f"/proc/{pid}/limits").splitlines()[1:]
            names = ("Max cpu time", "Max data size", "Max open files", "Max file size", "Max core file size")
            return {row[:26].strip(): row[26:46].strip() for row in rows if row[:26].strip() in names}
        report([limits(1), limits("self")])
        """,
        limits=limits,
    ).json
    assert found[0] == found[1]
    assert found[0]["Max open files"] == "99"


@promise("sandbox.first-process")
def test_the_first_process_has_no_more_than_the_program(tier_c: Arena) -> None:
    """It has the program's uid, so whatever it had, a program could have."""
    found = tier_c.attack(
        """
        import signal
        def walls(pid):
            rows = dict(line.split(":", 1) for line in read(f"/proc/{pid}/status").splitlines())
            return [rows[name].strip() for name in ("NoNewPrivs", "Seccomp", "CapEff", "CapPrm", "CapBnd", "Uid")]
        for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
            os.kill(1, number)
        report({"first": walls(1), "own": walls("self"), "open": tried(os.listdir, "/proc/1/fd"),
                "reopened": tried(os.open, "/proc/1/fd/8", os.O_WRONLY),
                "memory": [tried(os.open, "/proc/1/mem", flags) for flags in (os.O_RDONLY, os.O_RDWR)],
                "words": read("/proc/1/cmdline")})
        """
    )
    if found.plan.launcher[-1] != START_FILE:
        pytest.skip("a shell is held here, and the launcher is the first process")
    assert found.json["first"] == found.json["own"]
    assert found.json["words"] == f"{START_FILE}\0"
    assert found.json["open"] in (["8"], "EACCES"), "nothing but its line to us"
    assert found.json["reopened"] in ("EACCES", "ENXIO"), "which is a socket, and closed to others"
    assert found.json["memory"] in (["EACCES", "EACCES"], ["EACCES", "EROFS"])


@promise("sandbox.never-started")
def test_a_program_that_ran_cannot_have_it_attested_that_it_never_began(tier_c: Arena) -> None:
    """The nonce that means so stays in the first process's memory: who reads it there writes it, and has not run."""
    found = tier_c.attack(
        """
        import struct
        try:
            memory = os.open("/proc/1/mem", os.O_RDONLY)
            head = struct.unpack("<8Q", os.pread(memory, 64, 0x10000000))
            os.write(2, os.pread(memory, head[6], head[5]))
        except OSError:
            report("not read")
        """
    )
    assert (found.execution.status, found.json) == (Status.COMPLETED, "not read")


@promise("fs-isolated.swapped-mount")
def test_a_link_put_over_a_hidden_file_meanwhile_cannot_empty_a_file_outside(tier_c: Arena) -> None:
    """The launcher used to make the mount point by name, and a swapped link led it to any file of the user's."""
    victim = tier_c.outside / "precious"
    victim.write_text("x" * 5000)
    env, other = tier_c.workspace / ".env", tier_c.workspace / "other"
    env.symlink_to(tier_c.outside / "missing")
    other.symlink_to(f"/oldroot{victim}")
    tier_c.give(victim, env, other)
    stop = threading.Event()
    swapper = threading.Thread(target=_exchange, args=(env, other, stop))
    swapper.start()
    try:
        ends = {tier_c.run("/usr/bin/true", masked=(str(env),)).execution.status for _ in range(8)}
    finally:
        stop.set()
        swapper.join()
    assert ends == {Status.FAILED}, "a link is never mounted over"
    assert victim.read_text() == "x" * 5000
    assert sorted(path.name for path in tier_c.outside.iterdir()) == ["precious", "secret"]


def _exchange(first: Path, second: Path, stop: threading.Event) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    while not stop.is_set():
        libc.renameat2(-100, os.fsencode(first), -100, os.fsencode(second), 2)


@promise("fs-isolated.swapped-mount")
def test_a_folder_cannot_be_mounted_over_the_system_through_a_swapped_name(tier_c: Arena) -> None:
    """The held shell itself would then come from the attacker's folder, before any limit is set."""
    payload, github = tier_c.workspace / "payload", tier_c.workspace / ".github"
    payload.mkdir()
    github.symlink_to("/newroot/usr/bin")
    tier_c.give(payload, github)
    done = tier_c.run("/usr/bin/true", protected=(str(github),))
    assert done.execution.status is Status.FAILED
    assert "changed while" in (done.execution.message or "")
    assert done.execution.hint == WorkspaceMoved.hint
