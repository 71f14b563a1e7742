"""The Windows backend on any machine: layouts against the recorded headers, and the order of its calls."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from palyra.launch._os import _jobobject as layout
from palyra.launch._os import _windows as under_test
from palyra.model.call import Tier
from palyra.model.host import Platform
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, NetGrant
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.planner import plan_job
from tests.unit.sandbox.jobs import make_host, make_job
from windows_layout import ours

RECORD = Path(__file__).parents[2] / "vectors" / "windows_layout.json"


@pytest.mark.skipif(sys.maxsize < 1 << 32, reason="the layouts are those of 64-bit Windows")
def test_every_structure_and_number_is_as_in_the_windows_headers() -> None:
    assert ours() == json.loads(RECORD.read_text())


def make_plan() -> ProcessPlan:
    host = make_host(platform=Platform.WINDOWS, bubblewrap=None, shell="", job_objects=True, system_root="C:\\Windows")
    place = WorkspaceSight(path="C:\\project", owner_uid=1000, owner_gid=1000)
    job = make_job(
        tier=Tier.B, net=NetGrant(EgressMode.NONE), workspace=place, program="C:\\Git\\git.exe",
        argv=("git", "log", "a b"), env=(("PATH", "C:\\Git"),),
        limits=Limits(cpu_ms=2000, memory_bytes=64 << 20, processes=9),
    )  # fmt: skip
    return plan_job(job, host)


class Kernel32:
    """What is called, in order; every handle it gave out; failing where it is told to."""

    def __init__(self, *, fails: str = "") -> None:
        self.fails = fails
        self.calls: list[str] = []
        self.open: set[int] = set()
        self.seen: dict[str, Any] = {}
        self._next = 100

    def _handle(self) -> int:
        self._next += 4
        self.open.add(self._next)
        return self._next

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name == self.fails:
                return 0xFFFFFFFF if name == "ResumeThread" else 0
            return getattr(self, f"do_{name}", lambda *_: 1)(*arguments)

        if name.startswith("do_"):
            raise AttributeError(name)
        return call

    def do_CreateJobObjectW(self, *_: Any) -> int:
        return self._handle()

    def do_SetInformationJobObject(self, job: int, kind: int, value: Any, size: int) -> int:
        self.seen[f"info {kind}"] = bytes(ctypes.string_at(ctypes.addressof(value._obj), size))
        return 1

    def do_CreatePipe(self, read: Any, write: Any, *_: Any) -> int:
        read._obj.value, write._obj.value = self._handle(), self._handle()
        return 1

    def do_InitializeProcThreadAttributeList(self, attributes: Any, count: int, flags: int, size: Any) -> int:
        size._obj.value = 48
        return 1 if attributes is not None else 0

    def do_UpdateProcThreadAttribute(
        self, attributes: Any, flags: int, kind: int, value: Any, size: int, *_: Any
    ) -> int:
        self.seen["inherited"] = (kind, list(value), size)
        return 1

    def do_CreateProcessW(self, name: Any, line: Any, *rest: Any) -> int:
        _, _, inherit, flags, block, cwd, startup, info = rest
        texts = [name.value, line.value, ctypes.wstring_at(block, len(block)), cwd.value]
        self.seen["process"] = (*texts, inherit, flags)
        self.seen["startup"] = startup._obj.StartupInfo
        info._obj.hProcess, info._obj.hThread, info._obj.dwProcessId = self._handle(), self._handle(), 4711
        return 1

    def do_CloseHandle(self, handle: int) -> int:
        self.open.remove(handle)
        return 1

    def do_ResumeThread(self, _: int) -> int:
        return 1

    def do_WaitForSingleObject(self, _: int, timeout_ms: int) -> int:
        return 0x102 if timeout_ms < 100 else 0

    def do_GetExitCodeProcess(self, _: int, code: Any) -> int:
        code._obj.value = 3221225477
        return 1

    def do_QueryInformationJobObject(self, job: int, kind: int, into: Any, size: int, _: Any) -> int:
        if kind == layout.BASIC_ACCOUNTING:
            into._obj.TotalUserTime, into._obj.TotalProcesses = 25_000, 3
        else:
            into._obj.PeakJobMemoryUsed = 5 << 20
        return 1


def test_no_instruction_of_the_program_runs_outside_the_job() -> None:
    kernel = Kernel32()
    under_test.start_in_job(make_plan(), kernel)
    order = [name for name in kernel.calls if name in ("CreateJobObjectW", "SetInformationJobObject", "CreateProcessW",
                                                       "AssignProcessToJobObject", "ResumeThread")]  # fmt: skip
    assert order == ["CreateJobObjectW", "SetInformationJobObject", "SetInformationJobObject", "CreateProcessW",
                     "AssignProcessToJobObject", "ResumeThread"]  # fmt: skip
    assert kernel.seen["process"][5] & layout.CREATE_SUSPENDED


def test_the_limits_of_the_plan_are_the_jobs() -> None:
    kernel = Kernel32()
    under_test.start_in_job(make_plan(), kernel)
    told = layout.ExtendedLimits.from_buffer_copy(kernel.seen[f"info {layout.EXTENDED_LIMITS}"])
    basic = told.BasicLimitInformation
    assert (basic.PerProcessUserTimeLimit, basic.ActiveProcessLimit) == (20_000_000, 9)
    assert basic.LimitFlags & 0x2000
    assert (told.ProcessMemoryLimit, told.JobMemoryLimit) == (64 << 20, 64 << 20)
    assert kernel.seen[f"info {layout.BASIC_UI_RESTRICTIONS}"] == b"\xff\0\0\0"


def test_the_program_gets_its_own_words_variables_and_three_handles() -> None:
    kernel = Kernel32()
    running = under_test.start_in_job(make_plan(), kernel)
    program, line, block, cwd, inherit, _ = kernel.seen["process"]
    assert (program, line, cwd, inherit) == ("C:\\Git\\git.exe", '"C:\\Git\\git.exe" log "a b"', "C:\\project", True)
    assert block == "PATH=C:\\Git\0SystemRoot=C:\\Windows\0\0\0"
    kind, inherited, size = kernel.seen["inherited"]
    startup = kernel.seen["startup"]
    assert (kind, size) == (layout.ATTRIBUTE_HANDLE_LIST, 24)
    assert inherited == [startup.hStdInput, startup.hStdOutput, startup.hStdError]
    assert not {running.stdin, running.stdout, running.stderr} & set(inherited)


def test_closing_gives_back_every_handle() -> None:
    kernel = Kernel32()
    running = under_test.start_in_job(make_plan(), kernel)
    assert kernel.open == {running.job, running.process, running.stdin, running.stdout, running.stderr}
    running.close()
    running.close()
    assert kernel.open == set()


@pytest.mark.parametrize("step", ["CreateJobObjectW", "SetInformationJobObject", "CreatePipe", "SetHandleInformation",
                                  "UpdateProcThreadAttribute", "CreateProcessW", "AssignProcessToJobObject",
                                  "ResumeThread"])  # fmt: skip
def test_whatever_fails_leaves_no_process_and_no_handle(step: str) -> None:
    kernel = Kernel32(fails=step)
    with pytest.raises(OSError, match=step):
        under_test.start_in_job(make_plan(), kernel)
    assert kernel.open == set()
    assert ("TerminateProcess" in kernel.calls) == (step in ("AssignProcessToJobObject", "ResumeThread"))


def test_the_end_and_the_usage_are_read_from_the_job() -> None:
    running = under_test.start_in_job(make_plan(), Kernel32())
    assert (running.wait(10), running.wait(1000)) == (None, 0xC0000005)
    assert running.usage() == layout.JobUsage(user_us=2500, kernel_us=0, processes=3, active=0, peak_bytes=5 << 20)
    running.kill()


def test_on_other_systems_there_is_nothing_to_call() -> None:
    if hasattr(ctypes, "WinDLL"):
        pytest.skip("this is Windows")
    with pytest.raises(OSError, match="Windows"):
        under_test.load_kernel32()


def test_every_function_that_is_called_has_its_signature() -> None:
    class Library:
        def __getattr__(self, name: str) -> Any:
            setattr(self, name, type("Function", (), {})())
            return getattr(self, name)

    declared = under_test.declared(Library())
    kernel = Kernel32()
    under_test.start_in_job(make_plan(), kernel).kill()
    assert set(kernel.calls) <= set(vars(declared))
