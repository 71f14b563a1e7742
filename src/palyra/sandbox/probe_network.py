"""Can listeners be opened from outside inside a sandbox's network? Tried for real, on a sandbox that waits.

The very program that does it for a call (inside/listeners) is run; it checks itself that it entered that network. What
it passes back is closed at once. Not here: doing it for a call (launch/network), what follows from it (bwrap).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys

from palyra.model.face import ANY_V4, DNS_ADDRESS, DNS_PORT, PROXY_ADDRESS, PROXY_PORT, SYNTHETIC

_NS_GET_USERNS = 0xB701
_TIMEOUT_S = 10.0
_FACE = {
    "dns": [DNS_ADDRESS, DNS_PORT],
    "proxy": [PROXY_ADDRESS, PROXY_PORT],
    "local": [SYNTHETIC],
    "tcp": [[ANY_V4, 80]],
}
_EXPECTED = 4


def try_listeners(init: int, program: str) -> bool:
    """`init`: the first process of a sandbox with a network of its own; `program`: the path of inside/listeners."""
    try:
        with contextlib.ExitStack() as stack:
            return _opened(init, program, stack) == _EXPECTED
    except (OSError, subprocess.SubprocessError):
        return False


def _opened(init: int, program: str, stack: contextlib.ExitStack) -> int:
    network = os.open(f"/proc/{init}/ns/net", os.O_RDONLY)
    stack.callback(os.close, network)
    if os.fstat(network).st_ino == os.stat("/proc/self/ns/net").st_ino:
        return 0
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    stack.callback(os.close, owner)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stack.enter_context(ours)
    stack.enter_context(theirs)
    ours.settimeout(_TIMEOUT_S)
    fds = [owner, network, theirs.fileno()]
    argv = [sys.executable or "/usr/bin/python3", "-I", "-S", program, *map(str, fds), json.dumps(_FACE)]
    done = subprocess.run(argv, env={}, pass_fds=fds, capture_output=True, check=False, timeout=_TIMEOUT_S)
    if done.returncode:
        return 0
    _, received, _, _ = socket.recv_fds(ours, 4096, _EXPECTED)
    for fd in received:
        stack.callback(os.close, fd)
    return len(received)
