"""What a service manager is told, and that nothing happens without one."""

from __future__ import annotations

import socket

import pytest

from palyra.cli.serve_ready import READY, tell_manager


def test_a_manager_is_told_on_the_socket_it_named(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        tell_manager(READY)
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("place", ["", "relative", "/nowhere/notify", "@nobody-listens-here"])
def test_without_a_manager_nothing_happens(monkeypatch, place):
    monkeypatch.setenv("NOTIFY_SOCKET", place)
    tell_manager(READY)
