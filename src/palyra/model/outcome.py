"""What came of a call: the raw execution, the usage, and the outcome every door returns.

Rules: all keys of the outcome are always there (contracts.md); times are integer microseconds; `success` means
completed and, for a process, exit code 0.

Not here: JSON (protocol/wire), attestations (attest).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from palyra.canon import Json
from palyra.errors import Reason
from palyra.values import dataclass, names_of

INLINE_BYTES = 8 * 1024
"""An output up to here is never projected."""


class Status(StrEnum):
    COMPLETED = "completed"
    REFUSED = "refused"
    TIMEOUT = "timeout"
    QUOTA_EXCEEDED = "quota_exceeded"
    OUT_OF_FUEL = "out_of_fuel"
    TRAPPED = "trapped"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    PENDING_APPROVAL = "pending_approval"
    RUNNING = "running"


class StreamName(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    wall_us: int = 0
    cpu_us: int | None = 0
    """None where this host cannot tell honestly."""
    max_rss_bytes: int | None = 0
    output_bytes: int = 0
    fuel: int | None = None

    def as_json(self) -> dict[str, int | None]:
        return {
            "wall_us": self.wall_us,
            "cpu_us": self.cpu_us,
            "max_rss_bytes": self.max_rss_bytes,
            "output_bytes": self.output_bytes,
            "fuel": self.fuel,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One attempt to reach something, as the egress listeners saw it."""

    host: str
    port: int
    verdict: str
    bytes_up: int = 0
    bytes_down: int = 0
    why: str = ""
    """A clause for people; no part of the output."""
    grants: tuple[str, ...] = ()
    """Of a denied one: the patterns that an operator would have to grant, for the hint; empty where no grant helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Where in a cluster a program ran, in the words of the node that ran it."""

    node_id: str
    key_id: str
    envelope: str
    """The node's signed statement: a DSSE envelope as canonical JSON."""

    def as_json(self) -> dict[str, Json]:
        return {"node_id": self.node_id, "key_id": self.key_id, "envelope": self.envelope}


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How a plan ended, as the executor observed it. Output went chunk by chunk to the sink it was given."""

    status: Status
    """completed, timeout, quota_exceeded, cancelled or failed."""
    reason: Reason | None = None
    message: str | None = None
    hint: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    stdout_bytes: int = 0
    """What the program wrote, before any cut or redaction."""
    stderr_bytes: int = 0
    truncated: bool = False
    usage: Usage = field(default_factory=Usage)
    stdin_bytes: int = 0
    stdin_sha256: str | None = None
    connections: tuple[Connection, ...] = ()
    degraded: tuple[str, ...] = ()
    """What the launcher found missing while starting, on top of the plan's own list."""
    compiled_sha256: str | None = None
    """Of the machine code a guest was run as: which file of the compile cache it was."""
    ran: Ran | None = None
    """In a cluster: where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    """What is left for the run, in every outcome, so that an agent can plan."""

    calls_used: int = 0
    calls_max: int = 0
    attempts_used: int = 0
    attempts_max: int = 0
    wall_us_used: int = 0
    wall_us_max: int | None = None
    """None: no limit."""
    cpu_us_used: int = 0
    cpu_us_max: int | None = None
    output_bytes_used: int = 0
    output_bytes_max: int | None = None
    egress_bytes_used: int = 0
    egress_bytes_max: int | None = None
    fuel_used: int = 0
    fuel_max: int | None = None

    def as_json(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in BUDGET_NAMES}

    @property
    def is_limited(self) -> bool:
        """Beside its calls and attempts."""
        limits = (self.wall_us_max, self.cpu_us_max, self.output_bytes_max, self.egress_bytes_max, self.fuel_max)
        return limits != (None,) * 5

    def limits_json(self) -> dict[str, int | None]:
        """What an entry says of the run it belongs to."""
        return {name: getattr(self, name) for name in LIMIT_NAMES}


BUDGET_NAMES: tuple[str, ...] = names_of(BudgetView)
LIMIT_NAMES: tuple[str, ...] = tuple(name for name in BUDGET_NAMES if name.endswith("_max"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef:
    artifact_id: str
    sha256: str
    size_bytes: int
    name: str

    def as_json(self) -> dict[str, Json]:
        return {
            "artifact_id": self.artifact_id,
            "sha256": self.sha256,
            "size_bytes": self.size_bytes,
            "name": self.name,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    call_id: str
    run_id: str
    tool: str
    status: Status
    success: bool
    reason: Reason | None = None
    message: str | None = None
    hint: str | None = None
    """What the caller can do."""
    operator_hint: str | None = None
    """What only an operator can do: the command that makes an exception for this call, where one can."""
    policy_stale: str | None = None
    """That the policies in force are older than the files of now, which cannot be used."""
    output: Mapping[str, Json] = field(default_factory=dict)
    # What follows with repr=False is kilobytes of figures and signatures: no reader of a terminal looks for them there.
    usage: Usage = field(default_factory=Usage, repr=False)
    budget: BudgetView = field(default_factory=BudgetView, repr=False)
    approval: Mapping[str, Json] | None = None
    artifacts: tuple[ArtifactRef, ...] = ()
    attestation: Mapping[str, Json] = field(default_factory=dict, repr=False)
    """Every field flat, and `envelope`: the signed DSSE envelope."""
    receipt: Mapping[str, Json] | None = field(default=None, repr=False)
    """index, tree_size, checkpoint: what makes each client a witness."""
