"""SYSCALL_FILTER: entry points that programs do not need are refused, on this very kernel."""

from __future__ import annotations

import json

import pytest

from palyra.model.call import Tier
from palyra.model.host import Guarantee
from palyra.sandbox import seccomp
from tests.conformance.arena import Arena, require
from tests.conformance.system_calls import CALL, EACH, column

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _claimed() -> None:
    require(Tier.C, Guarantee.SYSCALL_FILTER)


def test_every_refused_call_is_refused_by_this_kernel(tier_c: Arena) -> None:
    numbers = column(seccomp.REFUSED)
    assert tier_c.attack(EACH, json.dumps(numbers)).json == dict.fromkeys(numbers, "EPERM")


def test_namespaces_families_and_clone3_are_closed(tier_c: Arena) -> None:
    numbers = column({**seccomp.ABSENT, **seccomp.JUDGED})
    program = (
        CALL
        + """
n = json.loads(sys.argv[1])
report({
    "clone3": call(n["clone3"], 0, 0),
    "contexts for input and output": call(n["io_setup"], 65536, 0),
    "new user namespace": call(n["unshare"], 0x10000000),
    "new mounts": call(n["unshare"], 0x20000),
    "cloned network": call(n["clone"], 0x40000000 | 17, 0, 0, 0, 0),
    "netlink": call(n["socket"], 16, 3, 0),
    "packet": call(n["socket"], 17, 3, 0),
    "vsock": call(n["socket"], 40, 1, 0),
    "alg pair": call(n["socketpair"], 38, 5, 0, 0),
    "raw": call(n["socket"], 2, 3, 1),
    "sctp": call(n["socket"], 2, 1, 132),
    "l2tp": call(n["socket"], 10, 2, 115),
})
"""
    )
    assert tier_c.attack(program, json.dumps(numbers)).json == {
        "clone3": "ENOSYS",
        "contexts for input and output": "ENOSYS",
        "new user namespace": "EPERM",
        "new mounts": "EPERM",
        "cloned network": "EPERM",
        "netlink": "EAFNOSUPPORT",
        "packet": "EAFNOSUPPORT",
        "vsock": "EAFNOSUPPORT",
        "alg pair": "EAFNOSUPPORT",
        "raw": "EPERM",
        "sctp": "EPROTONOSUPPORT",
        "l2tp": "EPROTONOSUPPORT",
    }


def test_typing_into_a_terminal_is_refused(tier_c: Arena) -> None:
    program = """
import fcntl, pty, termios
def inject():
    fcntl.ioctl(0, termios.TIOCSTI, b"x")
    return "typed"
pid, master = pty.fork()
if pid == 0:
    os.write(1, json.dumps(tried(inject)).encode())
    os._exit(0)
said = os.read(master, 100).decode()
os.waitpid(pid, 0)
report(json.loads(said))
"""
    assert tier_c.attack(program).json == "EPERM"


def test_there_is_no_controlling_terminal(tier_c: Arena) -> None:
    assert tier_c.attack("report(tried(os.open, '/dev/tty', os.O_RDWR))").json in ("ENXIO", "EIO")


def test_processes_outside_can_neither_be_seen_nor_signalled(tier_c: Arena) -> None:
    import os

    found = tier_c.attack(
        """
        pid = int(sys.argv[1])
        report([sorted(int(n) for n in os.listdir("/proc") if n.isdigit())[-1] < 100 or pid < 100,
                tried(os.kill, pid, 0), tried(os.kill, -1, 0)])
        """,
        str(os.getpid()),
    ).json
    assert found[:2] == [True, "ESRCH"]


def test_threads_subprocesses_and_sockets_still_work(tier_c: Arena) -> None:
    program = """
        import socket, subprocess, threading
        done = []
        threads = [threading.Thread(target=done.append, args=(n,)) for n in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        a, b = socket.socketpair()
        report([len(done), subprocess.run(["/bin/echo", "x"], capture_output=True).stdout.decode(), os.getuid()])
    """
    assert tier_c.attack(program).json == [8, "x\n", 1000]
