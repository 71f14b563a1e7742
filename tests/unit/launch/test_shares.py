"""One kind never takes the room of another, and a kind nobody uses is forgotten."""

from __future__ import annotations

import asyncio

from palyra.launch.shares import Shares


def test_a_flood_of_one_kind_leaves_the_others_their_room():
    async def scenario():
        shares, inside, most = Shares(2), 0, 0
        release = asyncio.Event()

        async def slow():
            nonlocal inside, most
            async with shares.of("acme.slow"):
                inside += 1
                most = max(most, inside)
                await release.wait()
                inside -= 1

        flood = [asyncio.ensure_future(slow()) for _ in range(20)]
        await asyncio.sleep(0)
        async with asyncio.timeout(5), shares.of("acme.other"):
            release.set()
        await asyncio.gather(*flood)
        return most, len(shares)

    assert asyncio.run(scenario()) == (2, 0)


def test_who_is_cancelled_while_waiting_leaves_nothing_behind():
    async def scenario():
        shares = Shares(1)

        async def wait():
            async with shares.of("acme.slow"):
                raise AssertionError("there was no room")

        async with shares.of("acme.slow"):
            waiting = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        async with asyncio.timeout(5), shares.of("acme.slow"):
            return len(shares)

    assert asyncio.run(scenario()) == 1
