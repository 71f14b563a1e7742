"""The egress server over real sockets of this process, without a sandbox: look-ups, pinning, limits, its end."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TypeVar

import pytest

from palyra.egress import events as ev
from palyra.egress.asked import in_order
from palyra.egress.dial import Dialer, LookupFailed
from palyra.egress.face import face_of
from palyra.egress.hosts import Address, parse_pattern
from palyra.egress.limits import EgressLimits
from palyra.egress.names import NameTable
from palyra.egress.server import room
from palyra.egress.server.flow import Held
from palyra.egress.server.names import NameServer
from palyra.egress.server.serving import EgressServer, Serving
from palyra.model.face import Listener, NetFace
from palyra.model.net import EgressMode, NetGrant
from palyra.model.plan import ProcessPlan
from tests.promises import promise
from tests.servers import BIG_BYTES, tcp, web
from tests.unit.sandbox.jobs import make_host, make_job

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _nothing_waits_for_ever() -> Iterator[None]:
    yield
    assert Held.total == 0, "bytes of closed connections are counted as waiting"


@dataclass
class Dials:
    """Answers in turn; real connections."""

    answers: list[tuple[str, ...]]
    asked: list[str] = field(default_factory=list)
    dialled: list[str] = field(default_factory=list)

    async def resolve(self, host: str) -> tuple[Address, ...]:
        self.asked.append(host)
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if not answer:
            raise LookupFailed("the name could not be looked up")
        return tuple(ip_address(one) for one in answer)

    async def connect(self, address: Address, port: int) -> socket.socket:
        self.dialled.append(str(address))
        return await Dialer().connect(address, port)


def plan_for(*patterns: str) -> ProcessPlan:
    from palyra.model.host import BubblewrapFacts
    from palyra.sandbox.bwrap import BubblewrapBackend

    net = NetGrant(EgressMode.STRICT, in_order(parse_pattern(text) for text in patterns))
    facts = BubblewrapFacts(path="/usr/bin/bwrap", version="0.9", disable_userns=True, listeners=True)
    return BubblewrapBackend().plan(make_job(net=net, face=face_of(net)), make_host(bubblewrap=facts))


def served(
    dials: Dials,
    patterns: Sequence[str],
    work: Callable[[int, Serving], Awaitable[T]],
    limits: EgressLimits | None = None,
) -> T:
    """`work` is given the proxy's port."""

    async def whole() -> T:
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        proxy = Listener(kind="proxy", address="127.0.0.1", port=port, fd=listener.detach())
        serving = EgressServer(dials, limits).serve(plan_for(*patterns), [proxy])
        try:
            return await work(port, serving)
        finally:
            serving.finish()

    return asyncio.run(whole())


async def ask(port: int, target: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n".encode())
    try:
        return await reader.read()
    finally:
        writer.close()


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def test_a_name_that_answers_differently_the_second_time_is_refused_then() -> None:
    """Rebinding: each connection has one look-up, and what is dialled is what was judged."""
    with web() as seen:
        dials = Dials([("127.0.0.1",), ("10.0.0.1",)])

        async def twice(port: int, serving: Serving) -> list[int]:
            return [status(await ask(port, f"granted.test:{seen.port}")) for _ in range(2)]

        granted = (f"granted.test:{seen.port}", f"127.0.0.1:{seen.port}")
        assert served(dials, granted, twice) == [200, 403]
        assert (dials.asked, dials.dialled) == (["granted.test"] * 2, ["127.0.0.1"])


@pytest.mark.parametrize(
    "answer", [("127.0.0.1", "10.0.0.1"), ("169.254.169.254",), ("::ffff:10.0.0.1",), ("2002:7f00:1::",)]
)
def test_an_answer_with_one_address_that_is_not_granted_is_not_used_at_all(answer: tuple[str, ...]) -> None:
    async def once(port: int, serving: Serving) -> tuple[int, str]:
        code = status(await ask(port, "granted.test:8080"))
        return code, serving.finish()[0].verdict

    dials = Dials([answer])
    assert served(dials, ("granted.test:8080", "127.0.0.1:8080"), once) == (403, "denied")
    assert dials.dialled == []


def test_a_name_that_cannot_be_looked_up_is_a_failure_and_no_refusal() -> None:
    async def once(port: int, serving: Serving) -> tuple[int, str]:
        return status(await ask(port, "granted.test")), serving.finish()[0].verdict

    assert served(Dials([()]), ("granted.test",), once) == (502, "failed")


@pytest.mark.parametrize(
    ("name", "advised"),
    [("evil.test", ("evil.test",)), ("EVIL.test", ("evil.test",)), ("*.test", ()), ("10.0.0.0/8", ()), ("::/0", ()),
     ("a.test:22 raw", ()), ("a.test:22", ()), ("x;id|sh", ()), ("$(id).test", ()), ("-x", ())],
)  # fmt: skip
def test_a_name_that_reads_as_a_wider_grant_or_a_command_is_not_advised(name: str, advised: tuple[str, ...]) -> None:
    async def ask() -> list[ev.Ruled]:
        kept: list[ev.Ruled] = []
        grant = NetGrant(EgressMode.STRICT, (parse_pattern("granted.test"),))
        server = NameServer(NameTable(grant, NetFace()), kept.append)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.setblocking(False)
            labels = b"".join(bytes((len(one),)) + one.encode() for one in name.split("."))
            sock.sendto(b"\0\1\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1", sock.getsockname())
            while not kept:
                server.answer(sock)
        return kept

    assert [one.grants for one in asyncio.run(ask())] == [advised]


def test_connections_beyond_the_bound_are_reset_and_recorded() -> None:
    async def three(port: int, serving: Serving) -> list[str]:
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(ConnectionResetError):
            await ask(port, "granted.test")
        for _, writer in kept:
            writer.close()
        return [one.why for one in serving.finish()]

    limits = EgressLimits(connections_at_once=2)
    assert served(Dials([()]), ("granted.test",), three, limits) == ["too many connections at once"]


@promise("egress.shared-connections")
def test_a_call_that_opens_all_there_is_and_says_nothing_keeps_no_other_from_its_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "lines_allowed", lambda: 6)

    async def story(target: str) -> tuple[bytes, list[int], list[str]]:
        server, ports, servings = EgressServer(Dials([("127.0.0.1",)])), [], []
        for _ in range(2):
            listener = socket.create_server(("127.0.0.1", 0))
            ports.append(listener.getsockname()[1])
            proxy = Listener(kind="proxy", address="127.0.0.1", port=ports[-1], fd=listener.detach())
            servings.append(server.serve(plan_for(target, f"127.0.0.1:{target.partition(':')[2]}"), [proxy]))
        silent = [socket.create_connection(("127.0.0.1", ports[0])) for _ in range(8)]
        await asyncio.sleep(0.05)
        counts = [servings[0].line_count]
        answer = await ask(ports[1], target)
        while servings[1].line_count:  # it lingers for a moment
            await asyncio.sleep(0.01)
        silent += [socket.create_connection(("127.0.0.1", ports[1])) for _ in range(5)]
        await asyncio.sleep(0.05)
        counts += [one.line_count for one in servings]
        whys = [one.why for one in servings[1].finish() if one.verdict == "denied"]
        servings[0].finish()
        for line in silent:
            line.close()
        return answer, counts, whys

    with web() as seen:
        answer, counts, whys = asyncio.run(story(f"granted.test:{seen.port}"))
    assert status(answer) == 200
    assert counts == [6, 3, 3], "and no call takes more than as many as the other has"
    assert whys == ["too many connections at once"] * 2


def test_when_a_call_has_had_its_connections_nobody_listens_any_more() -> None:
    async def flood(port: int, serving: Serving) -> str:
        for _ in range(5):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                return "refused"
            except ConnectionResetError:
                continue
            writer.close()
            await asyncio.sleep(0.01)
        return "served"

    assert served(Dials([()]), ("granted.test",), flood, EgressLimits(connections=2)) == "refused"


def test_the_end_closes_every_socket_and_is_the_same_twice() -> None:
    with tcp() as seen:
        before = len(os.listdir("/proc/self/fd"))

        async def talk(port: int, serving: Serving) -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            target = f"granted.test:{seen.port}"
            writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            echoed = b"SSH-2.0-echo this\r\n"
            writer.write(echoed)
            assert await reader.readexactly(len(echoed)) == echoed
            first = serving.finish()
            assert first == serving.finish()
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
            writer.close()
            return first[0].bytes_up

        granted = (f"granted.test:{seen.port}", f"127.0.0.1:{seen.port}")
        assert served(Dials([("127.0.0.1",)]), granted, talk) == len(b"SSH-2.0-echo this\r\n")
    assert len(os.listdir("/proc/self/fd")) <= before + 1


@pytest.mark.parametrize("plenty", [0, Held.PLENTY])
def test_every_byte_arrives_whether_little_or_much_waits(monkeypatch: pytest.MonkeyPatch, plenty: int) -> None:
    monkeypatch.setattr(Held, "PLENTY", plenty)
    with web() as seen:

        async def big(port: int, serving: Serving) -> int:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            target = f"granted.test:{seen.port}"
            writer.write(f"GET http://{target}/big HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n".encode())
            await asyncio.sleep(0.1)  # until nothing more can be held on the way
            assert Held.total <= 4 << 20
            got = await reader.read()
            writer.close()
            return len(got.partition(b"\r\n\r\n")[2])

        granted = (f"granted.test:{seen.port}", f"127.0.0.1:{seen.port}")
        assert served(Dials([("127.0.0.1",)]), granted, big) == BIG_BYTES


def test_the_operators_table_stands_before_the_resolver_and_literals_are_themselves() -> None:
    dialer = Dialer({"a.test": (ip_address("10.0.0.1"),)})

    async def both() -> tuple[tuple[Address, ...], ...]:
        return await dialer.resolve("a.test"), await dialer.resolve("10.1.2.3"), await dialer.resolve("localhost")

    table, literal, local = asyncio.run(both())
    assert (table, literal) == ((ip_address("10.0.0.1"),), (ip_address("10.1.2.3"),))
    assert ip_address("127.0.0.1") in local or ip_address("::1") in local


def test_a_port_where_nobody_listens_is_an_error_with_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(OSError, match="refused"):
        asyncio.run(Dialer().connect(ip_address("127.0.0.1"), port))
