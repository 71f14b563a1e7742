"""The listeners that a child opened are all there once it is gone, whoever else still holds its end of the line."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Sequence

import pytest

from palyra.launch import network
from palyra.launch.executor import LaunchFailed
from palyra.launch.network import close_listeners, open_listeners
from palyra.model.face import DNS_ADDRESS, DNS_PORT, PROXY_ADDRESS, PROXY_PORT, NetFace

PLANNED = [["dns_udp", DNS_ADDRESS, DNS_PORT], ["dns_tcp", DNS_ADDRESS, DNS_PORT], ["proxy", PROXY_ADDRESS, PROXY_PORT]]


class Child:
    """Stands for inside/listeners: sends these, and leaves the line open elsewhere, as a zygote does for a moment."""

    def __init__(self, names: Sequence[Sequence[str | int]]) -> None:
        self.names = names
        self.held = -1

    async def run(self, job: str, words: Sequence[str | int]) -> bool:
        reply = words[2]
        assert isinstance(reply, int)
        self.held = os.dup(reply)
        with socket.socket(fileno=os.dup(reply)) as channel:
            socket.send_fds(channel, [json.dumps(self.names).encode()], [channel.fileno()] * len(self.names))
        return True


@pytest.fixture(autouse=True)
def _no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network.fcntl, "ioctl", lambda *_: os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


def test_a_call_is_not_lost_because_who_forked_the_child_was_slow_to_close_its_end() -> None:
    """One call in ten that named a host failed to start, with "Resource temporarily unavailable"."""
    child = Child(PLANNED)
    opened = asyncio.run(open_listeners(os.getpid(), NetFace(), child.run))
    assert [[one.kind, one.address, one.port] for one in opened] == PLANNED
    close_listeners(opened)
    os.close(child.held)


def test_fewer_listeners_than_were_planned_are_a_failure_all_the_same() -> None:
    child = Child(PLANNED[:2])
    with pytest.raises(LaunchFailed, match="could not be opened"):
        asyncio.run(open_listeners(os.getpid(), NetFace(), child.run))
    os.close(child.held)
