"""NET_ISOLATED: in tier B too, with every way that Landlock's own TCP rule leaves open."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from palyra.errors import Unenforceable
from palyra.model.call import Tier
from palyra.model.host import Guarantee
from palyra.model.net import NO_NETWORK, EgressMode, HostKind, HostPattern, NetGrant
from tests.conformance.arena import OPEN, Arena, require
from tests.promises import promise

pytestmark = pytest.mark.slow

ATTACK = """
import ctypes, socket
port, udp, name, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
FASTOPEN, MPTCP, FASTOPEN_CONNECT = 0x20000000, 262, 30
def connect(family, address, protocol=0, option=None):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as s:
        s.settimeout(2)
        if option:
            s.setsockopt(socket.IPPROTO_TCP, option, 1)
        s.connect(address)
        if option:
            s.send(b"x")
        return "connected"
def fast_open(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.sendto(b"x", FASTOPEN, address)
        s.getpeername()
        return "connected"
def listen(bind):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        if bind:
            s.bind(("127.0.0.1", 0))
        s.listen()
        return f"listening on {s.getsockname()[1]}"
def send(family, address, kind=socket.SOCK_DGRAM, protocol=0):
    with socket.socket(family, kind, protocol) as s:
        s.sendto(b"hello", address)
        return "sent"
def made(*kind):
    socket.socket(*kind).close()
    return "made"
report({
    "tcp": tried(connect, socket.AF_INET, ("127.0.0.1", port)),
    "tcp 6": tried(connect, socket.AF_INET6, ("::1", port)),
    "mapped": tried(connect, socket.AF_INET6, ("::ffff:127.0.0.1", port)),
    "mptcp": tried(connect, socket.AF_INET, ("127.0.0.1", port), MPTCP),
    "fast open": tried(fast_open, socket.AF_INET, ("127.0.0.1", port)),
    "fast open option": tried(connect, socket.AF_INET, ("127.0.0.1", port), 0, FASTOPEN_CONNECT),
    "listen without bind": tried(listen, False),
    "listen": tried(listen, True),
    "udp": tried(send, socket.AF_INET, ("127.0.0.1", udp)),
    "udp 6": tried(send, socket.AF_INET6, ("::1", udp)),
    "ping": tried(send, socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM, 1),
    "raw": tried(made, socket.AF_INET, socket.SOCK_RAW, 1),
    "packet": tried(made, 17, socket.SOCK_RAW, 0),
    "netlink": tried(made, 16, socket.SOCK_RAW, 0),
    "vsock": tried(made, 40, socket.SOCK_STREAM, 0),
    "crypto": tried(made, 38, socket.SOCK_SEQPACKET, 0),
    "bluetooth": tried(made, 31, socket.SOCK_STREAM, 3),
    "sctp": tried(made, socket.AF_INET, socket.SOCK_STREAM, 132),
    "smc": tried(made, 43, socket.SOCK_STREAM, 0),
    "abstract": tried(connect, socket.AF_UNIX, "\\0" + name),
    "path": tried(connect, socket.AF_UNIX, path),
    "metadata": tried(connect, socket.AF_INET, ("169.254.169.254", 80)),
    "name": tried(socket.getaddrinfo, "localhost.palyra.invalid", 80),
    "io_uring": ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120)) >= 0,
})
"""


@pytest.fixture
def listeners(tier_b: Arena) -> Iterator[tuple[list[str], list[socket.socket]]]:
    """Of the host: TCP of both kinds, UDP of both kinds on one port each, an abstract socket, one with a path."""
    tcp = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    udp.bind(("", 0))
    name = f"palyra-test-{os.urandom(8).hex()}"
    abstract, path = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    abstract.bind("\0" + name)
    place = str(tier_b.outside / "socket")
    path.bind(place)
    os.chmod(place, 0o777)
    for each in (abstract, path):
        each.listen()
    every = [tcp, udp, abstract, path]
    for each in every:
        each.setblocking(False)
    yield [str(tcp.getsockname()[1]), str(udp.getsockname()[1]), name, place], every
    for each in every:
        each.close()


Listeners = tuple[list[str], list[socket.socket]]


@promise("net-isolated.raw-socket")
def test_nothing_of_the_network_can_be_reached_or_offered(tier_b: Arena, listeners: Listeners) -> None:
    require(Tier.B, Guarantee.NET_ISOLATED)
    arguments, (tcp, udp, abstract, path) = listeners
    result = tier_b.attack(ATTACK, *arguments, net=NO_NETWORK)
    assert Guarantee.NET_ISOLATED in result.plan.guarantees
    found = result.json
    assert found.pop("name") == "gaierror"
    assert found.pop("io_uring") is False
    assert set(found.values()) <= {"EACCES", "EAFNOSUPPORT"}, found
    for each in (tcp, abstract, path):
        with pytest.raises(BlockingIOError):
            each.accept()
    with pytest.raises(BlockingIOError):
        udp.recv(10)


@promise("net-isolated.shared-network")
def test_the_attack_succeeds_where_the_network_is_shared(tier_b: Arena, listeners: Listeners) -> None:
    """So that the refusals above are Palyra's doing; Unix sockets stay closed, they are no part of the network."""
    result = tier_b.attack(ATTACK, *listeners[0], net=OPEN)
    assert Guarantee.NET_ISOLATED not in result.plan.guarantees
    assert any(note.startswith("network_shared") for note in result.plan.degraded)
    found = result.json
    assert {found[how] for how in ("tcp", "fast open", "fast open option", "mptcp")} <= {"connected", "EPROTONOSUPPORT"}
    assert (found["tcp"], found["udp"]) == ("connected", "sent")
    assert found["listen without bind"].startswith("listening")
    assert {found[how] for how in ("abstract", "path")} == {"EACCES"}
    assert {found[how] for how in ("packet", "netlink", "vsock", "crypto")} == {"EAFNOSUPPORT"}


@promise("net-isolated.socket-pairs")
def test_pairs_inside_still_work(tier_b: Arena) -> None:
    require(Tier.B, Guarantee.NET_ISOLATED)
    found = tier_b.attack(
        """
        import socket
        a, b = socket.socketpair()
        a.send(b"x")
        report(b.recv(1).decode())
        """,
        net=NO_NETWORK,
    ).json
    assert found == "x"


@promise("net-isolated.single-hosts")
def test_single_hosts_cannot_be_allowed_here(tier_b: Arena) -> None:
    with pytest.raises(Unenforceable, match="HOST_ALLOWLIST"):
        tier_b.run("/bin/true", net=NetGrant(EgressMode.STRICT, (HostPattern(HostKind.EXACT, "example.org"),)))
