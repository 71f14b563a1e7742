"""Both ends of the keeper's socket, with a supervisor that keeps nothing: greetings, answers, errors, hanging up."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Reason, Rejected, StateError
from palyra.launch import keeper_client
from palyra.launch.keeper import Keeper
from palyra.launch.keeper_client import KeeperClient
from palyra.launch.keeper_message import BrokenLine, error_from, error_json, read_frame
from palyra.model.process import BackgroundProcess, NotStarted, ProcessOwner, StartOrder
from tests.unit.launch.orders import make_order, make_process


class Supervisor:
    """Says what it was asked, and answers as told."""

    def __init__(self, answer: Callable[[StartOrder], Any] = make_process) -> None:
        self.kept = 0
        self.failure: StateError | None = None
        self.asked: list[tuple[Any, ...]] = []
        self.answer = answer
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def start(self, order: StartOrder) -> BackgroundProcess:
        self.asked.append(("start", order))
        await self.go_on.wait()
        answer = self.answer(order)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def stop(self, process_id: str, *, by: str) -> None:
        self.asked.append(("stop", process_id, by))

    async def end_run(self, owner: ProcessOwner, *, by: str) -> None:
        self.asked.append(("end_run", owner, by))

    async def close(self, *, by: str) -> None:
        self.asked.append(("close", by))


@asynccontextmanager
async def keeping(home: Path, supervisor: Supervisor, *, idle_s: float = 60) -> AsyncIterator[Keeper]:
    for name in ("run", "logs"):
        (home / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    keeper = Keeper(supervisor, home / "run", idle_s=idle_s)
    serving = asyncio.create_task(keeper.serve())
    while not (home / "run" / "keeper.sock").exists():
        await asyncio.sleep(0.001)
    try:
        yield keeper
    finally:
        keeper.end()
        await serving


def client(home: Path, module: str = "palyra.nowhere") -> KeeperClient:
    return KeeperClient(home, module=module, arguments=(str(home),))


def test_a_start_a_stop_and_the_end_of_a_run_reach_the_supervisor(tmp_path):
    order, supervisor_asked = make_order(), []

    async def story() -> BackgroundProcess:
        supervisor = Supervisor()
        async with keeping(tmp_path, supervisor):
            process = await client(tmp_path).start(order)
            await client(tmp_path).stop(order.process_id, by="agent:demo")
            await client(tmp_path).end_run(order.owner, by="run")
        supervisor_asked.extend(supervisor.asked)
        return process

    assert asyncio.run(story()) == make_process(order)
    assert supervisor_asked == [
        ("start", order),
        ("stop", order.process_id, "agent:demo"),
        ("end_run", order.owner, "run"),
        ("close", "keeper"),
    ]


@pytest.mark.parametrize(
    ("raised", "arrives"),
    [
        (Rejected(Reason.BUSY, "Too many.", "Stop one."), Rejected),
        (StateError("The disk is full.", "Free space."), StateError),
        (NotStarted("No such program.", None), NotStarted),
        (RuntimeError("a secret inside"), NotStarted),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_a_supervisor_raises_arrives_as_the_same_refusal(tmp_path, raised, arrives, caplog):
    async def story() -> None:
        async with keeping(tmp_path, Supervisor(lambda order: raised)):
            await client(tmp_path).start(make_order())

    with pytest.raises(arrives) as caught:
        asyncio.run(story())
    if isinstance(raised, RuntimeError):
        assert "secret" not in caught.value.detail
    else:
        assert (caught.value.detail, caught.value.hint) == (raised.detail, raised.hint)


def test_a_caller_that_hangs_up_during_a_start_gets_its_process_ended(tmp_path):
    order = make_order()

    async def story() -> list[tuple[Any, ...]]:
        supervisor = Supervisor()
        supervisor.go_on.clear()
        async with keeping(tmp_path, supervisor):
            starting = asyncio.create_task(client(tmp_path).start(order))
            while not supervisor.asked:
                await asyncio.sleep(0.001)
            starting.cancel()
            await asyncio.sleep(0.02)
            assert not starting.done(), "it waits until the process is taken back"
            supervisor.go_on.set()
            assert isinstance((await asyncio.gather(starting, return_exceptions=True))[0], asyncio.CancelledError)
            return list(supervisor.asked)

    assert asyncio.run(story()) == [("start", order), ("stop", order.process_id, "agent:demo")]


def test_an_idle_keeper_leaves_and_whoever_comes_then_knows_that_nothing_was_done(tmp_path):
    async def story() -> None:
        supervisor = Supervisor()
        async with keeping(tmp_path, supervisor, idle_s=0.2):
            while (tmp_path / "run" / "keeper.sock").exists():
                await asyncio.sleep(0.001)
            assert await client(tmp_path)._connect() is None
            await client(tmp_path).stop("0" * 26, by="nobody")
        assert supervisor.asked in ([], [("close", "keeper")])

    asyncio.run(story())


def test_a_keeper_that_could_not_record_an_end_leaves_with_the_last_it_keeps_though_it_would_stay(tmp_path):
    """The service refused every start from then on, for ever."""

    async def story() -> None:
        supervisor = Supervisor()
        supervisor.kept, supervisor.failure = 1, StateError("The disk is full.")
        async with keeping(tmp_path, supervisor, idle_s=math.inf):
            await asyncio.sleep(0.3)
            assert (tmp_path / "run" / "keeper.sock").exists()
            supervisor.kept = 0
            async with asyncio.timeout(30):
                while (tmp_path / "run" / "keeper.sock").exists():
                    await asyncio.sleep(0.001)

    asyncio.run(story())


def test_a_connection_that_comes_while_the_keeper_leaves_gets_no_greeting(tmp_path):
    async def story() -> None:
        supervisor = Supervisor()
        async with keeping(tmp_path, supervisor) as keeper:
            keeper._leaving = True
            assert await client(tmp_path)._connect() is None
        assert supervisor.asked == [("close", "keeper")]

    asyncio.run(story())


def test_a_keeper_of_another_version_is_named(tmp_path, monkeypatch):
    async def story() -> None:
        async with keeping(tmp_path, Supervisor()):
            monkeypatch.setattr(keeper_client, "PROTOCOL", 999)
            await client(tmp_path).start(make_order())

    with pytest.raises(NotStarted, match="another version") as caught:
        asyncio.run(story())
    assert "palyra ps" in (caught.value.hint or "")


def test_a_keeper_that_cannot_start_says_why_at_once(tmp_path):
    with pytest.raises(NotStarted, match=r"No module named 'palyra\.nowhere'") as caught:
        asyncio.run(client(tmp_path).start(make_order()))
    assert "keeper.log" in (caught.value.hint or "")


def test_a_keeper_that_never_answers_is_given_up(tmp_path, monkeypatch):
    (tmp_path / "sleeper.py").write_text("import time\ndef main(arguments):\n    time.sleep(30)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(keeper_client, "START_TIMEOUT_S", 0.5)
    one = client(tmp_path, module="sleeper")
    with pytest.raises(NotStarted, match="not ready"):
        asyncio.run(one.start(make_order()))
    os.kill(one._spawned, 9)
    os.waitpid(one._spawned, 0)


def test_the_folder_of_the_current_process_is_not_imported_from(tmp_path, monkeypatch):
    """An agent writes into the workspace; a module it put there must not become the keeper."""
    (tmp_path / "planted.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotStarted, match="No module named 'planted'"):
        asyncio.run(client(tmp_path, module="planted").start(make_order()))


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777])
def test_a_folder_that_others_may_enter_is_no_place_for_a_keeper(tmp_path, mode):
    (tmp_path / "run").mkdir()
    (tmp_path / "run").chmod(mode)
    with pytest.raises(NotStarted, match="accessible to other users") as caught:
        asyncio.run(client(tmp_path).start(make_order()))
    assert "chmod" in (caught.value.hint or "")


@given(st.binary(max_size=64))
def test_no_bytes_on_the_line_are_more_than_a_broken_line(data):
    async def story() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        with suppress(BrokenLine):
            assert isinstance(await read_frame(reader), dict)

    asyncio.run(story())


@pytest.mark.parametrize("body", [None, [], {}, {"detail": 3}, {"kind": "rejected", "detail": "x", "reason": "NOPE"}])
def test_an_answer_that_makes_no_sense_is_a_failure_and_no_crash(body):
    assert isinstance(error_from(body), NotStarted)
    assert isinstance(error_from(error_json(KeyError("x"))["error"]), NotStarted)
