"""What skills keep: durable, apart from each other, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from palyra.errors import Reason, Rejected
from palyra.wiring.guest_storage import GuestStore
from tests.stores import open_writer

T = TypeVar("T")


def use(root: Path, work: Callable[[GuestStore], Awaitable[T]], *, quota_bytes: int = 1000) -> T:
    async def all_of_it() -> T:
        writer = open_writer(root)
        try:
            return await work(GuestStore(writer, quota_bytes=quota_bytes))
        finally:
            writer.close()

    return asyncio.run(all_of_it())


def test_what_was_put_is_there_after_a_restart_and_another_skill_sees_none_of_it(tmp_path: Path) -> None:
    async def put(store: GuestStore) -> None:
        await store.put("acme.a", "cache/k", b"\0value")
        await store.put("acme.a", "cache/k2", b"")
        await store.put("acme.a", "other/k", b"x")

    async def look(store: GuestStore) -> tuple[object, ...]:
        return (
            await store.get("acme.a", "cache/k"),
            await store.list("acme.a", "cache/"),
            await store.list("acme.a", "cache/k2"),
            await store.get("acme.b", "cache/k"),
            await store.list("acme.b", "cache/"),
        )

    use(tmp_path, put)
    assert use(tmp_path, look) == (b"\0value", ["cache/k", "cache/k2"], ["cache/k2"], None, [])


def test_a_deleted_key_is_gone_and_deleting_it_again_does_nothing(tmp_path: Path) -> None:
    async def work(store: GuestStore) -> bytes | None:
        await store.put("acme.a", "k", b"v")
        await store.delete("acme.a", "k")
        await store.delete("acme.a", "k")
        return await store.get("acme.a", "k")

    assert use(tmp_path, work) is None


def test_a_full_space_takes_no_more_and_calls_side_by_side_cannot_pass_the_bound(tmp_path: Path) -> None:
    async def work(store: GuestStore) -> tuple[list[object], list[str]]:
        puts = (store.put("acme.a", f"k{n}", bytes(300)) for n in range(8))
        ended = await asyncio.gather(*puts, return_exceptions=True)
        await store.put("acme.b", "k", bytes(300))
        return list(ended), list(await store.list("acme.a", "k"))

    ended, kept = use(tmp_path, work)
    refused = [error for error in ended if isinstance(error, Rejected)]
    assert [error.reason for error in refused] == [Reason.QUOTA_EXCEEDED] * 5
    assert len(kept) == 3


def test_replacing_a_value_counts_the_new_one_alone(tmp_path: Path) -> None:
    async def work(store: GuestStore) -> None:
        for _ in range(5):
            await store.put("acme.a", "k", bytes(900))
        with pytest.raises(Rejected):
            await store.put("acme.a", "k", bytes(1001))

    use(tmp_path, work)
