"""What this kernel enforces on a plain child, tried out: Landlock in a throwaway thread, cgroups on a child of our own.

A version number is not believed: a thread enters a domain in which nothing is allowed and must be refused a file, a
TCP connection and a signal to a bystander. What is not refused is not reported. Groups count only when one was made, a
process moved into it, and the limit read back (or the kill seen). Everything tried is undone.

Not here: what may be promised from it (rlimit), remembering it (probe).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from palyra.model.host import CgroupFacts
from palyra.model.plan import LandlockRules
from palyra.sandbox.landlock import SCOPE_ABI, TCP_ABI, ruleset_attr
from palyra.sandbox.probe_trial import read_file

_CREATE_RULESET, _RESTRICT_SELF, _VERSION = 444, 446, 1
_PR_SET_NO_NEW_PRIVS = 38
_WAIT_S = 15.0
_STEP_S = 0.002
_TRIAL_BYTES, _TRIAL_PIDS = 64 << 20, 64

# In a child of its own, because a process cannot leave a namespace it entered.
_NAMESPACES = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
for name, flags in (("user", 0x10000000), ("user+net", 0x50000000), ("user+pid", 0x30000000)):
    if os.fork() == 0:
        failed = libc.unshare(flags)
        print(name, errno.errorcode.get(ctypes.get_errno(), "?") if failed else "", flush=True)
        os._exit(0)
    os.wait()
"""


# ── Landlock ─────────────────────────────────────────────────────────────────


@cache
def _libc() -> Any:
    """Once: each makes classes of its own."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def try_landlock() -> int:
    """The version up to which the walls were seen to stand; 0 where there are none."""
    import ctypes

    libc = _libc()

    def call(number: int, *arguments: object) -> int:
        return int(libc.syscall(ctypes.c_long(number), *arguments))

    abi = call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    if abi < 1:
        return 0
    attr = ruleset_attr(LandlockRules(abi=abi, writable="", runnable=(), readable=(), devices=(), tcp=False))
    ruleset = call(_CREATE_RULESET, attr, ctypes.c_size_t(len(attr)), ctypes.c_uint32(0))
    if ruleset < 0:
        return 0
    seen: list[int] = []

    def look(bystander: int) -> None:
        refused = not libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        refused = refused and not call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        seen.append(_walls(abi, bystander) if refused else 0)

    try:
        with _bystander() as child:
            thread = threading.Thread(target=look, args=(child,), name="palyra-probe")
            thread.start()
            thread.join()
    finally:
        os.close(ruleset)
    return seen[0] if seen else 0


def _walls(abi: int, bystander: int) -> int:
    if _refusal(lambda: os.listdir("/")) != errno.EACCES:
        return 0
    if abi >= TCP_ABI and _refusal(_connect) != errno.EACCES:
        return TCP_ABI - 1
    if abi >= SCOPE_ABI and _refusal(lambda: os.kill(bystander, 0)) != errno.EPERM:
        return SCOPE_ABI - 1
    return abi


def _connect() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setblocking(False)
        trial.connect(("127.0.0.1", 1))


def _refusal(attempt: Callable[[], object]) -> int:
    try:
        attempt()
    except OSError as error:
        return error.errno or -1
    return 0


@contextlib.contextmanager
def _bystander() -> Iterator[int]:
    """A child of our own user that waits until we are done."""
    with subprocess.Popen(["/bin/sh", "-c", "read x"], env={}, stdin=subprocess.PIPE) as child:
        try:
            yield child.pid
        finally:
            child.kill()


# ── namespaces ───────────────────────────────────────────────────────────────


def try_namespaces() -> dict[str, str]:
    """Kind of namespace → errno name of making one directly, "" when it worked."""
    if not sys.executable:
        return {}
    argv = [sys.executable, "-I", "-S", "-c", _NAMESPACES]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(argv, env={}, capture_output=True, text=True, check=False, timeout=_WAIT_S)
        return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    return {}


# ── cgroups ──────────────────────────────────────────────────────────────────


def try_cgroup_kill(limits: CgroupFacts) -> str:
    """A cgroup v2 folder, if groups can be made below it and a process in one really killed: our own, or the one where
    `limits` bound a call. A process is in one group of version 2: bounded beside us, it would be out of the one below
    us that is killed, and everything it started would go on."""
    parent = limits.memory or limits.pids if limits.version == 2 else _folder("")
    with _group(parent) as group, _bystander() as child:
        if group and _wrote(f"{group}/cgroup.procs", str(child)) and _wrote(f"{group}/cgroup.kill", "1"):
            return parent if _ended(child) else ""
    return ""


def try_cgroup_limits() -> CgroupFacts | None:
    """Where the memory and the number of processes of a whole call can be bounded; None where neither can."""
    own = _folder("")
    for parent in (own, os.path.dirname(own)) if own else ():  # beside us, where a service delegates a subgroup
        memory, pids = _try_limit(parent, "memory.max", _TRIAL_BYTES), _try_limit(parent, "pids.max", _TRIAL_PIDS)
        if memory or pids:
            return CgroupFacts(version=2, memory=parent if memory else "", pids=parent if pids else "")
    memory_parent, pids_parent = _folder("memory"), _folder("pids")
    memory = _try_limit(memory_parent, "memory.limit_in_bytes", _TRIAL_BYTES)
    pids = _try_limit(pids_parent, "pids.max", _TRIAL_PIDS)
    if not (memory or pids):
        return None
    return CgroupFacts(version=1, memory=memory_parent if memory else "", pids=pids_parent if pids else "")


def _try_limit(parent: str, file: str, value: int) -> bool:
    with _group(parent) as group, _bystander() as child:
        path = f"{group}/{file}"
        return bool(
            group
            and _wrote(path, str(value))
            and read_file(path) == str(value)
            and _wrote(f"{group}/cgroup.procs", str(child))
            and str(child) in read_file(f"{group}/cgroup.procs").split()
        )


def _folder(controller: str) -> str:
    """Where this process stands in a hierarchy, as a path; an empty controller means version 2."""
    start = f":{controller}:" if controller else "0::"
    lines = [line.partition(start)[2] for line in read_file("/proc/self/cgroup").splitlines() if start in f":{line}"]
    for line in read_file("/proc/self/mountinfo").splitlines():
        fields, _, kind = line.partition(" - ")
        root, point = fields.split()[3:5]
        options = kind.split()[2].split(",")
        fits = controller in options if controller else True
        if kind.startswith("cgroup " if controller else "cgroup2 ") and fits and lines:
            inner = os.path.relpath(lines[0], root)
            return "" if inner.startswith("..") else os.path.normpath(os.path.join(point, inner))
    return ""


@contextlib.contextmanager
def _group(parent: str) -> Iterator[str]:
    """A group of our own below `parent`, or an empty string."""
    group = os.path.join(parent, f"palyra-probe-{os.getpid()}-{threading.get_ident()}")
    try:
        os.stat(f"{parent}/cgroup.procs")  # above the uppermost group is an ordinary folder
        os.mkdir(group)
    except OSError:
        yield ""
        return
    try:
        yield group
    finally:
        _remove(group)


def _remove(group: str) -> None:
    """Its last process may still be on its way out."""
    for _ in range(200):
        try:
            os.rmdir(group)
        except OSError:
            threading.Event().wait(0.005)
        else:
            return


def _ended(child: int) -> bool:
    """Whether our child has ended, leaving it to its Popen. No pidfd: old kernels and filters of containers lack it."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    for _ in range(int(_WAIT_S / _STEP_S)):
        try:
            if os.waitid(os.P_PID, child, how) is not None:
                return True
        except ChildProcessError:  # somebody else in this process took it: an embedder that ignores SIGCHLD
            return True
        threading.Event().wait(_STEP_S)
    return False


def _wrote(path: str, text: str) -> bool:
    """Into a file that is there: one that a plain folder lets us make would prove nothing."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.write(fd, text.encode()) > 0
    except OSError:
        return False
    finally:
        os.close(fd)
