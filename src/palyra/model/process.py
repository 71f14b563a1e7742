"""Programs that outlive the call which started them: whose they are, how long they may live, how they ended.

Rules: a process is named by an opaque id and belongs to one run of one principal, never to a pid; its pid is only
ever used together with its start time, because numbers are reused. Whatever its lifetime, it ends at `expires`.

Not here: keeping them (launch/background), their rows (launch/store), what tools show (engine/builtin).
"""

from __future__ import annotations

from enum import StrEnum

from palyra.canon import Json
from palyra.errors import PalyraError, Reason
from palyra.model.outcome import StreamName, Usage
from palyra.model.plan import ProcessPlan
from palyra.model.record import Owner
from palyra.values import dataclass


class Lifetime(StrEnum):
    RUN_OWNED = "run_owned"
    """Ends with its run."""
    DETACHED = "detached"
    """Outlives its run."""


class ProcessStatus(StrEnum):
    RUNNING = "running"
    EXITED = "exited"
    """By itself, or by a limit: then `reason` says which."""
    STOPPED = "stopped"
    """Asked to end: by its agent, an operator or the end of its run."""
    EXPIRED = "expired"
    LOST = "lost"
    """Its keeper died; nothing is known about its end but that it is over."""


@dataclass(frozen=True, slots=True)
class ProcessOwner:
    """Who may see, read and stop a process: this principal, in this run."""

    run_id: str
    principal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOrder:
    """What a keeper is told. The plan has been decided, approved and journaled; it is run as it stands."""

    process_id: str
    owner: ProcessOwner
    call_id: str
    plan: ProcessPlan
    plan_sha256: str
    """Computed by the engine: a plan that arrives otherwise is not started."""
    lifetime: Lifetime
    expires_unix_ms: int
    holder: Owner | None
    """The process whose death ends the run, for a process owned by it."""
    max_running: int
    """Of this run and principal."""
    secrets: tuple[tuple[str, bytes], ...] = ()
    workspace: bytes = b""
    guarded: tuple[bytes, ...] = ()
    """Paths in the workspace that were closed when it started, or would have been; names that are not UTF-8 too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundProcess:
    process_id: str
    owner: ProcessOwner
    call_id: str
    command: str
    """The program's name alone: arguments may hold secrets."""
    lifetime: Lifetime
    keeper: Owner
    pid: int
    start_ticks: int
    cgroups: tuple[str, ...]
    """Its groups, where the host has some: what is left of it after a crash can be killed at once."""
    started_unix_ms: int
    expires_unix_ms: int
    status: ProcessStatus = ProcessStatus.RUNNING
    ended_unix_ms: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: Reason | None = None
    stopped_by: str | None = None
    usage: Usage | None = None
    stdout_bytes: int | None = None
    """What it wrote, before redaction and before anything was dropped; known at its end."""
    stderr_bytes: int | None = None
    protected_created: tuple[str, ...] = ()
    """Guarded names that were not there when it started and are at its end."""

    @property
    def is_running(self) -> bool:
        return self.status is ProcessStatus.RUNNING

    def as_json(self) -> dict[str, Json]:
        """What its owner is shown."""
        return {
            "process_id": self.process_id,
            "call_id": self.call_id,
            "command": self.command,
            "status": self.status.value,
            "pid": self.pid,
            "lifetime": self.lifetime.value,
            "started_at_unix_ms": self.started_unix_ms,
            "expires_at_unix_ms": self.expires_unix_ms,
            "ended_at_unix_ms": self.ended_unix_ms,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "reason": self.reason.value if self.reason else None,
            "stopped_by": self.stopped_by,
            "stdout_bytes": self.stdout_bytes,
            "stderr_bytes": self.stderr_bytes,
            "usage": self.usage.as_json() if self.usage else None,
            "protected_created": list(self.protected_created),
        }


def started_process(
    order: StartOrder, *, keeper: Owner, pid: int, start_ticks: int, cgroups: tuple[str, ...], at_unix_ms: int
) -> BackgroundProcess:
    return BackgroundProcess(
        process_id=order.process_id,
        owner=order.owner,
        call_id=order.call_id,
        command=order.plan.argv[0],
        lifetime=order.lifetime,
        keeper=keeper,
        pid=pid,
        start_ticks=start_ticks,
        cgroups=cgroups,
        started_unix_ms=at_unix_ms,
        expires_unix_ms=order.expires_unix_ms,
    )


@dataclass(frozen=True, slots=True)
class LogChunk:
    stream: StreamName
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """A piece of a process's log. Offsets count the redacted bytes of both streams, from its start."""

    offset_bytes: int
    """Where the page begins: past what was dropped."""
    next_offset_bytes: int
    dropped_bytes: int
    """Between the offset asked for and the page: gone for good."""
    total_bytes: int
    """Written so far."""
    chunks: tuple[LogChunk, ...] = ()


class NotStarted(PalyraError):
    """Nothing of the program ran; the sentence says why."""

    def __init__(self, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint
