"""SYSCALL_FILTER: entry points that programs do not need are refused, on this very kernel."""

from __future__ import annotations

import json

import pytest

from palyra.model.call import Tier
from palyra.model.host import Guarantee
from palyra.sandbox import seccomp
from tests.conformance.arena import Arena, require
from tests.conformance.system_calls import CALL, EACH, column
from tests.promises import promise

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _claimed() -> None:
    require(Tier.C, Guarantee.SYSCALL_FILTER)


@promise("syscall-filter.refused-calls")
def test_every_refused_call_is_refused_by_this_kernel(tier_c: Arena) -> None:
    numbers = column(seccomp.REFUSED)
    assert tier_c.attack(EACH, json.dumps(numbers)).json == dict.fromkeys(numbers, "EPERM")


@promise("syscall-filter.namespaces")
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
    "netlink": call(n["socket"], 16, 3, 16),
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
        "netlink": "EPROTONOSUPPORT",
        "packet": "EAFNOSUPPORT",
        "vsock": "EAFNOSUPPORT",
        "alg pair": "EAFNOSUPPORT",
        "raw": "EPERM",
        "sctp": "EPROTONOSUPPORT",
        "l2tp": "EPROTONOSUPPORT",
    }


@promise("syscall-filter.terminal-input")
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


@promise("syscall-filter.kernel-modules")
def test_no_kernel_module_is_loaded_for_a_line_discipline_a_bridge_or_a_kind_of_socket(tier_c: Arena) -> None:
    """A pty and a socket are enough to ask, without any capability; discipline 27 is one that every kernel has."""
    program = """
import fcntl, socket, struct
def asked(fd, request):
    fcntl.ioctl(fd, request, struct.pack("i", 27) + bytes(60))
    return "done"
terminal, line = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY), socket.socket()
report({
    "discipline": tried(asked, terminal, 0x5423),
    "bridge": tried(asked, line, 0x8940),
    "vlan": tried(asked, line, 0x8982),
    "packets by another name": tried(socket.socket, 2, 10, 0),
    "dccp": tried(socket.socket, 2, 6, 0),
    "size": tried(asked, terminal, 0x5414),
})
"""
    assert tier_c.attack(program).json == {
        "discipline": "EPERM",
        "bridge": "EPERM",
        "vlan": "EPERM",
        "packets by another name": "ESOCKTNOSUPPORT",
        "dccp": "ESOCKTNOSUPPORT",
        "size": "done",
    }


@promise("syscall-filter.scarce-resources")
def test_huge_pages_that_the_machine_has_set_aside_cannot_be_taken(tier_c: Arena) -> None:
    program = """
import mmap
report([tried(lambda: bool(mmap.mmap(-1, 2 << 20, flags=0x40021))), tried(os.memfd_create, "x", 4),
        tried(os.memfd_create, "x", 0) != "EPERM"])
"""
    assert tier_c.attack(program).json == ["EPERM", "EPERM", True]


@promise("syscall-filter.terminal-input")
def test_there_is_no_controlling_terminal(tier_c: Arena) -> None:
    assert tier_c.attack("report(tried(os.open, '/dev/tty', os.O_RDWR))").json in ("ENXIO", "EIO")


@promise("syscall-filter.other-processes")
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


@promise("syscall-filter.ordinary-work")
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
