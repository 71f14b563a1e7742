"""Attacks on what a dispatch may do: stale tokens, replays, second answers, silence, and a daemon that stood still."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.cluster import dispatching
from palyra.cluster.dispatching import NodeLost
from palyra.cluster.fence import Fence
from palyra.cluster.node import BUSY, END, REFUSED, STDOUT
from palyra.cluster.placing import Place
from palyra.errors import Reason, TrustError
from palyra.model.outcome import Status
from tests.cluster.machines import Machines, frames_of, plan_of, run
from tests.conformance.arena import Kept

TAKEN = REFUSED + b"This dispatch was already taken."


def bring_again(machines: Machines, name: str, order: bytes) -> list[bytes]:
    async def frames() -> list[bytes]:
        return [frame async for frame in frames_of(machines.nodes[name], order)]

    return asyncio.run(frames())


# ── the fence ────────────────────────────────────────────────────────────────


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 30), st.integers(0, 30)), max_size=40))
def test_no_epoch_passes_twice_however_little_is_remembered_and_however_clocks_go(brought):
    """A token's end is signed with it, so a dispatch and an epoch always come with the same one."""
    fence, passed = Fence(remembered=3), set()
    for number, epoch, end, now in brought:
        expires = 10 * end + number + epoch  # another end for each, so that one token is one value here
        token = (f"d{number}", epoch, expires)
        if now >= expires:
            continue  # the token is over: it does not come as far as the fence
        try:
            fence.pass_once(f"d{number}", epoch, expires_unix_ms=expires, now_unix_ms=now)
        except TrustError:
            continue
        assert token not in passed
        passed.add(token)


def test_what_is_forgotten_for_want_of_room_is_not_taken_again():
    fence = Fence(remembered=2)
    for number in range(5):
        fence.pass_once(f"d{number}", 1, expires_unix_ms=1000 + number, now_unix_ms=0)
    for number in range(5):
        with pytest.raises(TrustError, match="already taken"):
            fence.pass_once(f"d{number}", 1, expires_unix_ms=1000 + number, now_unix_ms=0)
    fence.pass_once("new", 1, expires_unix_ms=2000, now_unix_ms=0)
    fence.pass_once("new", 2, expires_unix_ms=2000, now_unix_ms=0)


def test_a_clock_that_is_set_back_opens_nothing_again():
    fence = Fence()
    fence.pass_once("d", 1, expires_unix_ms=1000, now_unix_ms=0)
    fence.pass_once("later", 1, expires_unix_ms=9000, now_unix_ms=2000)  # `d` is over, and forgotten
    with pytest.raises(TrustError, match="already taken"):
        fence.pass_once("d", 1, expires_unix_ms=1000, now_unix_ms=500)


# ── stale tokens and replays ─────────────────────────────────────────────────


def test_an_order_from_before_a_node_began_anew_is_refused_by_it(machines, workspace):
    """It has forgotten what it had; somebody who may speak to Ray kept the order and brings it again."""
    machines.add("one")
    run(machines, workspace, "echo once >> effect")
    ((_, order),) = machines.orders
    old = machines.nodes.pop("one")
    shutil.rmtree(machines.folder / "one")
    machines.placement.lose("one")
    new = machines.add("one")
    new.key = old.key
    assert bring_again(machines, "one", order) == [REFUSED + b"The dispatch was made before this node was started."]
    assert not any((machines.folder / "one").iterdir())  # not even a copy was made


def test_an_order_that_found_no_slot_is_not_run_when_it_is_brought_again(machines, workspace):
    """Its daemon has sent it elsewhere by then, with the next epoch."""
    node = machines.add("one", slots=1)
    machines.add("two", slots=1)
    node.draining = True
    machines.placement.places["two"].taking = False

    async def scenario() -> Any:
        task = asyncio.ensure_future(machines.executor().run(plan_of(workspace, "echo once >> effect"), Kept()))
        while not machines.orders:
            await asyncio.sleep(0.01)
        machines.placement.places["two"].taking = True
        return await task

    assert asyncio.run(scenario()).ran.node_id == "two"
    node.draining = False
    refused = [order for name, order in machines.orders if name == "one"]
    assert [bring_again(machines, "one", order) for order in refused] == [[TAKEN]] * len(refused)
    assert (workspace / "effect").read_text() == "once\n"
    assert BUSY not in (frame for order in refused for frame in bring_again(machines, "one", order))


# ── answers ──────────────────────────────────────────────────────────────────


class Answering(Machines):
    """Keeps every answer, and sends what a test says in its place."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.answers: list[bytes] = []

    async def send(self, node_id: str, order: bytes) -> AsyncGenerator[bytes, None]:
        async for frame in super().send(node_id, order):
            if frame[:1] == END:
                self.answers.append(frame)
                for other in self.instead(frame):
                    yield other
            else:
                yield frame

    def instead(self, frame: bytes) -> list[bytes]:
        return [frame]


def test_a_node_that_answers_twice_is_heard_once(machines, workspace):
    class Twice(Answering):
        def instead(self, frame: bytes) -> list[bytes]:
            return [frame, *self.answers[:1], frame]

    twice = Twice(machines.folder)
    twice.add("one")
    for number in range(3):
        execution, output = run(twice, workspace, f"echo {number}; echo {number} >> log")
        assert (execution.exit_code, output.stdout) == (0, f"{number}\n")
    assert (workspace / "log").read_text() == "0\n1\n2\n"


def test_an_answer_to_an_earlier_call_counts_for_no_other(machines, workspace):
    class Older(Answering):
        def instead(self, frame: bytes) -> list[bytes]:
            return [self.answers[0]]

    older = Older(machines.folder)
    older.add("one")
    assert run(older, workspace, "echo first > there")[0].exit_code == 0
    execution, _ = run(older, workspace, "echo second > there")
    assert (execution.status, execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    assert (workspace / "there").read_text() == "first\n"


def test_a_node_that_was_lost_and_comes_back_with_its_late_answer_is_not_believed(machines, workspace):
    """Its first answer, of epoch 1, in the place of its answer to epoch 2."""

    class Late(Answering):
        async def send(self, node_id: str, order: bytes) -> AsyncGenerator[bytes, None]:
            first = not self.answers
            async for frame in super().send(node_id, order):
                if first and frame[:1] == END:
                    self.placement.add(self.place)
                    raise NodeLost
                yield frame

        def instead(self, frame: bytes) -> list[bytes]:
            return [self.answers[0]]

    late = Late(machines.folder)
    node = late.add("one")
    late.place = Place(node_id="one", key=node.key.public, start=node.start, slots=4, tiers=frozenset({"C"}))
    late.placement.lose = lambda node_id: None  # type: ignore[method-assign]  # it is back at once
    execution, _ = run(late, workspace, "echo x > there")
    assert (execution.status, execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    assert "epoch 1; the current epoch is 2" in execution.message
    assert not (workspace / "there").exists()


@pytest.mark.parametrize("way", ["silent", "endless"])
def test_a_node_that_stands_still_or_never_ends_holds_no_call_for_ever(machines, workspace, monkeypatch, way):
    monkeypatch.setattr(dispatching, "SLACK_MS", 300)
    monkeypatch.setattr(dispatching, "LATE_S", 0.1)

    class Still(Machines):
        cancelled: tuple[str, ...] = ()

        async def send(self, node_id: str, order: bytes) -> AsyncGenerator[bytes, None]:
            if self.orders:
                async for frame in super().send(node_id, order):
                    yield frame
                return
            self.orders.append((node_id, order))
            while True:
                await asyncio.sleep(0.01)
                if way == "endless":
                    yield STDOUT

        def cancel(self, node_id: str, dispatch_id: str) -> None:
            self.cancelled += (node_id,)

    still = Still(machines.folder)
    for name in ("one", "two"):
        still.add(name)
    execution, output = run(still, workspace, "echo once | tee -a effect", wall_ms=700)
    (first, _), (second, _) = still.orders
    assert (execution.exit_code, output.stdout, execution.ran.node_id) == (0, "once\n", second)
    assert (still.cancelled, first != second) == ((first,), True)
    assert (workspace / "effect").read_text() == "once\n"


# ── a daemon that stood still ────────────────────────────────────────────────


def test_a_daemon_that_was_taken_for_dead_brings_nothing_home(machines, workspace):
    machines.add("one")

    async def scenario() -> Any:
        call = plan_of(workspace, "echo begun; sleep 0.3; echo x > there")
        task = asyncio.ensure_future(machines.executor().run(call, output := Kept()))
        while not output.stdout:
            await asyncio.sleep(0.01)
        machines.tenure.count += 1
        return await task

    execution = asyncio.run(scenario())
    assert (execution.status, execution.reason) == (Status.FAILED, Reason.INTERRUPTED)
    assert not (workspace / "there").exists()
    assert run(machines, workspace, "echo x > there")[0].exit_code == 0  # what it begins afterwards is its own


def test_a_plan_that_was_read_before_is_still_held_against_its_digest(machines, workspace):
    """A node keeps plans by their digests: the one that is kept is never taken for another one's."""
    machines.add("one")
    for script in ("echo a", "echo b", "echo a"):
        execution, output = run(machines, workspace, script)
        assert (execution.exit_code, output.stdout) == (0, f"{script[-1]}\n")
    plan = plan_of(workspace, "echo a")
    executor = machines.executor()
    outputs = []
    for one in (plan, replace(plan, argv=("sh", "-c", "echo c")), plan):
        asyncio.run(executor.run(one, output := Kept()))
        outputs.append(output.stdout)
    assert outputs == ["a\n", "c\n", "a\n"]
