"""NET_ISOLATED: no network at all, not even the host's own loopback or its abstract sockets."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from palyra.model.call import Tier
from palyra.model.host import Guarantee
from tests.conformance.arena import OPEN, Arena, require
from tests.promises import promise

pytestmark = pytest.mark.slow

ATTACK = """
import socket
port, udp, name, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(2)
        s.connect(address)
        return "connected"
def send(address, family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        s.sendto(b"hello", address)
        return "sent"
report({
    "loopback": tried(connect, socket.AF_INET, ("127.0.0.1", port)),
    "loopback 6": tried(connect, socket.AF_INET6, ("::1", port)),
    "abstract": tried(connect, socket.AF_UNIX, "\\0" + name),
    "path": tried(connect, socket.AF_UNIX, path),
    "metadata": tried(connect, socket.AF_INET, ("169.254.169.254", 80)),
    "raw address": tried(connect, socket.AF_INET, ("192.0.2.1", 443)),
    "raw address 6": tried(connect, socket.AF_INET6, ("2001:db8::1", 443)),
    "udp outside 6": tried(send, ("2001:db8::1", 53), socket.AF_INET6),
    "multicast": tried(send, ("224.0.0.251", 5353)),
    "broadcast": tried(send, ("255.255.255.255", 9)),
    "udp outside": tried(send, ("192.0.2.1", 53)),
    "udp loopback": tried(send, ("127.0.0.1", udp)),
    "name": tried(socket.getaddrinfo, "example.com", 80),
    "interfaces": sorted(line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line),
})
"""


@pytest.fixture
def listeners(tier_c: Arena) -> Iterator[tuple[list[str], socket.socket]]:
    """Of the host: TCP, UDP, an abstract socket and one with a path beside the workspace."""
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    udp.setblocking(False)
    name = f"palyra-test-{os.urandom(8).hex()}"
    abstract, path = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    abstract.bind("\0" + name)
    place = str(tier_c.outside / "socket")
    path.bind(place)
    os.chmod(place, 0o777)
    for each in (abstract, path):
        each.listen()
    yield [str(tcp.getsockname()[1]), str(udp.getsockname()[1]), name, place], udp
    for each in (tcp, udp, abstract, path):
        each.close()


@promise("net-isolated.host-services")
def test_nothing_of_the_hosts_network_can_be_reached(tier_c: Arena, listeners: tuple[list[str], socket.socket]) -> None:
    require(Tier.C, Guarantee.NET_ISOLATED)
    arguments, udp = listeners
    result = tier_c.attack(ATTACK, *arguments)
    assert Guarantee.NET_ISOLATED in result.plan.guarantees
    found = result.json
    assert found.pop("interfaces") == ["lo"]
    found.pop("udp loopback")  # the sandbox's own loopback takes it; what counts is that ours got nothing
    assert "connected" not in found.values(), found
    assert "sent" not in found.values(), found
    with pytest.raises(BlockingIOError):
        udp.recv(10)


@promise("net-isolated.shared-network")
def test_where_the_network_is_shared_nothing_is_claimed(
    tier_c: Arena, listeners: tuple[list[str], socket.socket]
) -> None:
    result = tier_c.attack(ATTACK, *listeners[0], net=OPEN)
    assert Guarantee.NET_ISOLATED not in result.plan.guarantees
    assert any(note.startswith("network_shared") for note in result.plan.degraded)
    assert result.json["loopback"] == "connected"
    assert result.json["path"] in {"ENOENT", "EACCES"}  # the latter where no Unix socket can be made: before Landlock 6


@promise("fs-isolated.abstract-sockets")
def test_where_the_network_is_shared_nobody_who_listens_without_a_path_can_be_asked_to_do_it(
    tier_c: Arena, listeners: tuple[list[str], socket.socket]
) -> None:
    """Names without a path belong to the network: by the X server's or the session bus's a program would type and run
    whatever it likes as the operator, outside of every wall."""
    program = """
import socket
name = "\\0" + sys.argv[1]
def ask(kind, address):
    with socket.socket(socket.AF_UNIX, kind) as s:
        s.connect(address)
        return "connected"
def send(address):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", address)
        return "sent"
def pair(address):
    for s in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM):
        s.sendto(b"x", address)
    return "sent"
asked = [tried(ask, kind, name) for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)]
report([*asked, tried(send, name), tried(pair, name)])
"""
    result = tier_c.attack(program, listeners[0][2], net=OPEN)
    assert Guarantee.FS_ISOLATED in result.plan.guarantees
    assert set(result.json) <= {"EPERM", "EACCES", "ECONNREFUSED", "EPROTOTYPE"}, result.json
    assert result.json[0] in ("EPERM", "EACCES"), result.json
