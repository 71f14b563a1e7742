"""What is left of an ended sandbox is let go: soon, at the latest with its executor, and never by blocking the loop."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading

import pytest

from palyra.launch import leftovers as module
from palyra.launch.leftovers import Leftovers
from palyra.launch.waiting import ends_within


def open_null() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def is_open(fd: int) -> bool:
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_they_are_let_go_a_moment_later_on_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    real = module._close_all
    monkeypatch.setattr(module, "_close_all", lambda fds: (threads.append(threading.current_thread()), real(fds)))

    async def story() -> list[bool]:
        kept, fds = Leftovers(), [open_null(), open_null()]
        for fd in fds:
            kept.keep(fds=[fd])
        before = [is_open(fd) for fd in fds]
        await asyncio.sleep(module.LET_GO_AFTER_S * 4)
        await asyncio.get_running_loop().shutdown_default_executor()
        return before + [is_open(fd) for fd in fds]

    assert asyncio.run(story()) == [True, True, False, False]
    assert threads[0] is not threading.main_thread()


def test_what_was_expected_is_let_go_no_later() -> None:
    async def story(kept: Leftovers, *, waits: bool) -> list[bool]:
        fd = open_null()
        kept.expect()
        if waits:  # a program that ran longer than its time was set for
            await asyncio.sleep(module.LET_GO_AFTER_S * 4)
        kept.keep(fds=[fd])
        before = is_open(fd)
        await asyncio.sleep(module.LET_GO_AFTER_S * 4)
        await asyncio.get_running_loop().shutdown_default_executor()
        return [before, is_open(fd)]

    assert [asyncio.run(story(Leftovers(), waits=waits)) for waits in (False, True)] == [[True, False]] * 2


@pytest.mark.parametrize("expects", [True, False])
def test_what_a_call_of_another_loop_expected_delays_nothing(expects: bool) -> None:
    async def begin(kept: Leftovers) -> None:
        kept.expect()  # and the call came to nothing

    async def story(kept: Leftovers, fd: int) -> bool:
        if expects:
            kept.expect()
        kept.keep(fds=[fd])
        await asyncio.sleep(module.LET_GO_AFTER_S * 4)
        await asyncio.get_running_loop().shutdown_default_executor()
        return is_open(fd)

    kept = Leftovers()
    asyncio.run(begin(kept))
    assert not asyncio.run(story(kept, open_null()))


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_a_loop_that_ends_first_loses_none(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LET_GO_AFTER_S", 60.0)

    async def story(kept: Leftovers, fd: int) -> None:
        kept.keep(fds=[fd])

    kept, fd = Leftovers(), open_null()
    asyncio.run(story(kept, fd))
    assert is_open(fd)
    if how == "closed":
        kept.close()
    else:
        del kept
        gc.collect()
    assert not is_open(fd)


def test_the_next_loop_lets_go_what_the_last_one_left() -> None:
    kept, fds = Leftovers(), [open_null(), open_null()]

    async def story(fd: int, *, patience_s: float) -> None:
        kept.keep(fds=[fd])
        await asyncio.sleep(patience_s)

    asyncio.run(story(fds[0], patience_s=0))
    asyncio.run(asyncio.sleep(module.LET_GO_AFTER_S * 2))
    asyncio.run(story(fds[1], patience_s=module.LET_GO_AFTER_S * 4))
    assert [is_open(fd) for fd in fds] == [False, False]


def ended_child() -> tuple[int, int]:
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", ":"], {})
    return pid, os.pidfd_open(pid)


@pytest.mark.parametrize("how", ["in time", "closed", "dropped"])
def test_a_launcher_that_was_left_is_reaped(how: str) -> None:
    async def story(kept: Leftovers, pid: int, pidfd: int) -> None:
        kept.keep(launcher=(pid, pidfd))
        if how == "in time":
            await asyncio.sleep(module.LET_GO_AFTER_S * 4)
            await asyncio.get_running_loop().shutdown_default_executor()

    kept, (pid, pidfd) = Leftovers(), ended_child()
    asyncio.run(story(kept, pid, pidfd))
    if how == "closed":
        kept.close()
    elif how == "dropped":
        del kept
        gc.collect()
    assert not is_open(pidfd)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_a_launcher_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END_S", 0.05)
    pid = os.posix_spawn("/bin/sleep", ["sleep", "100"], {})
    module._let_go_of([], [(pid, os.pidfd_open(pid))])
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, 0)


def test_one_that_somebody_else_reaped_is_nobody_elses_by_its_number() -> None:
    pid, pidfd = ended_child()
    os.waitpid(pid, 0)
    module._let_go_of([], [(pid, pidfd)])
    assert not is_open(pidfd)


def test_what_waits_for_nobody_is_let_go_in_place() -> None:
    async def story(kept: Leftovers) -> list[bool]:
        fd, (pid, pidfd), (slow, slow_pidfd) = open_null(), ended_child(), unended_child()
        assert ends_within(pidfd, 5)
        kept.keep(fds=[fd])
        kept.keep(launcher=(slow, slow_pidfd))
        kept.keep(launcher=(pid, pidfd))
        kept.let_go_here()  # one of them has not ended: nobody waits for it here
        waited = [is_open(one) for one in (fd, pidfd, slow_pidfd)]
        os.kill(slow, signal.SIGKILL)
        assert ends_within(slow_pidfd, 5)
        kept.let_go_here()
        return waited + [is_open(one) for one in (fd, pidfd, slow_pidfd)]

    assert asyncio.run(story(Leftovers())) == [True] * 3 + [False] * 3


def test_what_a_program_had_the_time_to_fill_is_never_let_go_in_place() -> None:
    """A million files in its private folders: whoever lets go of them waits for seconds, and every caller with it."""

    async def story(kept: Leftovers) -> list[bool]:
        small, large = open_null(), open_null()
        kept.keep(fds=[large], ran_s=module.SHORT_S * 2)
        kept.keep(fds=[small], ran_s=module.SHORT_S / 2)
        kept.let_go_here()
        before = [is_open(fd) for fd in (small, large)]
        await asyncio.sleep(module.LET_GO_AFTER_S * 4)
        await asyncio.get_running_loop().shutdown_default_executor()
        kept.keep(fds=[small := open_null()], ran_s=module.SHORT_S / 2)
        kept.let_go_here()  # what was large is gone by now
        return before + [is_open(fd) for fd in (small, large)]

    assert asyncio.run(story(Leftovers())) == [True, True, False, False]


def test_without_a_thread_to_be_had_it_is_let_go_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(*_: object) -> None:
        raise OSError(24, "Too many open files")

    async def story(kept: Leftovers, fd: int, launcher: tuple[int, int]) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", no_thread)
        kept.keep(fds=[fd], launcher=launcher)
        await asyncio.sleep(module.LET_GO_AFTER_S * 4)

    fd, (pid, pidfd) = open_null(), ended_child()
    asyncio.run(story(Leftovers(), fd, (pid, pidfd)))
    assert [is_open(one) for one in (fd, pidfd)] == [False, False]


def unended_child() -> tuple[int, int]:
    pid = os.posix_spawn("/bin/sleep", ["sleep", "100"], {})
    return pid, os.pidfd_open(pid)


@pytest.mark.parametrize("how", ["in time", "closed", "dropped"])
def test_the_thread_of_an_empty_domain_ends_after_the_answer(how: str) -> None:
    class Domain:
        closed = 0

        def close(self) -> None:
            self.closed += 1

    async def story(kept: Leftovers, domain: Domain) -> None:
        kept.keep(domain=domain)  # type: ignore[arg-type]
        assert not domain.closed
        if how == "in time":
            await asyncio.sleep(module.LET_GO_AFTER_S * 4)
            assert domain.closed

    kept, domain = Leftovers(), Domain()
    asyncio.run(story(kept, domain))
    if how == "closed":
        kept.close()
    del kept
    gc.collect()
    assert domain.closed == 1
