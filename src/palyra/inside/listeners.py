"""Opens the only listeners of a finished sandbox's network, from outside, before anything has run in it.

Started on the host by path as `python3 -I -S listeners.py USER_FD NET_FD REPLY_FD JSON`, or `run` in a fork of ours.
Enters the sandbox's network namespace (through the user namespace that owns it, where that is needed), brings the
loopback up, makes the given networks local and opens a name server's sockets, a proxy's and the given ones. A socket
belongs to the namespace it was made in for as long as it lives, so the descriptors go back through REPLY_FD and are
served outside, while nothing inside can reach anything else. Exit 0: all opened. Anything else: throw it away.

JSON: {"dns": [address, port], "proxy": [address, port], "local": [network …], "tcp": [[address, port] …]}.
Answers: messages of JSON [[kind, address, port] …], one descriptor for each; kinds dns_udp, dns_tcp, proxy and tcp.
"""

import array  # noqa: F401  # what `send_fds` imports itself, too late in a fork
import ctypes
import errno
import fcntl
import json
import os
import resource
import socket
import struct
import sys

CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1
NEW_ADDRESS, NEW_ROUTE = 20, 24
REQUEST_ACK_CREATE = 0x1 | 0x4 | 0x400
TABLE_LOCAL, PROTOCOL_STATIC, SCOPE_HOST, TYPE_LOCAL = 255, 4, 254, 2
NO_DUPLICATE_CHECK = 0x02
LOOPBACK = 1
OWN_V4 = "198.18.0.1"
"""Of the synthetic range, below every name's address. With no address but loopback ones glibc finds no IPv4 here:
AI_ADDRCONFIG then answers nothing for AF_INET, and, beside a granted IPv6 address, IPv6 alone."""
BACKLOG = 1024
FDS_AT_ONCE = 128
"""SCM_RIGHTS takes at most 253."""


def enter(user: int, net: int) -> None:
    """Root enters as root; anyone else through the user namespace that owns the network, and is its root there."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(net, CLONE_NEWNET) and (
        ctypes.get_errno() != errno.EPERM or libc.setns(user, CLONE_NEWUSER) or libc.setns(net, CLONE_NEWNET)
    ):
        raise OSError(ctypes.get_errno(), "the sandbox's network cannot be entered")
    if not os.path.sameopenfile(net, os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)):
        raise OSError("this is another network than the sandbox's")


def bring_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack_from("16xH", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[0]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value


def ask_kernel(kind: int, body: bytes) -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as netlink:
        netlink.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST_ACK_CREATE, 1, 0) + body)
        code = struct.unpack_from("=i", netlink.recv(4096), 16)[0]
    if code and -code != errno.EEXIST:
        raise OSError(-code, f"{os.strerror(-code)} (making a network local)")


def add_address(family: int, packed: bytes) -> None:
    head = struct.pack("=BBBBi", family, 8 * len(packed), NO_DUPLICATE_CHECK, SCOPE_HOST, LOOPBACK)
    ask_kernel(NEW_ADDRESS, head + attribute(2, packed) + attribute(1, packed))


def make_local(network: str) -> None:
    """Every address of it answers here. One IPv6 address must be the interface's own, or nothing can listen on it."""
    address, _, bits = network.partition("/")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed, length = socket.inet_pton(family, address), int(bits)
    if family == socket.AF_INET6 and length == 128:
        add_address(family, packed)
        return
    head = struct.pack("=BBBBBBBBI", family, length, 0, 0, TABLE_LOCAL, PROTOCOL_STATIC, SCOPE_HOST, TYPE_LOCAL, 0)
    scope = struct.pack("=i", LOOPBACK)
    ask_kernel(NEW_ROUTE, head + (attribute(1, packed) if length else b"") + attribute(4, scope))


def listen(kind: str, address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM if kind == "dns_udp" else socket.SOCK_STREAM)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    made.bind((address, port))
    if kind != "dns_udp":
        made.listen(BACKLOG)
    made.setblocking(False)
    return made


def allow_many_under_way() -> None:
    """Descriptors that were sent and not received yet are counted by user, and held against the sender's own limit on
    open files: a program of the same user could send so many that nobody with an ordinary limit can send any."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def run(given: str, fds: list[int]) -> None:
    """`fds`: the user namespace, the network namespace, where the descriptors go."""
    user, net, reply = fds
    face = json.loads(given)
    enter(user, net)
    bring_up()
    add_address(socket.AF_INET, socket.inet_aton(OWN_V4))
    for network in face["local"]:
        make_local(network)
    wanted = [("dns_udp", *face["dns"]), ("dns_tcp", *face["dns"]), ("proxy", *face["proxy"])]
    wanted += [("tcp", address, port) for address, port in face["tcp"]]
    allow_many_under_way()
    with socket.socket(fileno=reply) as channel:
        for at in range(0, len(wanted), FDS_AT_ONCE):
            batch = wanted[at : at + FDS_AT_ONCE]
            made = [listen(*one) for one in batch]
            socket.send_fds(channel, [json.dumps(batch).encode()], [one.fileno() for one in made])


def main() -> None:
    run(sys.argv[4], [int(word) for word in sys.argv[1:4]])


if __name__ == "__main__":
    main()
