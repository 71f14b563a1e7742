"""The start program, run for real: it becomes what it is told, or says by its nonce and exit code why it could not."""

from __future__ import annotations

import errno
import json
import os
import platform
import resource
import signal
import struct
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from palyra.sandbox.machine_code import MESSAGE_BYTES
from palyra.sandbox.start_message import Limit, start_message
from palyra.sandbox.starter import (
    CONTROL,
    MACHINES,
    NOT_TOLD,
    READY,
    assemble,
    assemble_parting,
    assemble_writer,
    is_started_by_it,
)

runs_here = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in MACHINES, reason="made for another machine"
)
NONCE = b"\x1fnever started"
TELL = """import json, os, sys
print(json.dumps([sys.argv[1:], os.environ.get("K"), os.getcwd(), sorted(os.listdir("/proc/self/fd"))]))"""
PYTHON = ("/usr/bin/python3", "-I", "-S", "-c")


@pytest.fixture(params=[False, True], ids=["alone", "first"])
def first(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def told(
    program: str,
    *arguments: str,
    env: Sequence[tuple[str, str]] = (),
    cwd: str = "/",
    limits: Sequence[Limit] = (),
) -> bytes:
    return start_message(
        program=program, arguments=arguments, env=env, cwd=cwd, limits=limits, nonce=NONCE, limit_first=False
    )


def above(fd: int) -> int:
    raised = os.dup(fd)
    lower = []
    while raised <= CONTROL:
        lower.append(raised)
        raised = os.dup(fd)
    for one in (fd, *lower):
        os.close(one)
    return raised


def run(message: bytes, *, first: bool, leaked: Sequence[int] = ()) -> tuple[int, str, bytes, bytes]:
    """(wait status, stdout, stderr, what it said)"""
    file = above(os.memfd_create("start"))
    os.write(file, assemble(platform.machine(), first=first))
    pipes = [tuple(above(fd) for fd in os.pipe()) for _ in range(4)]
    (control, feed), (out, stdout), (err, stderr), (heard, ready) = pipes
    places = {0: control, 1: stdout, 2: stderr, READY: ready, CONTROL: control}
    actions = [(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in places.items()]
    actions += [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in (file, *leaked)]
    pid = os.posix_spawn(f"/proc/self/fd/{file}", ["start"], {}, file_actions=actions)
    for fd in (file, control, stdout, stderr, ready):
        os.close(fd)
    feeding = threading.Thread(target=_feed, args=(feed, message))
    feeding.start()
    said = [_read(fd) for fd in (heard, out, err)]
    feeding.join()
    return os.waitpid(pid, 0)[1], said[1].decode(), said[2], said[0]


def _feed(fd: int, message: bytes) -> None:
    with open(fd, "wb") as pipe:
        pipe.write(message)


def _read(fd: int) -> bytes:
    with open(fd, "rb") as pipe:
        return pipe.read()


@runs_here
def test_it_becomes_the_program_with_exactly_what_it_was_told(first: bool, tmp_path: Path) -> None:
    words = ["", "it's", "a\nb", "\udcff", "x" * 5000]
    status, out, err, ready = run(
        told(*PYTHON, TELL, *words, env=(("K", "v=\udcfe'"),), cwd=str(tmp_path)), first=first
    )
    assert (status, err, ready) == (0, b"", b"r" + bytes(4) if first else b"r")
    assert json.loads(out)[:3] == [words, "v=\udcfe'", str(tmp_path)]


@runs_here
def test_nothing_that_leaked_into_it_reaches_the_program(first: bool, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    leaked = [above(os.open(secret, os.O_RDONLY)) for _ in range(2)]
    os.dup2(leaked[0], 200)
    try:
        _, out, _, _ = run(told(*PYTHON, TELL), first=first, leaked=[*leaked, 200])
    finally:
        for fd in (*leaked, 200):
            os.close(fd)
    assert json.loads(out)[3] == ["0", "1", "2", "3"], "the three streams, and the folder that is being listed"


@runs_here
def test_its_limits_are_in_force_before_the_programs_first_instruction(first: bool) -> None:
    program = "import resource as r,json;print(json.dumps([r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE)]))"
    limits = [(resource.RLIMIT_NOFILE, 40, 50), (resource.RLIMIT_CORE, 0, 0)]
    _, out, _, _ = run(told(*PYTHON, program, limits=limits), first=first)
    assert json.loads(out) == [[40, 50], [0, 0]]


@runs_here
@pytest.mark.parametrize(
    ("message", "why"),
    [
        (told("/usr/bin/no-such-program"), errno.ENOENT),
        (told("/usr/bin/true", cwd="/no/such/folder"), errno.ENOENT),
        (told("/usr"), errno.EACCES),
        (told("/usr/bin/true", limits=[(99, 0, 0)]), errno.EINVAL),
    ],
)
def test_what_cannot_be_started_is_told_by_the_nonce_and_the_errors_number(
    message: bytes, why: int, first: bool
) -> None:
    status, out, err, _ = run(message, first=first)
    assert (os.waitstatus_to_exitcode(status), out, err) == (why, "", NONCE + b"\n")


@runs_here
def test_a_script_without_a_first_line_is_not_handed_to_a_shell(first: bool, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo run\n")
    script.chmod(0o755)
    status, out, _, _ = run(told(str(script)), first=first)
    assert (os.waitstatus_to_exitcode(status), out) == (errno.ENOEXEC, "")


@runs_here
@pytest.mark.parametrize("message", [b"", b"\x01", told("/usr/bin/true")[:-1]])
def test_half_a_message_starts_nothing(message: bytes, first: bool) -> None:
    status, out, err, _ = run(message, first=first)
    assert (os.waitstatus_to_exitcode(status), out, err) == (NOT_TOLD, "", b"")


@runs_here
def test_a_message_larger_than_a_pipe_arrives_whole(first: bool) -> None:
    words = ["y" * 4096] * 128
    program = "import sys;print(sum(map(len,sys.argv[1:])),len(sys.argv))"
    _, out, _, _ = run(told(*PYTHON, program, *words), first=first)
    assert out.split() == [str(4096 * 128), "129"]


@runs_here
def test_the_first_process_ends_as_the_program_did_and_collects_the_rest() -> None:
    status, out, _, _ = run(told("/bin/sh", "-c", "(exit 3) & (exit 4) & wait; echo on; exit 7"), first=True)
    assert (os.waitstatus_to_exitcode(status), out) == (7, "on\n")
    status, _, _, said = run(told("/bin/sh", "-c", "kill -9 $$"), first=True)
    assert os.waitstatus_to_exitcode(status) == 128 + signal.SIGKILL
    assert os.waitstatus_to_exitcode(int.from_bytes(said[1:], "little")) == -signal.SIGKILL
    status, _, _, _ = run(told("/bin/sh", "-c", "kill -9 $$"), first=False)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


@runs_here
def test_the_first_process_keeps_no_stream_open() -> None:
    """Or whoever reads the program's output would wait for the sandbox's end."""
    shell = "ls /proc/$PPID/fd; echo end"
    shown = run(told("/bin/sh", "-c", shell), first=True)[1]
    assert shown in (f"{READY}\nend\n", "end\n"), "its line to us alone; closed to whoever is not root"


def test_no_page_of_it_can_be_both_written_and_executed(first: bool) -> None:
    file = assemble("x86_64", first=first)
    count = struct.unpack_from("<H", file, 56)[0]
    flags = [struct.unpack_from("<II", file, 64 + 56 * at) for at in range(count)]
    assert flags == [(1, 5), (1, 6), (0x6474E551, 6)]
    assert len(file) < 4096, "one page, so that it costs next to nothing"


def test_a_machine_it_is_not_made_for_has_none() -> None:
    with pytest.raises(KeyError):
        assemble("sparc64", first=True)
    assert not is_started_by_it(())


@pytest.mark.parametrize(
    "wrong",
    [
        {"program": "true"},
        {"cwd": "x"},
        {"env": (("A=B", "x"),)},
        {"env": (("A", "x\0"),)},
        {"arguments": ("\0",)},
        {"arguments": ("x" * MESSAGE_BYTES,)},
    ],
)
def test_what_no_exec_can_carry_is_refused(wrong: dict[str, object]) -> None:
    right: dict[str, object] = {"program": "/bin/true", "arguments": (), "env": (), "cwd": "/", "limits": ()}
    with pytest.raises(ValueError, match=r".+"):
        start_message(**(right | wrong), nonce=b"n", limit_first=True)  # type: ignore[arg-type]


@runs_here
def test_the_writer_writes_its_text_and_says_whether_it_did(tmp_path: Path) -> None:
    def ends_with(path: Path) -> int:
        file = above(os.memfd_create("writer"))
        os.write(file, assemble_writer(platform.machine(), str(path), b"42\n"))
        pid = os.posix_spawn(f"/proc/self/fd/{file}", ["writer"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, file, file)])
        os.close(file)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    there = tmp_path / "there"
    there.touch()
    assert (ends_with(there), there.read_text()) == (0, "42\n")
    assert ends_with(tmp_path / "missing") == NOT_TOLD


@runs_here
def test_the_parting_says_so_where_there_is_no_namespace_to_enter() -> None:
    file = above(os.memfd_create("parting"))
    os.write(file, assemble_parting(platform.machine()))
    actions = [(os.POSIX_SPAWN_DUP2, file, file)]
    pid = os.posix_spawn(f"/proc/self/fd/{file}", ["parting"], {}, file_actions=actions)
    os.close(file)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == NOT_TOLD
    with pytest.raises(KeyError):
        assemble_parting("pdp11")
