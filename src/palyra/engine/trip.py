"""One call under way: what was asked, what is known so far, and how it ended.

Every room adds to the `Trip`; whatever way the call ends, the attestation and the journal entry are made of what is
in it then. That is why it is the one mutable thing of the engine, and why nothing else keeps state about a call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from palyra.canon import Json
from palyra.engine.output import OnOutput
from palyra.engine.ports import Source
from palyra.engine.runs import Run
from palyra.errors import Reason, Rejected
from palyra.model.approval import Approval, Permission
from palyra.model.call import ToolCall
from palyra.model.fetch import FetchOrder
from palyra.model.grant import Decision
from palyra.model.job import Facts, Job
from palyra.model.limits import Limits
from palyra.model.outcome import ArtifactRef, Execution, Status
from palyra.model.plan import Plan
from palyra.model.record import Recorded
from palyra.model.run_facts import NO_FACTS, RunFacts
from palyra.model.sights import LookRequest, Sights
from palyra.model.skill import SkillTool
from palyra.model.wasm import GuestKind
from palyra.policy.request import Request
from palyra.protocol.process_input import ProcessInput
from palyra.protocol.registry import RegisteredTool
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.engine.attesting import Ready
    from palyra.engine.fixed import Fixed
    from palyra.engine.shapes import Shape

Confirm = Callable[[Approval, Mapping[str, Json]], Awaitable[bool | None]]
"""Shows the person what was asked; yes, no, or no answer."""
OnPending = Callable[[Mapping[str, Json] | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """What a door hands in. `input` is bytes as they came over a wire, or a mapping from Python code."""

    tool: str
    input: bytes | Mapping[str, Json]
    run: Run
    call_id: str | None = None
    project: bool = False
    """Show a model a preview of large output and keep the rest as artifacts (agents' doors)."""
    on_output: OnOutput | None = None
    lagging: bool = False
    """Whoever sees `on_output` is an agent: it must not learn from when bytes come (redact/both)."""
    source: Source | None = None
    """stdin as a stream; only the command line's own door gives one."""
    confirm: Confirm | None = None
    """Ask the person at this call's own terminal; only the command line's own door gives one, and only on a tty."""
    on_pending: OnPending | None = None
    """Told which approval the call waits for, and None when the wait is over."""
    fresh_id: bool = False
    """The door made `call_id` itself a moment ago: nobody can have used it, so nobody is asked for a first outcome."""
    fresh_run: bool = False
    """The same of the run's id: it is this one call's, and nothing of it can be kept yet."""
    wait_s: float = 0.0
    """How long to wait for somebody else's decision, where policy asks for one."""
    changes: bool = False
    """Tell which files of the workspace the program changed."""
    learn: bool = False
    """Watch which paths and hosts the program misses. Only the command line's own door asks for it."""
    asked_us: int | None = None
    """When the door took it on, by the engine's monotonic clock; None: as it is handed in."""
    lapse: Callable[[], Rejected | None] | None = None
    """Why whoever asked may no longer ask; looked at again when the call waited (engine/asking)."""
    refusal: Rejected | None = None
    """What the door found wrong with the request itself (a principal, a run id): refused by the walk, so recorded."""
    accepted: bool = False
    """The caller was told that the call is accepted (202): every end of it is recorded, BUSY too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    status: Status
    success: bool = False
    reason: Reason | None = None
    message: str | None = None
    hint: str | None = None
    execution: Execution | None = None
    by_engine: bool = False
    """It ended before the plan's sandbox was used: what ran was the engine itself."""
    output: Mapping[str, Json] = field(default_factory=dict)
    approval: Mapping[str, Json] | None = None
    """Which approval it waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestOrder:
    """A module to be run, resolved once: what is gated, granted, run and attested is this one."""

    module: bytes
    module_sha256: str
    guest: GuestKind
    memories: int
    input: bytes
    limits: Limits
    fuel: int
    skill: SkillTool | None = None
    """None for an inline module."""


@dataclass(slots=True, kw_only=True)
class Trip:
    request: CallRequest
    call_id: str
    received_unix_ms: int
    started_us: int
    run: Run = field(init=False)
    """The request's."""
    input_sha256: str = ""
    input_bytes: bytes = b""
    """What the input's commitment in the journal is made over: canonical JSON, or the raw bytes."""
    parsed: bool = False
    reused_id: str | None = None
    """The id the caller sent, when another call has it already; this one then has an id of its own."""
    tool: RegisteredTool | None = None
    call: ToolCall | None = None
    process: ProcessInput | None = None
    guest: GuestOrder | None = None
    look: LookRequest | None = None
    sights: Sights | None = None
    fetch: FetchOrder | None = None
    facts: Facts | None = None
    job: Job | None = None
    run_looks_new: bool = False
    run_facts: RunFacts = NO_FACTS
    cedar: Request | None = None
    policy_sha256: str | None = None
    policy_stale: str | None = None
    """That the policies that decide are older than the files of now."""
    is_liftable: bool = False
    """It was refused, and an operator's exception can make it run."""
    policy_number: int | None = None
    """Of the policies that decided, where they are kept by number."""
    decision: Decision | None = None
    shadow: Mapping[str, Json] | None = None
    """What a candidate bundle would have decided, where that differs."""
    plan: Plan | None = None
    plan_bytes: bytes = b""
    """Canonical JSON of the plan, made once: its digest is attested, its commitment journaled."""
    shape: Shape | None = None
    """This call as it was asked before, or as it will be remembered."""
    ready: Ready | None = None
    """Of its record, what was made while its program ran."""
    fixed: Fixed | None = None
    """What its intent and its result share, where no shape keeps it."""
    approval_id: str | None = None
    permission: Permission | None = None
    opened: Recorded | None = None
    redactions: Mapping[str, int] = field(default_factory=dict)
    artifacts: tuple[ArtifactRef, ...] = ()
    full_output_sha256: str | None = None
    """Set when the door projects: the digest over the whole redacted output."""

    def __post_init__(self) -> None:
        self.run = self.request.run

    @property
    def asked_us(self) -> int:
        asked = self.request.asked_us
        return self.started_us if asked is None else asked
