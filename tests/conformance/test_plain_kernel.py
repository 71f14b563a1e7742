"""SYSCALL_FILTER: tier B's filter, on this very kernel: tier C's refusals and those of a child among strangers."""

from __future__ import annotations

import json

import pytest

from palyra.model.call import Tier
from palyra.model.host import Guarantee
from palyra.sandbox import seccomp, seccomp_b
from tests.conformance.arena import Arena, require
from tests.conformance.system_calls import CALL, EACH, column
from tests.promises import promise

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _claimed() -> None:
    require(Tier.B, Guarantee.SYSCALL_FILTER)


@promise("syscall-filter.refused-calls")
def test_every_refused_call_is_refused_by_this_kernel(tier_b: Arena) -> None:
    numbers = column(seccomp_b.REFUSED_B)
    assert tier_b.attack(EACH, json.dumps(numbers)).json == dict.fromkeys(numbers, "EPERM")


@promise("syscall-filter.namespaces")
def test_namespaces_strangers_and_terminals_are_closed(tier_b: Arena) -> None:
    numbers = column({**seccomp.ABSENT, **seccomp_b.JUDGED_B})
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
    "typing": call(n["ioctl"], 0, 0x5412, 0),
    "own limits": call(n["prlimit64"], 0, 7, 0, 0),
    "limits of another": call(n["prlimit64"], os.getppid(), 7, 0, 0),
    "own priority": call(n["setpriority"], 0, 0, 19),
    "priority of another": call(n["setpriority"], 0, os.getppid(), 5),
    "priority of the user": call(n["setpriority"], 2, 0, 5),
    "disk priority of the user": call(n["ioprio_set"], 3, 0, 0),
    "a pair that can send anywhere": call(n["socketpair"], 1, 2, 0, 0),
})
"""
    )
    assert tier_b.attack(program, json.dumps(numbers)).json == {
        "clone3": "ENOSYS",
        "contexts for input and output": "ENOSYS",
        "new user namespace": "EPERM",
        "new mounts": "EPERM",
        "cloned network": "EPERM",
        "typing": "EPERM",
        "own limits": "",
        "limits of another": "EPERM",
        "own priority": "",
        "priority of another": "EPERM",
        "priority of the user": "EPERM",
        "disk priority of the user": "EPERM",
        "a pair that can send anywhere": "EACCES",
    }


@promise("syscall-filter.ordinary-work")
def test_threads_and_subprocesses_still_work(tier_b: Arena) -> None:
    program = """
        import subprocess, threading
        done = []
        threads = [threading.Thread(target=done.append, args=(n,)) for n in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        one = subprocess.run(["/bin/echo", "x"], capture_output=True, start_new_session=True).stdout.decode()
        report([len(done), one, subprocess.run(["/usr/bin/timeout", "0.1", "sleep", "5"]).returncode])
    """
    assert tier_b.attack(program).json == [8, "x\n", 124]
