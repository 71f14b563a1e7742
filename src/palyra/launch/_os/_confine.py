"""Linux: a thread that gives up what a plain child must not have, starts it, and can end all of it afterwards.

no_new_privs, capabilities, a Landlock domain and a seccomp filter belong to a *thread* and pass through exec, so a
thread of its own enters them and spawns; the engine never has them. Where Landlock scopes signals another thread stays:
it is in a domain around the child's, in which there is nothing else, so its `kill(-1)` reaches exactly the call's
processes. The kernel walks them under the lock that a fork needs: none can slip away. It is not in the child's own
domain, and neither is any other thread of ours once the child goes on: a program may send signals to whoever is in its
own, and one that ends a thread ends the engine.

A thread in a domain may not open files, and the garbage collector runs finalizers in whatever thread allocates, so it
is held back while that thread works. Not here: what is refused (sandbox/landlock, seccomp_b), when to kill (ending).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gc
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any, TypeAlias

from palyra.launch._os._asked import AskedThread, start_thread
from palyra.model.plan import LandlockRules
from palyra.sandbox.landlock import (
    OF_FILES,
    REFER,
    SCOPE_ABI,
    SIGNALS_ATTR,
    WORK,
    accesses,
    handled,
    path_attr,
    ruleset_attr,
)
from palyra.values import dataclass

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_LOOK = os.O_PATH | os.O_CLOEXEC
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_SET_SECCOMP = 38, 24, 22
_SECCOMP_MODE_FILTER = 2
_CLONE_FS = 0x200
_END_S, _STEP_S = 5.0, 0.00005
_OWN_NAME = b"/proc/self/comm"
"""A file that anyone may open for writing who is in no Landlock domain of ours; none ever grants it."""

_libc: Any = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_add_rule = _libc["syscall"]
"""The same, told once what it is given: a call adds half a hundred rules."""
_add_rule.restype = ctypes.c_long
_add_rule.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)


Begin: TypeAlias = Callable[[threading.Thread], Callable[[], None]]
"""Starts a thread; what it returns is called when nobody is left of all that the thread will have started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    drop_capabilities: bool
    landlock: LandlockRules | None = None
    seccomp: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confined:
    pid: int
    domain: Domain | None = None
    """How to end it whole, where Landlock scopes signals."""
    workspace: tuple[int, int] | None = None
    """(device, inode) of the folder it may write; None where its files are not confined."""


def begin_alone(thread: threading.Thread) -> Callable[[], None]:
    start_thread(thread)
    return _nothing


def _nothing() -> None:
    """There is nobody to be told."""


class Domain:
    """Everything one confined child has started and will start, seen from a thread around it."""

    def __init__(self, *, scoped: bool, begin: Begin = begin_alone) -> None:
        self._scoped = scoped
        self._asked = AskedThread("palyra-confined")
        with _uncollected():
            self._over = begin(self._asked.thread)

    def kill_all(self) -> bool:
        """SIGKILL to every process inside, in one step. False where that is not possible: nothing was done."""
        return self._scoped and bool(self._ask(_kill_everyone_inside))

    def inside(self, pids: Sequence[int]) -> list[int]:
        """Those of `pids` that are inside; dead ones that nobody has reaped yet are among them."""
        own = os.getpid()
        found: list[int] = self._ask(lambda: [pid for pid in pids if pid != own and _libc.kill(pid, 0) == 0])
        return found

    def close(self) -> None:
        self._asked.end()
        over, self._over = self._over, _nothing
        over()

    def _ask(self, work: Callable[[], Any]) -> Any:
        with _uncollected():
            return self._asked.ask(work)


def start_confined(confinement: Confinement, start: Callable[[], int], begin: Begin = begin_alone) -> Confined:
    """`start` returns the child's pid and opens no file; `begin` is how a thread begins whose children can be ended
    as a whole."""
    rules = confinement.landlock
    scoped = rules is not None and rules.abi >= SCOPE_ABI
    ruleset, workspace = _make_ruleset(rules) if rules is not None else (-1, None)
    domain: Domain | None = None

    def enter_and_start() -> int:
        _enter(confinement, ruleset)
        return start()

    def work() -> int:
        if not scoped:
            return enter_and_start()
        _restrict(ruleset)
        return _done_within(enter_and_start)

    try:
        # Where there is no thread to be had, the rules are closed all the same.
        domain = Domain(scoped=scoped, begin=begin if scoped else begin_alone)
        pid = domain._ask(work)
    except BaseException:
        if domain is not None:
            domain.close()
        raise
    finally:
        if ruleset >= 0:
            os.close(ruleset)
    if not scoped:
        domain.close()
    return Confined(pid=pid, domain=domain if scoped else None, workspace=workspace)


def _done_within(work: Callable[[], int]) -> int:
    """By a thread that begins in the domain of this one, and is gone when this returns."""
    answers: SimpleQueue[int | BaseException] = SimpleQueue()

    def answer() -> None:
        try:
            answers.put(work())
        except BaseException as error:  # noqa: BLE001  # carried over to the waiting thread
            answers.put(error)

    thread = threading.Thread(target=answer, name="palyra-confining", daemon=True)
    start_thread(thread)
    answered = answers.get()
    thread.join()
    _wait_for_end_of(thread.native_id or 0)
    if isinstance(answered, BaseException):
        raise answered
    return answered


def _wait_for_end_of(thread: int) -> None:
    """Python's own word for it comes a little earlier, and the child could send it a signal still."""
    until = time.monotonic() + _END_S
    while os.path.exists(f"/proc/self/task/{thread}"):
        if time.monotonic() > until:
            raise OSError(errno.EBUSY, "a thread that is confined like the program does not end")
        time.sleep(_STEP_S)


def open_without_links(path: str) -> int:
    """A folder reached without following any link, so that none swapped in since can lead elsewhere."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open("/", flags)
    try:
        for part in path.strip("/").split("/"):
            above, fd = fd, os.open(part, flags, dir_fd=fd)
            os.close(above)
    except OSError:
        os.close(fd)
        raise
    return fd


def _open_granted(path: str) -> int:
    """A folder or file that was granted under a path without links: one that is there now was put there since."""
    above, name = os.path.split(path)
    if not name:  # the root itself
        return os.open(path, _LOOK)
    try:
        folder = open_without_links(above) if above != "/" else os.open(above, _LOOK)
        try:
            fd = os.open(name, _LOOK | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
        if not stat.S_ISLNK(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    except NotADirectoryError:
        pass
    raise OSError(errno.ELOOP, "a link has taken the place of what was granted", path)


def _enter(confinement: Confinement, ruleset: int) -> None:
    """From / (a folder of the engine's that the child may not enter would make its shell complain). The filter comes
    last: it may refuse what the steps before need."""
    _check(_libc.unshare(_CLONE_FS), "unshare")
    os.chdir("/")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if confinement.drop_capabilities:
        _drop_bounding_set()
    if ruleset >= 0:
        _restrict(ruleset)
    if confinement.seccomp:
        _install(confinement.seccomp)


def _restrict(ruleset: int) -> None:
    """A domain within the one this thread is in; everything it starts from now on is in there, too."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(_system_call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)), "landlock_restrict_self")


def enter_outer() -> None:
    """From now on this thread, and whoever is born of it, can signal nobody but each other; nothing else is refused.
    To move a file from one folder to another is refused by every domain that does not allow it."""
    _check(_libc.unshare(_CLONE_FS), "unshare")
    os.chdir("/")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    ruleset = _system_call(_CREATE_RULESET, SIGNALS_ATTR, ctypes.c_size_t(len(SIGNALS_ATTR)), ctypes.c_uint32(0))
    _check(min(ruleset, 0), "landlock_create_ruleset")
    try:
        _allow(ruleset, os.open("/", _LOOK), REFER)
        _restrict(ruleset)
    finally:
        os.close(ruleset)


def _make_ruleset(rules: LandlockRules) -> tuple[int, tuple[int, int]]:
    """(descriptor, identity of the workspace)"""
    attr = ruleset_attr(rules)
    ruleset = _system_call(_CREATE_RULESET, attr, ctypes.c_size_t(len(attr)), ctypes.c_uint32(0))
    _check(min(ruleset, 0), "landlock_create_ruleset")
    try:
        workspace = open_without_links(rules.writable)
        found = os.fstat(workspace)
        _allow(ruleset, workspace, WORK & handled(rules.abi)[0])
        for path, rights in accesses(rules):
            try:
                fd = _open_granted(path) if path in rules.granted else os.open(path, _LOOK)
                _allow(ruleset, fd, rights)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                pass
    except BaseException:
        os.close(ruleset)
        raise
    return ruleset, (found.st_dev, found.st_ino)


def _allow(ruleset: int, fd: int, rights: int) -> None:
    """Closes `fd`."""
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= OF_FILES
        _check(_add_rule(_ADD_RULE, ruleset, _PATH_BENEATH, path_attr(rights, fd), 0), "landlock_add_rule")
    finally:
        os.close(fd)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def _install(seccomp: bytes) -> None:
    program = _Program(len(seccomp) // 8, seccomp)
    set_to = _libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), ctypes.byref(program), 0, 0)
    _check(set_to, "seccomp")


def _drop_bounding_set() -> None:
    """What uid 0 would get back at its next exec."""
    for capability in range(64):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            return  # past the last one this kernel knows


def _kill_everyone_inside() -> bool:
    """In a thread that is in no domain this would be everyone on the machine: make sure, here and now."""
    fd = _libc.open(_OWN_NAME, os.O_WRONLY | os.O_CLOEXEC)
    if fd >= 0:
        os.close(fd)
        return False
    return ctypes.get_errno() == errno.EACCES and _libc.kill(-1, int(signal.SIGKILL)) == 0


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _system_call(number: int, *arguments: object) -> int:
    return int(_libc.syscall(ctypes.c_long(number), *arguments))


def _check(result: int, what: str) -> None:
    if result:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
