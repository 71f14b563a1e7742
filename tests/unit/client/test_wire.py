"""A client's line to a daemon: an id that somebody else chose never becomes a second request."""

from __future__ import annotations

import socket

import pytest

from palyra.client.remote import Daemon, RemoteRun
from palyra.client.wire import Place
from palyra.errors import PalyraError


@pytest.mark.parametrize("call_id", ["x HTTP/1.1\r\nHost: a\r\n\r\nPOST /v1/policy/use", "a b", "\u0130", "a\tb"])
def test_a_call_id_cannot_smuggle_a_request(call_id: str) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        daemon = Daemon(Place(host="127.0.0.1", port=listener.getsockname()[1]), token="t")
        with pytest.raises(PalyraError, match="not a path"):
            RemoteRun(daemon, "run", None, {}).cancel(call_id)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
