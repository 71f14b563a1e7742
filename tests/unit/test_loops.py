from __future__ import annotations

import asyncio
import errno
import os
import select
import selectors

import pytest

from palyra import loops
from tests.promises import promise

pytestmark = pytest.mark.skipif(not hasattr(selectors, "EpollSelector"), reason="there is no epoll here")


class Full:
    """An epoll of a user who has `left` watches."""

    def __init__(self, left: int) -> None:
        self._real = select.epoll()
        self._left = left

    def register(self, fd: int, events: int) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._real.register(fd, events)

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


async def greet(_: asyncio.StreamReader, there: asyncio.StreamWriter) -> None:
    there.write(b"hello\n")
    there.close()
    await there.wait_closed()


async def talk() -> bytes:
    """Over pipes, sockets and a thread, as calls do."""
    loop = asyncio.get_running_loop()
    read, write = os.pipe()
    came: asyncio.Future[bytes] = loop.create_future()
    loop.add_reader(read, lambda: came.done() or came.set_result(os.read(read, 9)))
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    here, line = await asyncio.open_connection(*server.sockets[0].getsockname())
    said = await here.readline()
    await asyncio.to_thread(os.write, write, said)
    heard = await asyncio.wait_for(came, 10)
    loop.remove_reader(read)
    line.close()
    await line.wait_closed()
    server.close()
    await server.wait_closed()
    os.close(read)
    os.close(write)
    return heard


@promise("sandbox.per-user-resources")
@pytest.mark.parametrize("left", [0, 1, 2, 3, 100])
def test_a_loop_goes_on_where_a_program_has_taken_all_watches_of_its_user(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    monkeypatch.setattr(loops.SteadySelector, "_selector_cls", staticmethod(lambda: Full(left)))
    assert loops.run(talk()) == b"hello\n"


def test_what_else_is_wrong_is_told() -> None:
    with loops.SteadySelector() as selector:
        with pytest.raises(OSError, match="Bad file descriptor"):
            selector.register(999_999, selectors.EVENT_READ)
        assert not selector.get_map()
