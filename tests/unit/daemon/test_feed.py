"""Feeds: numbered, bounded, resumable; who came too late is told so."""

from __future__ import annotations

import asyncio

from palyra.daemon.feed import MAX_BYTES, Event, Feed


async def all_of(feed: Feed, number: int = 0) -> list[Event]:
    return [event async for event in feed.listen(number)]


def filled(count: int, **bounds: int) -> Feed:
    feed = Feed(**bounds)
    for number in range(count):
        feed.put("n", b"%d" % number)
    feed.close()
    return feed


def test_a_listener_gets_everything_and_goes_on_where_it_was():
    assert [event.data for event in asyncio.run(all_of(filled(3)))] == [b"0", b"1", b"2"]
    assert [event.data for event in asyncio.run(all_of(filled(3), 2))] == [b"2"]
    assert asyncio.run(all_of(filled(3), 3)) == []
    assert asyncio.run(all_of(filled(3), 99)) == []


def test_what_was_dropped_is_told():
    events = asyncio.run(all_of(filled(10, max_events=3)))
    assert events[0] == Event(7, "gap", b'{"missed":7}')
    assert [event.data for event in events[1:]] == [b"7", b"8", b"9"]


def test_bytes_are_bounded_too():
    feed = Feed(max_bytes=100)
    for _ in range(50):
        feed.put("x", b"y" * 30)
    assert feed.kept_bytes <= 100


def test_listeners_wait_and_wake():
    async def story() -> list[list[bytes]]:
        feed = Feed()
        listening = [asyncio.ensure_future(all_of(feed)) for _ in range(3)]
        await asyncio.sleep(0)
        for letter in (b"a", b"b"):
            feed.put("x", letter)
            await asyncio.sleep(0)
        feed.close()
        feed.put("x", b"too late")
        heard = [[event.data for event in await one] for one in listening]
        assert feed._waiting == set()
        return heard

    assert asyncio.run(story()) == [[b"a", b"b"]] * 3


def test_a_listener_that_does_not_read_tells_how_much_is_held_for_it():
    async def story() -> list[int]:
        feed, said = Feed(max_bytes=100), []
        listener = feed.listen()
        said.append(listener.behind_bytes)
        for _ in range(3):
            feed.put("x", b"y" * 30)
        said.append(listener.behind_bytes)
        events = aiter(listener)
        for _ in range(2):
            await anext(events)
            said.append(listener.behind_bytes)
        for _ in range(50):
            feed.put("x", b"z" * 40)
        said.append(listener.behind_bytes)
        feed.close()
        left = [event.name async for event in events]
        return [*said, listener.behind_bytes, left.count("gap"), left.count("x")]

    # thirty that it took and the feed has dropped since, and the feed's own two last
    assert asyncio.run(story()) == [0, 90, 60, 30, 30 + 80, 0, 1, 3]


def test_of_what_was_sent_only_so_much_is_kept_however_much_there_is_room_for():
    feed = Feed(max_events=1 << 30, max_bytes=64 << 20)
    for _ in range(5):
        feed.put("x", b"y" * (MAX_BYTES // 2))
    feed.was_sent(2)
    assert [event.number for event in feed.since(0)[1]] == [3, 4, 5], "what was not sent is kept"
    feed.was_sent(5)
    assert [event.number for event in feed.since(0)[1]] == [4, 5], "for others who follow"


def test_a_listener_that_goes_away_leaves_nothing():
    async def story() -> None:
        feed = Feed()
        listening = asyncio.ensure_future(all_of(feed))
        await asyncio.sleep(0)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        assert feed._waiting == set()

    asyncio.run(story())


def test_a_listener_that_keeps_up_does_not_walk_over_everything_it_has_seen():
    """A program that writes byte by byte to an attended call would else cost the square of its output."""
    feed, walked = Feed(max_events=1 << 30), 0

    class Counted(int):
        def __gt__(self, other: int) -> bool:
            nonlocal walked
            walked += 1
            return int(self) > other

        def __le__(self, other: int) -> bool:
            return not self > other

    feed._events.extend(Event(Counted(number), "output", b"{}") for number in range(1, 1001))
    assert [event.number for event in feed.since(998)[1]] == [999, 1000]
    assert walked <= 3
