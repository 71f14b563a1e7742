"""A listener that counts its connections from the moment they are accepted."""

from __future__ import annotations

import socket

import pytest

from palyra.daemon.listening import BoundedListener


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
