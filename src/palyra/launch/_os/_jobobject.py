"""Windows: the structures that job objects and CreateProcessW take, and what is put into them. Imports anywhere.

Every field has a width of its own, so the layouts are the same on any 64-bit machine that imports this. They are
compared with the Windows headers by `make test-windows-layout`, and with the numbers recorded there by the unit tests.

Not here: any call (_windows), which limits (sandbox/jobobject).
"""

from __future__ import annotations

import ctypes
from ctypes import c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_void_p

from palyra.model.plan import JobObjectLimits
from palyra.values import dataclass

# JOBOBJECTINFOCLASS
BASIC_ACCOUNTING, BASIC_UI_RESTRICTIONS, EXTENDED_LIMITS = 1, 4, 9
# process creation flags
CREATE_SUSPENDED, CREATE_NEW_PROCESS_GROUP, CREATE_UNICODE_ENVIRONMENT = 0x4, 0x200, 0x400
EXTENDED_STARTUPINFO_PRESENT, CREATE_NO_WINDOW = 0x80000, 0x08000000
STARTF_USESTDHANDLES = 0x100
ATTRIBUTE_HANDLE_LIST = 0x00020002
HANDLE_FLAG_INHERIT = 0x1
TICKS_PER_US = 10


class BasicLimits(ctypes.Structure):
    """JOBOBJECT_BASIC_LIMIT_INFORMATION"""

    _fields_ = (
        ("PerProcessUserTimeLimit", c_int64),
        ("PerJobUserTimeLimit", c_int64),
        ("LimitFlags", c_uint32),
        ("MinimumWorkingSetSize", c_size_t),
        ("MaximumWorkingSetSize", c_size_t),
        ("ActiveProcessLimit", c_uint32),
        ("Affinity", c_size_t),
        ("PriorityClass", c_uint32),
        ("SchedulingClass", c_uint32),
    )


class IoCounters(ctypes.Structure):
    """IO_COUNTERS"""

    _fields_ = (
        ("ReadOperationCount", c_uint64),
        ("WriteOperationCount", c_uint64),
        ("OtherOperationCount", c_uint64),
        ("ReadTransferCount", c_uint64),
        ("WriteTransferCount", c_uint64),
        ("OtherTransferCount", c_uint64),
    )


class ExtendedLimits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION"""

    _fields_ = (
        ("BasicLimitInformation", BasicLimits),
        ("IoInfo", IoCounters),
        ("ProcessMemoryLimit", c_size_t),
        ("JobMemoryLimit", c_size_t),
        ("PeakProcessMemoryUsed", c_size_t),
        ("PeakJobMemoryUsed", c_size_t),
    )


class UiRestrictions(ctypes.Structure):
    """JOBOBJECT_BASIC_UI_RESTRICTIONS"""

    _fields_ = (("UIRestrictionsClass", c_uint32),)


class BasicAccounting(ctypes.Structure):
    """JOBOBJECT_BASIC_ACCOUNTING_INFORMATION"""

    _fields_ = (
        ("TotalUserTime", c_int64),
        ("TotalKernelTime", c_int64),
        ("ThisPeriodTotalUserTime", c_int64),
        ("ThisPeriodTotalKernelTime", c_int64),
        ("TotalPageFaultCount", c_uint32),
        ("TotalProcesses", c_uint32),
        ("ActiveProcesses", c_uint32),
        ("TotalTerminatedProcesses", c_uint32),
    )


class StartupInfo(ctypes.Structure):
    """STARTUPINFOW"""

    _fields_ = (
        ("cb", c_uint32),
        ("lpReserved", c_void_p),
        ("lpDesktop", c_void_p),
        ("lpTitle", c_void_p),
        ("dwX", c_uint32),
        ("dwY", c_uint32),
        ("dwXSize", c_uint32),
        ("dwYSize", c_uint32),
        ("dwXCountChars", c_uint32),
        ("dwYCountChars", c_uint32),
        ("dwFillAttribute", c_uint32),
        ("dwFlags", c_uint32),
        ("wShowWindow", c_uint16),
        ("cbReserved2", c_uint16),
        ("lpReserved2", c_void_p),
        ("hStdInput", c_void_p),
        ("hStdOutput", c_void_p),
        ("hStdError", c_void_p),
    )


class StartupInfoEx(ctypes.Structure):
    """STARTUPINFOEXW"""

    _fields_ = (("StartupInfo", StartupInfo), ("lpAttributeList", c_void_p))


class ProcessInformation(ctypes.Structure):
    """PROCESS_INFORMATION"""

    _fields_ = (
        ("hProcess", c_void_p),
        ("hThread", c_void_p),
        ("dwProcessId", c_uint32),
        ("dwThreadId", c_uint32),
    )


# name in the Windows headers → our structure
STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "JOBOBJECT_BASIC_LIMIT_INFORMATION": BasicLimits,
    "IO_COUNTERS": IoCounters,
    "JOBOBJECT_EXTENDED_LIMIT_INFORMATION": ExtendedLimits,
    "JOBOBJECT_BASIC_UI_RESTRICTIONS": UiRestrictions,
    "JOBOBJECT_BASIC_ACCOUNTING_INFORMATION": BasicAccounting,
    "STARTUPINFOW": StartupInfo,
    "STARTUPINFOEXW": StartupInfoEx,
    "PROCESS_INFORMATION": ProcessInformation,
}
# name in the Windows headers → our number
CONSTANTS: dict[str, int] = {
    "JobObjectBasicAccountingInformation": BASIC_ACCOUNTING,
    "JobObjectBasicUIRestrictions": BASIC_UI_RESTRICTIONS,
    "JobObjectExtendedLimitInformation": EXTENDED_LIMITS,
    "CREATE_SUSPENDED": CREATE_SUSPENDED,
    "CREATE_NEW_PROCESS_GROUP": CREATE_NEW_PROCESS_GROUP,
    "CREATE_UNICODE_ENVIRONMENT": CREATE_UNICODE_ENVIRONMENT,
    "EXTENDED_STARTUPINFO_PRESENT": EXTENDED_STARTUPINFO_PRESENT,
    "CREATE_NO_WINDOW": CREATE_NO_WINDOW,
    "STARTF_USESTDHANDLES": STARTF_USESTDHANDLES,
    "PROC_THREAD_ATTRIBUTE_HANDLE_LIST": ATTRIBUTE_HANDLE_LIST,
    "HANDLE_FLAG_INHERIT": HANDLE_FLAG_INHERIT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUsage:
    user_us: int
    kernel_us: int
    processes: int
    active: int
    peak_bytes: int


def extended_limits(limits: JobObjectLimits) -> ExtendedLimits:
    made = ExtendedLimits()
    made.BasicLimitInformation.LimitFlags = limits.flags
    made.BasicLimitInformation.PerProcessUserTimeLimit = limits.process_time
    made.BasicLimitInformation.ActiveProcessLimit = limits.active_processes
    made.ProcessMemoryLimit = limits.process_memory
    made.JobMemoryLimit = limits.job_memory
    return made


def usage_of(accounting: BasicAccounting, limits: ExtendedLimits) -> JobUsage:
    return JobUsage(
        user_us=accounting.TotalUserTime // TICKS_PER_US,
        kernel_us=accounting.TotalKernelTime // TICKS_PER_US,
        processes=accounting.TotalProcesses,
        active=accounting.ActiveProcesses,
        peak_bytes=limits.PeakJobMemoryUsed,
    )
