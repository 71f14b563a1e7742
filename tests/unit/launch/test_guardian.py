"""Who ends plain children when their engine is killed: it reaches all of them and nobody else; none reaches it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from palyra.launch import _os
from palyra.launch._os import _guardian
from palyra.launch._os._guardian import SCRIPT, Hands, start_guarded
from palyra.model.plan import LandlockRules
from palyra.sandbox.probe_kernel import try_landlock
from tests.children import child_environ
from tests.keeping import command_line, processes_with, wait_for
from tests.promises import promise

ABI = try_landlock()
needs_scopes = pytest.mark.skipif(ABI < 6, reason="this kernel's Landlock does not scope signals")
ENGINE = """
import os, signal, sys, time
from palyra.launch import _os
from palyra.model.plan import LandlockRules

place, mark, *how = sys.argv[1:]
null = os.open("/dev/null", os.O_RDWR)
os.setsid()
rules = LandlockRules(abi={abi}, writable=place, runnable=("/usr", "/bin", "/lib", "/lib64"), readable=(),
                      devices=("/dev/null",), tcp=True)
for number in range(2):
    line = f"(setsid sleep {{mark}}1 &) ; sleep {{mark}}2 & exec sleep {{mark}}3"
    _os.spawn_confined(["/bin/sh", "-c", line], places={{0: null, 1: null, 2: null}}, drop_capabilities=False,
                       landlock=rules, shell="/bin/sh")
if "forks" in how and not os.fork():
    time.sleep(60)
if "leaves" in how:
    _os.end_helpers()
sys.stdout.write("ready\\n")
sys.stdout.flush()
time.sleep(60)
"""


@pytest.fixture
def mark() -> Iterator[str]:
    """A number of seconds that nobody else sleeps; whatever a test does, nobody who does outlives it."""
    number = f"71.{os.getpid()}{os.urandom(2).hex()}".translate(str.maketrans("abcdef", "012345"))
    yield number
    for pid in processes_with(f"sleep\0{number}"):
        os.kill(pid, signal.SIGKILL)


def engine(place: Path, mark: str, *how: str) -> subprocess.Popen[str]:
    program = ENGINE.format(abi=ABI)
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(place.resolve()), mark, *how],
        env=child_environ(), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    wait_for(lambda: len(processes_with(f"sleep\0{mark}")) == 6)
    return child


def guardians_of(pid: int) -> list[int]:
    return [child for child in processes_with(SCRIPT) if _os.parent(child) == pid]


@promise("sandbox.killed-engine")
@needs_scopes
@pytest.mark.parametrize("how", ["alone", "forks"])
def test_kill_9_of_an_engine_ends_its_plain_children_and_their_double_forks(
    tmp_path: Path, mark: str, how: str
) -> None:
    """A fork of an embedding program that lives on holds nothing up."""
    bystander = subprocess.Popen(["sleep", "60"])
    child = engine(tmp_path, mark, how)
    guardians = guardians_of(child.pid)
    forks = [pid for pid in _os.children(child.pid) if b"python" in command_line(pid)]
    try:
        assert len(guardians) == 1
        child.kill()
        wait_for(lambda: not processes_with(f"sleep\0{mark}"))
        wait_for(lambda: not command_line(guardians[0]))
        assert bystander.poll() is None
        assert [bool(command_line(pid)) for pid in forks] == [True] * (how == "forks")
    finally:
        for pid in forks:
            os.kill(pid, signal.SIGKILL)
        child.kill()
        child.communicate()
        bystander.kill()
        bystander.wait()


@needs_scopes
def test_what_others_still_run_stays_guarded_when_an_executor_ends(tmp_path: Path, mark: str) -> None:
    child = engine(tmp_path, mark, "leaves")
    assert len(guardians_of(child.pid)) == 1
    child.kill()
    child.communicate()
    wait_for(lambda: not processes_with(f"sleep\0{mark}"))


def spawn(place: Path, line: str, out: int) -> None:
    rules = LandlockRules(
        abi=ABI, writable=str(place.resolve()), runnable=("/usr", "/bin", "/lib", "/lib64"), readable=(),
        devices=("/dev/null",), tcp=True,
    )  # fmt: skip
    null = _os.raised(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    try:
        confined = _os.spawn_confined(
            ["/bin/sh", "-c", line], places={0: null, 1: out, 2: null}, drop_capabilities=False, landlock=rules,
            shell="/bin/sh",
        )  # fmt: skip
    finally:
        os.close(null)
    assert confined.domain is not None
    confined.domain.close()
    os.waitpid(confined.pid, 0)


@promise("sandbox.killed-engine")
@needs_scopes
def test_a_program_cannot_signal_it_may_move_files_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "file").write_text("moved")
    try:
        spawn(tmp_path, "true", 2)
        (first,) = guardians_of(os.getpid())
        read, write = _os.pipe()
        tries = f"for n in 0 TERM KILL STOP; do kill -$n {first} || echo no; done"
        spawn(tmp_path, f"cd {tmp_path.resolve()}; mv a/file b/file; {tries}", write)
        os.close(write)
        with os.fdopen(read) as said:
            assert said.read() == "no\n" * 4
        assert (tmp_path / "b" / "file").read_text() == "moved"
        assert guardians_of(os.getpid()) == [first], "one for all"
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: not command_line(first))

        def is_replaced() -> bool:  # whose thread may be a moment behind the kernel
            spawn(tmp_path, "true", 2)
            return bool(guardians_of(os.getpid()))

        wait_for(is_replaced)
        (second,) = guardians_of(os.getpid())
        assert second != first
    finally:
        _os.end_helpers()
    assert guardians_of(os.getpid()) == []
    assert not any(thread.name == "palyra-guardian" and thread.is_alive() for thread in _settled())


def _settled() -> list[threading.Thread]:
    for thread in threading.enumerate():
        if thread.name == "palyra-guardian":
            thread.join(5)
    return threading.enumerate()


def test_in_no_domain_it_kills_nobody_and_leaves() -> None:
    """The one mistake that must never be made: everyone on the machine would be gone."""
    assert subprocess.run(["/bin/sh", "-c", SCRIPT], stdin=subprocess.DEVNULL, timeout=30).returncode == 1


def test_a_domain_that_the_collector_closes_in_the_thread_that_is_asked_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever asked has the lock and waits for that thread."""
    monkeypatch.setattr(_guardian, "_state", _guardian._State())
    closing: list[Callable[[], None]] = []

    def spawn(_: int) -> int:
        while closing:
            closing.pop()()
        return 0  # nobody has the other end of its line, so it is started again the next time

    hands = Hands(enter=lambda: None, spawn=spawn, reap=lambda pid: None)
    closing.append(start_guarded(threading.Thread(target=lambda: None), hands))
    answers: list[Callable[[], None]] = []
    asking = threading.Thread(
        target=lambda: answers.append(start_guarded(threading.Thread(target=lambda: None), hands)), daemon=True
    )
    asking.start()
    asking.join(10)
    assert (len(answers), closing) == (1, [])
    answers[0]()
    _guardian.end_guardian()
    _settled()


@pytest.fixture
def short_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """As if there were no room for a thread of that name."""
    start = threading.Thread.start

    def lack(name: str) -> None:
        def start_or_not(thread: threading.Thread) -> None:
            if thread.name == name:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_or_not)

    monkeypatch.setattr(_guardian, "_state", _guardian._State())
    return lack


@needs_scopes
@pytest.mark.parametrize("name", ["palyra-confined", "palyra-confining"])
def test_where_there_is_no_room_for_a_thread_that_is_said_as_the_kernel_says_it(
    tmp_path: Path, short_of: Callable[[str], None], name: str
) -> None:
    """It was an error that nobody expects of a start, so the call failed inside Palyra, without a hint."""
    short_of(name)
    try:
        with pytest.raises(OSError, match="no thread can be started") as refused:
            spawn(tmp_path, "true", 2)
        assert refused.value.errno == errno.EAGAIN
    finally:
        _os.end_helpers()
    assert guardians_of(os.getpid()) == []


@needs_scopes
def test_where_there_is_no_room_for_its_own_thread_children_are_started_all_the_same(
    tmp_path: Path, short_of: Callable[[str], None]
) -> None:
    short_of("palyra-guardian")
    spawn(tmp_path, "true", 2)
    assert guardians_of(os.getpid()) == []


@pytest.mark.parametrize("missing", ["enter", "spawn"])
def test_where_there_can_be_none_children_are_started_all_the_same(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError("no room")

    monkeypatch.setattr(_guardian, "_state", _guardian._State())
    hands = Hands(
        enter=refuse if missing == "enter" else lambda: None,  # type: ignore[arg-type]
        spawn=refuse,
        reap=lambda pid: None,
    )
    ran = threading.Event()
    over = start_guarded(threading.Thread(target=ran.set), hands)
    assert ran.wait(10)
    over()
    _guardian.end_guardian()
    _settled()
