"""The line beside Ray: orders and frames come through whole, and whoever is no daemon of the cluster is not heard."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest

from palyra.cluster import line
from palyra.cluster.batches import Outlet
from palyra.cluster.greeting import sign_greeting
from palyra.cluster.line import DaemonEnd, LineLost, NodeEnds, connect
from palyra.signing import PublicKey, SigningKey
from tests.cluster.machines import CLUSTER_KEY

STRANGER = SigningKey(bytes(32))


@dataclass
class Echo:
    """A node that says an order back, byte by byte, or waits."""

    node_id: str = "one"
    start: str = "first"
    cluster_key: PublicKey = CLUSTER_KEY.public
    served: list[bytes] = field(default_factory=list)
    cancelled: int = 0

    async def serve(self, order: bytes, frames: Outlet) -> None:
        self.served.append(order)
        try:
            if order == b"wait":
                frames.put(b"1begun")
                await asyncio.sleep(60)
            if order == b"flood":
                for _ in range(1000):
                    while (room := frames.room()) is not None:
                        await room
                    frames.put(b"1" + bytes(64 << 10))
            if order == b"break":
                raise RuntimeError("broken")
            for number in order:
                frames.put(b"1%d" % number)
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        frames.put_last(b"=" + order)


def use(work: Callable[[Echo, NodeEnds, int], Awaitable[Any]]) -> tuple[Any, Echo]:
    node = Echo()

    async def whole() -> Any:
        ends = NodeEnds(node)
        port = await ends.open("127.0.0.1")
        try:
            async with asyncio.timeout(30):
                return await work(node, ends, port)
        finally:
            ends.close()
            await asyncio.sleep(0.02)  # sockets close a turn later

    return asyncio.run(whole()), node


async def meet(port: int, **other: Any) -> DaemonEnd:
    given: dict[str, Any] = {"node_id": "one", "node_start": "first", "key": CLUSTER_KEY, **other}
    return await connect("127.0.0.1", port, **given)


async def frames_of(end: DaemonEnd, order: bytes) -> list[bytes]:
    async with aclosing(end.send(order)) as frames:
        return [frame async for frame in frames]


def test_many_calls_share_a_line_and_each_hears_its_own_frames_in_order():
    async def work(node: Echo, ends: NodeEnds, port: int) -> list[list[bytes]]:
        end = await meet(port)
        answers = await asyncio.gather(*(frames_of(end, bytes([n, n + 1])) for n in range(100)))
        assert (ends.strangers, end._open) == (0, {})
        end.abort()
        return list(answers)

    answers, _ = use(work)
    assert answers == [[b"1%d" % n, b"1%d" % (n + 1), b"=" + bytes([n, n + 1])] for n in range(100)]


def test_whoever_stops_listening_ends_the_call_and_no_other():
    async def work(node: Echo, ends: NodeEnds, port: int) -> list[bytes]:
        end = await meet(port)
        other = asyncio.ensure_future(frames_of(end, b"ab"))
        async with aclosing(end.send(b"wait")) as frames:
            async for frame in frames:
                assert frame == b"1begun"
                break
        while not node.cancelled:
            await asyncio.sleep(0.01)
        end.abort()
        return await other

    answer, node = use(work)
    assert (answer[-1], node.cancelled) == (b"=ab", 1)


@pytest.mark.parametrize("who", ["node", "daemon"])
def test_a_line_that_breaks_ends_the_calls_of_it(who):
    async def work(node: Echo, ends: NodeEnds, port: int) -> None:
        end = await meet(port)
        task = asyncio.ensure_future(frames_of(end, b"wait"))
        while not node.served:
            await asyncio.sleep(0.01)
        if who == "daemon":
            end.abort()
        else:
            with pytest.raises(LineLost):
                await frames_of(end, b"break")
        with pytest.raises(LineLost):
            await task
        while not node.cancelled:
            await asyncio.sleep(0.01)
        with pytest.raises(LineLost):
            await frames_of(end, b"x")

    assert use(work)[1].cancelled == 1


def test_a_reader_that_reads_nothing_makes_the_program_wait():
    async def work(node: Echo, ends: NodeEnds, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        number = await read(reader)
        send(writer, line.GREETING, sign_greeting(CLUSTER_KEY, "one", "first", number.decode()))
        assert await read(reader) == b""
        send(writer, line.ORDER, b"flood", channel=1)
        await asyncio.sleep(0.3)
        (held,) = [task for task in asyncio.all_tasks() if "serve" in str(task.get_coro())]
        assert not held.done()
        for _ in range(1000):
            assert len(await read(reader)) == 1 + (64 << 10)
        writer.close()

    use(work)


# ── attacks ──────────────────────────────────────────────────────────────────


async def read(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(9)
    return await reader.readexactly(int.from_bytes(head[:4], "big"))


def send(writer: asyncio.StreamWriter, kind: int, body: bytes, *, channel: int = 0, size: int | None = None) -> None:
    length = len(body) if size is None else size
    writer.write(length.to_bytes(4, "big") + channel.to_bytes(4, "big") + bytes([kind]) + body)


def is_refused(say: Callable[[bytes, asyncio.StreamWriter], None]) -> Echo:
    """Somebody connects, hears the number, says something; the node hangs up and has served nothing."""

    async def work(node: Echo, ends: NodeEnds, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        say(await read(reader), writer)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await read(reader)
        writer.close()
        while ends.strangers:
            await asyncio.sleep(0.01)
        end = await meet(port)
        assert (await frames_of(end, b""))[-1] == b"="  # and goes on for those who may
        end.abort()

    _, node = use(work)
    assert node.served == [b""]
    return node


@pytest.mark.parametrize(
    ("key", "node_id", "start", "number"),
    [(STRANGER, "one", "first", None), (CLUSTER_KEY, "two", "first", None), (CLUSTER_KEY, "one", "second", None),
     (CLUSTER_KEY, "one", "first", "0" * 64)],
)  # fmt: skip
def test_a_greeting_by_another_key_or_for_another_node_start_or_connection_is_refused(key, node_id, start, number):
    """The last one is a greeting that was heard on another connection, brought again."""
    is_refused(
        lambda said, writer: send(writer, line.GREETING, sign_greeting(key, node_id, start, number or said.decode()))
    )


def test_an_order_before_the_greeting_is_not_even_read():
    is_refused(lambda _, writer: send(writer, line.ORDER, b"an order", channel=1))


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[]", os.urandom(100), b'{"payload":1}'])
def test_garbage_instead_of_a_greeting_is_refused(body):
    is_refused(lambda _, writer: send(writer, line.GREETING, body))


def test_a_stranger_cannot_make_a_node_keep_much():
    is_refused(lambda _, writer: send(writer, line.GREETING, b"x" * 100, size=1 << 30))


def test_a_stranger_who_says_nothing_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(line, "MEET_S", 0.2)
    is_refused(lambda _, __: None)


def test_many_strangers_at_once_are_not_kept_and_a_daemon_comes_through_when_they_are_gone(monkeypatch):
    monkeypatch.setattr(line, "MEET_S", 1.0)

    async def work(node: Echo, ends: NodeEnds, port: int) -> int:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(line.MOST_STRANGERS + 20)]
        await asyncio.sleep(0.2)
        kept = ends.strangers
        while ends.strangers:
            await asyncio.sleep(0.05)
        end = await meet(port)
        assert (await frames_of(end, b"a"))[-1] == b"=a"
        end.abort()
        for _, writer in held:
            writer.close()
        return kept

    assert use(work)[0] <= line.MOST_STRANGERS


def test_a_daemon_is_not_welcome_with_another_clusters_key():
    async def work(node: Echo, ends: NodeEnds, port: int) -> None:
        with pytest.raises(LineLost):
            await meet(port, key=STRANGER)

    use(work)


def test_a_node_signs_nothing_out_of_a_daemon_but_greetings_to_itself():
    """What a node names as its number is bounded, and signed with that node's own name alone."""
    signed: list[str] = []

    def greet(number: str) -> bytes:
        signed.append(number)
        return b"{}"

    async def work() -> None:
        end = DaemonEnd(greet)
        for body in (b"", b"x" * 1000, b"y" * 64):
            end.received(0, line.NUMBER, body)
        end._welcome.cancel()

    asyncio.run(work())
    assert signed == ["y" * 64]
