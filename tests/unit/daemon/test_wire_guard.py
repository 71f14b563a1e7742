"""Who is at the other end of the Unix socket: the process that connected, and no other that has its number since."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from palyra.daemon.wire_guard import peer_uid
from palyra.wiring import peers


class Transport:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def get_extra_info(self, name: str) -> socket.socket:
        return self._sock


@pytest.fixture
def listener(tmp_path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "s"))
        made.listen()
        yield made


def connect_as_another(listener: socket.socket) -> socket.socket:
    """A line that a process opened which is gone."""
    line = socket.socket(socket.AF_UNIX)
    child = os.fork()
    if child == 0:
        line.connect(listener.getsockname())
        os._exit(0)
    os.waitpid(child, 0)
    return line


def test_the_owner_is_known_by_its_uid(listener):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert peer_uid(Transport(accepted)) == os.geteuid()


def test_who_connected_and_is_gone_is_nobody_whoever_has_its_number_now(listener, monkeypatch):
    depth = peers.depth_of
    one, other = socket.socketpair()
    with one, other:
        try:
            os.close(int.from_bytes(one.getsockopt(socket.SOL_SOCKET, peers.SO_PEERPIDFD, 4), sys.byteorder))
        except OSError:
            pytest.skip("this kernel gives no descriptor of who connected")
    with connect_as_another(listener), listener.accept()[0] as accepted:
        monkeypatch.setattr(
            peers, "depth_of", lambda place: depth("/proc/self/status" if place.endswith("/status") else place)
        )
        assert peer_uid(Transport(accepted)) is None


def test_on_an_older_kernel_the_number_has_to_do(listener, monkeypatch):
    monkeypatch.setattr(peers, "SO_PEERPIDFD", 9999)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(listener.getsockname())
        with listener.accept()[0] as accepted:
            assert peer_uid(Transport(accepted)) == os.geteuid()
    with connect_as_another(listener), listener.accept()[0] as accepted:
        assert peer_uid(Transport(accepted)) is None


def test_over_tcp_there_is_no_uid():
    with socket.socket() as line:
        assert peer_uid(Transport(line)) is None
