"""Windows: a program in a job object, started so that no instruction of it runs outside. Calls only on Windows.

Order: 1 the job, with its limits and kill-on-close; 2 pipes, of which exactly three ends may be inherited, by a list;
3 the process, suspended; 4 into the job; 5 released. Whatever fails after 3 ends the process. Closing the job's last
handle ends everything in it, so an engine that dies takes its calls along.

Every function of the system is reached through one object (`kernel32`), which tests replace: the order of the calls is
checked on any machine, what Windows makes of them only on Windows.

Not here: the structures (_jobobject), limits and quoting (sandbox/jobobject).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_uint32, c_void_p, sizeof
from typing import Any

from palyra.launch._os import _jobobject as layout
from palyra.launch._os._jobobject import JobUsage
from palyra.model.plan import ProcessPlan
from palyra.sandbox.jobobject import command_line, environment_block
from palyra.values import dataclass

_FAILED = 0xFFFFFFFF
_TIMED_OUT = 0x102
_KILLED = 1

_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "CreateJobObjectW": (c_void_p, (c_void_p, c_void_p)),
    "SetInformationJobObject": (ctypes.c_int, (c_void_p, ctypes.c_int, c_void_p, c_uint32)),
    "QueryInformationJobObject": (ctypes.c_int, (c_void_p, ctypes.c_int, c_void_p, c_uint32, c_void_p)),
    "AssignProcessToJobObject": (ctypes.c_int, (c_void_p, c_void_p)),
    "TerminateJobObject": (ctypes.c_int, (c_void_p, c_uint32)),
    "TerminateProcess": (ctypes.c_int, (c_void_p, c_uint32)),
    "ResumeThread": (c_uint32, (c_void_p,)),
    "WaitForSingleObject": (c_uint32, (c_void_p, c_uint32)),
    "GetExitCodeProcess": (ctypes.c_int, (c_void_p, c_void_p)),
    "CloseHandle": (ctypes.c_int, (c_void_p,)),
    "CreatePipe": (ctypes.c_int, (c_void_p, c_void_p, c_void_p, c_uint32)),
    "SetHandleInformation": (ctypes.c_int, (c_void_p, c_uint32, c_uint32)),
    "InitializeProcThreadAttributeList": (ctypes.c_int, (c_void_p, c_uint32, c_uint32, c_void_p)),
    "UpdateProcThreadAttribute": (
        ctypes.c_int,
        (c_void_p, c_uint32, ctypes.c_size_t, c_void_p, ctypes.c_size_t, c_void_p, c_void_p),
    ),
    "DeleteProcThreadAttributeList": (None, (c_void_p,)),
    "CreateProcessW": (
        ctypes.c_int,
        (c_void_p, c_void_p, c_void_p, c_void_p, ctypes.c_int, c_uint32, c_void_p, c_void_p, c_void_p, c_void_p),
    ),
}


def load_kernel32() -> Any:
    """The system's own library with every signature set; only on Windows is there one."""
    load: Callable[..., Any] | None = getattr(ctypes, "WinDLL", None)
    if load is None:
        raise OSError("job objects need Windows")
    return declared(load("kernel32", use_last_error=True))


def declared(library: Any) -> Any:
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, list(arguments)
    return library


@dataclass(slots=True, kw_only=True)
class JobProcess:
    """A running program, its job, and our ends of its streams. `close` ends whatever is left."""

    kernel32: Any
    job: int
    process: int
    pid: int
    stdin: int
    stdout: int
    stderr: int

    def wait(self, timeout_ms: int) -> int | None:
        """Its exit code; None while it runs."""
        waited = self.kernel32.WaitForSingleObject(self.process, timeout_ms)
        if waited == _TIMED_OUT:
            return None
        if waited == _FAILED:
            raise _error("WaitForSingleObject")
        code = c_uint32()
        _check(self.kernel32.GetExitCodeProcess(self.process, byref(code)), "GetExitCodeProcess")
        return int(code.value)

    def kill(self) -> None:
        """Every process in the job, at once."""
        _check(self.kernel32.TerminateJobObject(self.job, _KILLED), "TerminateJobObject")

    def usage(self) -> JobUsage:
        accounting, limits = layout.BasicAccounting(), layout.ExtendedLimits()
        for kind, into in ((layout.BASIC_ACCOUNTING, accounting), (layout.EXTENDED_LIMITS, limits)):
            asked = self.kernel32.QueryInformationJobObject(self.job, kind, byref(into), sizeof(into), None)
            _check(asked, "QueryInformationJobObject")
        return layout.usage_of(accounting, limits)

    def close(self) -> None:
        for name in ("stdin", "stdout", "stderr", "process", "job"):
            handle = getattr(self, name)
            setattr(self, name, 0)
            if handle:
                self.kernel32.CloseHandle(handle)


def start_in_job(plan: ProcessPlan, kernel32: Any) -> JobProcess:
    if plan.job is None:
        raise ValueError("the plan has no job object")
    line, block = command_line((plan.program, *plan.argv[1:])), environment_block(plan.env)
    with contextlib.ExitStack() as undo:
        box = _make_job(plan, kernel32, undo)  # 1
        with contextlib.ExitStack() as after:
            ends = [_pipe(kernel32, undo, after, child_reads=number == 0) for number in range(3)]  # 2
            startup = _startup(kernel32, [theirs for theirs, _ in ends], after)
            info = _create(plan, kernel32, line, block, startup)  # 3
        undo.callback(kernel32.CloseHandle, info.hProcess)
        _release(kernel32, box, info)  # 4, 5
        undo.pop_all()
    ours = [mine for _, mine in ends]
    return JobProcess(
        kernel32=kernel32, job=box, process=info.hProcess, pid=info.dwProcessId,
        stdin=ours[0], stdout=ours[1], stderr=ours[2],
    )  # fmt: skip


def _make_job(plan: ProcessPlan, kernel32: Any, undo: contextlib.ExitStack) -> int:
    assert plan.job is not None
    box = int(_check(kernel32.CreateJobObjectW(None, None), "CreateJobObjectW"))
    undo.callback(kernel32.CloseHandle, box)
    limits, walls = layout.extended_limits(plan.job), layout.UiRestrictions(plan.job.ui_restrictions)
    for kind, value in ((layout.EXTENDED_LIMITS, limits), (layout.BASIC_UI_RESTRICTIONS, walls)):
        done = kernel32.SetInformationJobObject(box, kind, byref(value), sizeof(value))
        _check(done, "SetInformationJobObject")
    return box


def _pipe(
    kernel32: Any, undo: contextlib.ExitStack, after: contextlib.ExitStack, *, child_reads: bool
) -> tuple[int, int]:
    """(theirs, ours); only theirs can be inherited, and is closed when the child has it. Ours if the start fails."""
    read, write = c_void_p(), c_void_p()
    _check(kernel32.CreatePipe(byref(read), byref(write), None, 0), "CreatePipe")
    theirs, ours = (read, write) if child_reads else (write, read)
    assert theirs.value is not None
    assert ours.value is not None
    after.callback(kernel32.CloseHandle, theirs.value)
    undo.callback(kernel32.CloseHandle, ours.value)
    flag = layout.HANDLE_FLAG_INHERIT
    _check(kernel32.SetHandleInformation(theirs.value, flag, flag), "SetHandleInformation")
    return theirs.value, ours.value


def _startup(kernel32: Any, handles: Sequence[int], after: contextlib.ExitStack) -> layout.StartupInfoEx:
    """Three streams, and a list that keeps every other handle of ours out of the child."""
    size = ctypes.c_size_t()
    kernel32.InitializeProcThreadAttributeList(None, 1, 0, byref(size))  # fails by design: it tells the size
    attributes = ctypes.create_string_buffer(max(size.value, 1))
    made = kernel32.InitializeProcThreadAttributeList(attributes, 1, 0, byref(size))
    _check(made, "InitializeProcThreadAttributeList")
    after.callback(kernel32.DeleteProcThreadAttributeList, attributes)
    listed = (c_void_p * len(handles))(*handles)
    updated = kernel32.UpdateProcThreadAttribute(
        attributes, 0, layout.ATTRIBUTE_HANDLE_LIST, listed, sizeof(listed), None, None
    )
    _check(updated, "UpdateProcThreadAttribute")
    startup = layout.StartupInfoEx()
    startup.StartupInfo.cb = sizeof(startup)
    startup.StartupInfo.dwFlags = layout.STARTF_USESTDHANDLES
    startup.StartupInfo.hStdInput, startup.StartupInfo.hStdOutput, startup.StartupInfo.hStdError = handles
    startup.lpAttributeList = ctypes.cast(attributes, c_void_p)
    after.callback(_keep, attributes, listed)  # the list is only pointed to: it must live until the process is made
    return startup


def _create(
    plan: ProcessPlan, kernel32: Any, line: str, block: str, startup: layout.StartupInfoEx
) -> layout.ProcessInformation:
    flags = (
        layout.CREATE_SUSPENDED
        | layout.CREATE_NEW_PROCESS_GROUP
        | layout.CREATE_UNICODE_ENVIRONMENT
        | layout.EXTENDED_STARTUPINFO_PRESENT
        | layout.CREATE_NO_WINDOW
    )
    info = layout.ProcessInformation()
    texts = [ctypes.create_unicode_buffer(text, len(text) + 1) for text in (plan.program, line, block, plan.cwd)]
    made = kernel32.CreateProcessW(
        texts[0], texts[1], None, None, True, flags, texts[2], texts[3], byref(startup), byref(info)
    )
    _check(made, "CreateProcessW")
    return info


def _release(kernel32: Any, box: int, info: layout.ProcessInformation) -> None:
    try:
        _check(kernel32.AssignProcessToJobObject(box, info.hProcess), "AssignProcessToJobObject")
        if kernel32.ResumeThread(info.hThread) == _FAILED:
            raise _error("ResumeThread")
    except OSError:
        kernel32.TerminateProcess(info.hProcess, _KILLED)
        raise
    finally:
        kernel32.CloseHandle(info.hThread)


def _keep(*_: object) -> None:
    """Holds on to what a structure only points to."""


def _check(result: Any, what: str) -> Any:
    if not result:
        raise _error(what)
    return result


def _error(what: str) -> OSError:
    last: Callable[[], int] = getattr(ctypes, "get_last_error", lambda: 0)
    return OSError(f"{what} failed with Windows error {last()}")
