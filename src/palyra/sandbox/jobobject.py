"""Tier B on Windows: a plain child in a job object, as values: limits, the command line, the environment block. Pure.

A job is a box the kernel holds: every process in it, and all they start, share its limits and end with it, also when
its last handle is closed because the engine died. Limits: memory of each process and of all together, their number,
CPU time of each process (Windows counts time in user mode only: said in `degraded`), no access to the desktop's
clipboard, handles and settings. It isolates neither files nor network; tier C here is a container.

Windows hands a program one string, which each program takes apart by itself; `command_line` quotes by the rules of
the C runtime. Batch files go through cmd.exe, whose rules cannot be met by quoting, and are refused.

Not here: the calls (launch/_os/_windows), the structures (launch/_os/_jobobject).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from palyra.errors import Reason, Rejected
from palyra.late import late
from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts, Platform
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import EgressMode
from palyra.model.plan import JobObjectLimits, ProcessPlan
from palyra.sandbox.backend import absent

# JOB_OBJECT_LIMIT_*
PROCESS_TIME, ACTIVE_PROCESS, PROCESS_MEMORY, JOB_MEMORY = 0x2, 0x8, 0x100, 0x200
DIE_ON_UNHANDLED_EXCEPTION, KILL_ON_JOB_CLOSE = 0x400, 0x2000
UI_ALL = 0xFF
"""JOB_OBJECT_UILIMIT_*: clipboard, handles, settings, desktop, log-off."""
TICKS_PER_MS = 10_000
"""Windows counts time in units of 100 ns."""
_BATCH = (".bat", ".cmd")
_PLAIN = late(r'[^\s"]+')
_GIVEN = frozenset(
    {
        Guarantee.CPU_LIMIT,
        Guarantee.MEMORY_LIMIT,
        Guarantee.MEMORY_LIMIT_TREE,
        Guarantee.PROCESS_LIMIT,
        Guarantee.TREE_KILL,
    }
)


class JobObjectBackend:
    name = "jobobject"
    tier = Tier.B
    executor = "sandbox_tier_b_windows_job_object"

    def guarantees(self, host: HostFacts) -> frozenset[Guarantee]:
        return _GIVEN if host.platform is Platform.WINDOWS and host.job_objects else frozenset()

    def plan(self, job: Job, host: HostFacts) -> ProcessPlan:
        given = self.guarantees(host)
        if job.program.lower().endswith(_BATCH):
            raise Rejected(
                Reason.EXECUTABLE_DENIED,
                f"{job.program} is a batch file: its arguments are parsed by cmd.exe, and no quoting is safe for it.",
                "Name the program that the batch file starts.",
            )
        return ProcessPlan(
            backend=self.name,
            executor=self.executor,
            tier=self.tier,
            launcher=(),
            road="job",
            program=job.program,
            program_sha256=job.program_sha256,
            argv=job.argv,
            env=_environment(job, host),
            cwd=job.cwd,
            limits=job.limits,
            net=job.net,
            job=job_limits(job.limits),
            no_new_privileges=False,
            guarantees=given,
            degraded=(*absent(job, given), *_notes(job)),
            stdin=job.stdin,
            stdin_streamed=job.stdin_streamed,
        )


def job_limits(limits: Limits) -> JobObjectLimits:
    return JobObjectLimits(
        flags=PROCESS_TIME
        | ACTIVE_PROCESS
        | PROCESS_MEMORY
        | JOB_MEMORY
        | DIE_ON_UNHANDLED_EXCEPTION
        | KILL_ON_JOB_CLOSE,
        process_time=limits.cpu_ms * TICKS_PER_MS,
        active_processes=limits.processes,
        process_memory=limits.memory_bytes,
        job_memory=limits.memory_bytes,
        ui_restrictions=UI_ALL,
    )


def command_line(argv: Sequence[str]) -> str:
    """One string that the C runtime of the started program reads back as `argv`."""
    if not argv or any("\0" in word for word in argv):
        raise ValueError("a command line needs a program and holds no NUL")
    first, *rest = argv
    if '"' in first:
        raise ValueError("a program's name holds no quote")
    return " ".join([f'"{first}"', *map(_quoted, rest)])


def _quoted(word: str) -> str:
    """Backslashes count only before a quote; there each stands for half of one."""
    if _PLAIN.fullmatch(word):
        return word
    inner = re.sub(r'(\\*)"', lambda match: match[1] * 2 + '\\"', word)
    trailing = inner[len(inner.rstrip("\\")) :]
    return f'"{inner}{trailing}"'


def environment_block(env: Iterable[tuple[str, str]]) -> str:
    """Variables as CreateProcessW takes them: sorted without regard to case, each ended by NUL, one more at the end."""
    seen: dict[str, str] = {}
    for key, value in env:
        if not key or "=" in key or "\0" in key + value:
            raise ValueError(f"{key!r} cannot be an environment variable")
        if key.upper() in seen:
            raise ValueError(f"{key} is set twice: variable names are not case-sensitive on Windows")
        seen[key.upper()] = f"{key}={value}\0"
    return "".join(seen[key] for key in sorted(seen)) + "\0" if seen else "\0\0"


def _environment(job: Job, host: HostFacts) -> tuple[tuple[str, str], ...]:
    """Sockets and much else do not work in a program that is not told where the system is."""
    keys = {key.upper() for key, _ in job.env}
    system = (("SystemRoot", host.system_root),) if host.system_root and "SYSTEMROOT" not in keys else ()
    return (*job.env, *system)


def _notes(job: Job) -> tuple[str, ...]:
    notes = ["cpu_user_time: only time in user mode counts towards the CPU limit"]
    if job.net.mode is not EgressMode.STRICT:
        notes.append(f"network_shared: egress mode {job.net.mode.value} leaves the host's network reachable")
    if job.workspace.protected or job.workspace.masked:
        notes.append("workspace_open: tier B cannot keep paths inside the workspace read-only or hidden")
    return tuple(notes)
