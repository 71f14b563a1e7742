"""Opens the listeners of a sandbox's network while it waits: by a short-lived child of ours that enters it.

A process with threads may not enter another user namespace, so a child does (inside/listeners) and passes the open
sockets back. Rules: exactly the listeners that were planned, or LaunchFailed; every descriptor is close-on-exec and
belongs to the caller; whatever fails on the way closes what had come.

Not here: which listeners (egress/face), who answers on them (egress/server).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TextIO, TypeAlias

from palyra.launch.executor import LaunchFailed
from palyra.model.face import DNS_ADDRESS, DNS_PORT, PROXY_ADDRESS, PROXY_PORT, Listener, NetFace

_NS_GET_USERNS = 0xB701
_MESSAGE_BYTES = 64 * 1024
_FDS_AT_ONCE = 253
RunJob: TypeAlias = Callable[[str, Sequence[str | int]], Awaitable[bool]]
_FAILED = "The sandbox's network could not be made ready"


async def open_listeners(init: int, face: NetFace, run: RunJob) -> tuple[Listener, ...]:
    """`init`: the first process inside, which waits; `run`: how a program of inside/ is run. The caller bounds the
    time."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    opened: list[Listener] = []
    try:
        with ours, theirs:
            went_well = await _run_inside(init, face, theirs.fileno(), run)
            theirs.close()
            ours.setblocking(False)
            _receive(ours, opened)
        if not went_well or [(one.kind, one.address, one.port) for one in opened] != _planned(face):
            raise LaunchFailed(f"{_FAILED}: its listeners could not be opened.")
    except BaseException:
        close_listeners(opened)
        raise
    return tuple(opened)


def _planned(face: NetFace) -> list[tuple[str, str, int]]:
    own = [("dns_udp", DNS_ADDRESS, DNS_PORT), ("dns_tcp", DNS_ADDRESS, DNS_PORT), ("proxy", PROXY_ADDRESS, PROXY_PORT)]
    return [*own, *(("tcp", *pair) for pair in face.tcp)]


def close_listeners(listeners: list[Listener] | tuple[Listener, ...]) -> None:
    for one in listeners:
        with contextlib.suppress(OSError):
            os.close(one.fd)


async def _run_inside(init: int, face: NetFace, reply: int, run: RunJob) -> bool:
    given = {
        "dns": [DNS_ADDRESS, DNS_PORT],
        "proxy": [PROXY_ADDRESS, PROXY_PORT],
        "local": list(face.local),
        "tcp": [list(pair) for pair in face.tcp],
    }
    network = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    owner = -1
    try:
        owner = fcntl.ioctl(network, _NS_GET_USERNS)
        return await run("listeners", (owner, network, reply, json.dumps(given)))
    finally:
        for fd in (network, owner):
            if fd >= 0:
                os.close(fd)


def _receive(channel: socket.socket, opened: list[Listener]) -> None:
    """Everything the child sent: it is gone, so all of it is here. Who forked it may still be about to close its own
    end: then nothing more comes, though the end does not either."""
    while True:
        try:
            data, fds, flags, _ = socket.recv_fds(channel, _MESSAGE_BYTES, _FDS_AT_ONCE, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        if not data:
            return
        names = json.loads(data)
        opened += [Listener(kind=k, address=a, port=p, fd=fd) for (k, a, p), fd in zip(names, fds, strict=False)]
        if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC) or len(names) != len(fds):
            raise LaunchFailed(f"{_FAILED}: this process has no room for more open files.")


class Unreachable:
    """How often something inside tried an address that is not there, by any protocol: the namespace's own counters.

    Opened while its first process lives, read when it is gone: an open counter keeps its namespace.
    """

    def __init__(self, init: int) -> None:
        self._files: list[tuple[TextIO, Callable[[str], int]]] = []
        for name, read in (("snmp", _no_routes_v4), ("snmp6", _no_routes_v6)):
            with contextlib.suppress(OSError):
                self._files.append((open(f"/proc/{init}/net/{name}", encoding="ascii"), read))  # noqa: SIM115

    def close(self) -> int:
        total = 0
        for file, read in self._files:
            with file, contextlib.suppress(OSError, ValueError):
                total += read(file.read())
        self._files = []
        return total


def _no_routes_v4(text: str) -> int:
    names, values = (line.split() for line in text.splitlines() if line.startswith("Ip:"))
    return int(values[names.index("OutNoRoutes")])


def _no_routes_v6(text: str) -> int:
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Ip6OutNoRoutes"))
