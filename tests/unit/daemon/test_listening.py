"""A listener that counts its connections from the moment they are accepted."""

from __future__ import annotations

import contextlib
import socket

import orjson
import pytest

from palyra.daemon.listening import BoundedListener
from palyra.daemon.wire_guard import too_many


def test_whoever_comes_when_there_are_enough_is_closed_at_once_and_who_goes_makes_room() -> None:
    with BoundedListener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.most = 2
        lines = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        accepted = [listener.accept()[0] for _ in range(2)]
        with pytest.raises(ConnectionAbortedError):
            listener.accept()
        assert (listener.count, lines[2].recv(1)) == (2, b"")
        for _ in range(2):
            accepted[0].close()  # the second time it is nobody's
        assert listener.count == 1
        lines.append(socket.create_connection(listener.getsockname()))
        accepted.append(listener.accept()[0])
        accepted[2].sendall(b"x")
        assert lines[3].recv(1) == b"x"
        for one in (*lines, *accepted):
            one.close()
        assert listener.count == 0


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * (1 << 20)], ids=["nothing", "a request", "much"]
)
def test_whoever_comes_when_there_are_enough_is_told_so_and_not_waited_for(said: bytes) -> None:
    with BoundedListener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.most, listener.answer = 0, too_many()
        with socket.create_connection(listener.getsockname()) as line:
            line.settimeout(0.2)
            with contextlib.suppress(OSError):
                line.sendall(said)  # nobody reads a megabyte of it
            with pytest.raises(ConnectionAbortedError):
                listener.accept()
            line.settimeout(10)
            answer = line.recv(4096)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.splitlines()[0] == b"HTTP/1.1 503 Service Unavailable"
        assert f"content-length: {len(body)}".encode() in head
        assert orjson.loads(body)["error"]["code"] == "BUSY"
        assert "daemon.max_connections" in orjson.loads(body)["error"]["hint"]
        assert listener.count == 0
