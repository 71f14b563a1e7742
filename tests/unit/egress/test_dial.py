"""Look-ups in threads: bounded, and no name server keeps others' names from being looked up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from palyra.egress import dial
from palyra.egress.dial import Dialer, LookupFailed
from tests.promises import promise


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Names of slow.test and slow.co.uk are answered when this is set, all others at once."""
    event = threading.Event()

    def answer(host: str) -> list[str]:
        if ".slow." in f".{host}":
            assert event.wait(20)
        return ["192.0.2.7"]

    monkeypatch.setattr(dial, "_getaddrinfo", answer)
    yield event
    event.set()


@promise("egress.slow-names")
@pytest.mark.parametrize(("slow", "other"), [("slow.test", "good.test"), ("slow.co.uk", "good.co.uk")])
def test_names_that_are_never_answered_keep_nobody_else_from_looking_names_up(released, slow, other):
    """A program that was granted a suffix asked for forty names below it, and every other call's names failed."""

    async def story() -> None:
        dialer = Dialer()
        waiting = [asyncio.create_task(dialer.resolve(f"x{number}.y{number}.{slow}")) for number in range(40)]
        await asyncio.sleep(0.05)
        assert await dialer.resolve(other) == (ip_address("192.0.2.7"),)
        released.set()
        assert await asyncio.gather(*waiting) == [(ip_address("192.0.2.7"),)] * 40
        assert dialer._domains == {}

    asyncio.run(story())


def test_a_look_up_keeps_its_turn_until_its_thread_is_done_though_nobody_waits_any_more(released, monkeypatch):
    monkeypatch.setattr(dial, "RESOLVE_TIMEOUT_S", 0.05)

    async def story() -> None:
        dialer = Dialer()
        for _ in range(6):
            many = [dialer.resolve(f"x{number}.slow.test") for number in range(16)]
            found = await asyncio.gather(*many, return_exceptions=True)
            assert {type(one) for one in found} == {LookupFailed}
        assert dialer._lookups == dial._MAX_OF_DOMAIN
        released.set()
        while dialer._lookups:
            await asyncio.sleep(0.01)
        assert dialer._domains == {}

    asyncio.run(story())


def test_a_machine_without_threads_left_says_so_and_counts_nothing(monkeypatch):
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)

    async def story() -> None:
        dialer = Dialer()
        with pytest.raises(LookupFailed):
            await dialer.resolve("good.test")
        assert (dialer._lookups, dialer._domains) == (0, {})

    asyncio.run(story())
