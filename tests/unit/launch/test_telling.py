"""What a held sandbox is told, and that it is told: with pipes in place of a sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from palyra.launch import limits, telling
from palyra.launch.executor import LaunchFailed
from palyra.launch.held import Held
from palyra.launch.limits import own_limits
from palyra.launch.telling import Order, Orders, make_order, tell
from palyra.model.call import Tier
from palyra.model.net import EgressMode, NetGrant
from palyra.sandbox.planner import plan_job
from tests.unit.sandbox.jobs import make_host, make_job

LARGE = b"x" * 100_000
"""More than a pipe takes at once."""


@pytest.fixture
def held() -> Iterator[Held]:
    made = Held()
    made.ceilings = own_limits()
    yield made
    made.close()


def listened_to(held: Held) -> int:
    """Where its first process would listen."""
    read, held.control = os.pipe()
    return read


def read_all(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def test_an_order_has_a_nonce_of_its_own_in_its_message(held: Held) -> None:
    host = make_host(starter=True)
    first, second = (make_order(held, plan_job(make_job(), host), host) for _ in range(2))
    assert first.nonce != second.nonce
    assert first.nonce in first.message
    assert first.message.replace(first.nonce, b"") == second.message.replace(second.nonce, b"")


def test_a_plan_that_comes_again_says_the_same_with_another_nonce(held: Held) -> None:
    host = make_host(starter=True)
    plan, orders = plan_job(make_job(), host), Orders(host)
    first, second = (orders.make(held, plan) for _ in range(2))
    assert first.nonce != second.nonce
    assert len(first.nonce) == len(second.nonce)
    assert first.message.replace(first.nonce, second.nonce) == second.message
    other = orders.make(held, plan_job(make_job(argv=("git", "log")), host))
    assert other.message.replace(other.nonce, first.nonce) != first.message


def test_a_sandbox_that_inherited_other_limits_is_told_its_own(held: Held) -> None:
    host, other = make_host(starter=True), Held()
    plan, orders = plan_job(make_job(), host), Orders(host)
    orders.make(held, plan)
    other.ceilings = tuple((min(soft, 7) if soft >= 0 else 7, 7) for soft, _ in held.ceilings)
    given = orders.make(other, plan)
    made = make_order(other, plan, host)
    assert given.message.replace(given.nonce, made.nonce) == made.message


def test_limits_that_count_what_else_runs_are_counted_each_time(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    host = make_host(starter=True, uid=1000, landlock_abi=7)
    plan = plan_job(make_job(tier=Tier.B, net=NetGrant(EgressMode.NONE)), host)
    orders, counts = Orders(host), iter((10, 20))
    monkeypatch.setattr(limits, "tasks_of", lambda _: next(counts))
    first, second = (orders.make(held, plan) for _ in range(2))
    assert first.message.replace(first.nonce, second.nonce) != second.message


def test_what_is_kept_of_plans_is_bounded(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "MAX_KNOWN", 3)
    host = make_host(starter=True)
    orders = Orders(host)
    for number in range(10):
        orders.make(held, plan_job(make_job(argv=("git", str(number))), host))
    orders.make(held, plan_job(make_job(argv=("git", "x" * telling.MAX_KNOWN_BYTES)), host))
    assert len(orders._known) == 3


def test_a_shells_order_limits_processes_that_must_be_there(held: Held) -> None:
    """A start program sets limits itself, so that its order can be made before it is there."""
    host = make_host()
    held.init = held.program = 2**22 + 1  # above every number that a process can have
    with pytest.raises(LaunchFailed, match="ended before the program could be started"):
        make_order(held, plan_job(make_job(), host), host)


def test_what_no_program_can_be_given_is_a_launch_that_failed(held: Held) -> None:
    host = make_host(starter=True)
    plan = plan_job(make_job(argv=("git", "a\0b")), host)
    with pytest.raises(LaunchFailed, match="holds a NUL"):
        make_order(held, plan, host)


@pytest.mark.parametrize("message", [b"short", LARGE], ids=["short", "large"])
def test_a_waiting_launcher_goes_on_and_finds_the_whole_message(held: Held, message: bytes) -> None:
    read, (let_go, held.block) = listened_to(held), os.pipe()
    held.init = 7

    async def story() -> bytes:
        reading = asyncio.create_task(asyncio.to_thread(read_all, read))
        await tell(held, Order(message=message, nonce=b"n"), subreaper=False)
        return await reading

    assert asyncio.run(story()) == message
    assert (read_all(let_go), held.program, held.control, held.block) == (b"x", 7, -1, -1)


@pytest.mark.parametrize("message", [b"short", LARGE], ids=["short", "large"])
def test_where_nobody_listens_any_more_the_launch_failed(held: Held, message: bytes) -> None:
    os.close(listened_to(held))
    with pytest.raises(LaunchFailed, match="ended before"):
        asyncio.run(tell(held, Order(message=message, nonce=b"n"), subreaper=False))
