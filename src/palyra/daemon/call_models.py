"""Bodies and answers of the agent API, as pydantic models: the HTTP door's own shapes, and their documentation.

Field names are those of the contract; what only an operator may say is marked, and refused from anybody else by
daemon/orders. Not here: the outcome's codec (protocol/wire).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from palyra.daemon.routes import AnswerModel, Model

ULID = r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$"
Text = Annotated[str, Field(max_length=4096)]
Words = Annotated[list[Text], Field(max_length=256)]
Names = Annotated[list[Annotated[str, Field(max_length=256)]], Field(max_length=256)]
EGRESS = r"^(none|preflight|strict|allow_all|block_all)$"

OPERATOR_ONLY = "Only for an operator's credential; an agent's is refused with CAPABILITY_DENIED."
FEWER = "Narrows what is configured under this name; never widens it."
OTHERS = OPERATOR_ONLY[0].lower() + OPERATOR_ONLY[1:]


class CallBody(Model):
    """One call. A list of these is a batch: its calls share a run where they name none."""

    tool: Annotated[str, Field(max_length=4096, description="palyra.process.run, palyra.echo, …")]
    input: Annotated[
        Any,  # JSON it is already; looking at every value once more would take as long as reading it
        Field(
            default_factory=dict,
            description="As the tool's schema says: /v1/tools. All but an object is refused in the call's outcome.",
            json_schema_extra={"type": "object"},
        ),
    ]
    run_id: Annotated[
        str | None, Field(max_length=64, description="A run of POST /v1/runs, or the one that an outcome names.")
    ] = None
    call_id: Annotated[str | None, Field(max_length=64, description="A ULID; a retry runs nothing twice.")] = None
    device: Text = ""
    channel: Text = ""
    workspace: Annotated[
        Text | None, Field(description="An absolute folder; within the token's own, if it has one.")
    ] = None
    wait: Annotated[bool, Field(description="False: answer 202 as soon as the call is durably accepted.")] = True
    approval_wait_ms: Annotated[
        int, Field(ge=0, le=86_400_000, description="How long to wait for a person where policy asks for one.")
    ] = 0
    project: Annotated[bool, Field(description="Large output as a preview and an artifact.")] = True
    principal: Annotated[str | None, Field(max_length=134, description=f"Whose call it is. Another's: {OTHERS}")] = None
    door: Annotated[str | None, Field(pattern=r"^(cli|python|http)$", description=OPERATOR_ONLY)] = None
    tier: Annotated[str | None, Field(pattern=r"^(auto|b|c)$", description=OPERATOR_ONLY)] = None
    allow_root_tier_b: Annotated[bool | None, Field(description=OPERATOR_ONLY)] = None
    egress: Annotated[str | None, Field(pattern=EGRESS, description=OPERATOR_ONLY)] = None
    allow: Annotated[Words | None, Field(description=OPERATOR_ONLY)] = None
    allow_interpreters: Annotated[bool | None, Field(description=OPERATOR_ONLY)] = None
    allow_host: Annotated[Words | None, Field(description=OPERATOR_ONLY)] = None
    read: Annotated[Words | None, Field(description=OPERATOR_ONLY)] = None
    env: Annotated[dict[str, Text] | None, Field(max_length=64, description=OPERATOR_ONLY)] = None
    timeout_ms: Annotated[int | None, Field(ge=1, le=86_400_000, description=OPERATOR_ONLY)] = None
    memory_bytes: Annotated[int | None, Field(ge=8 << 20, le=1 << 44, description=OPERATOR_ONLY)] = None
    max_output_bytes: Annotated[int | None, Field(ge=0, le=1 << 32, description=OPERATOR_ONLY)] = None
    default_workspace: Annotated[
        Text | None, Field(description=f"Where none is named or configured. {OPERATOR_ONLY}")
    ] = None
    input_base64: Annotated[
        str | None, Field(description=f"The input's bytes as received, instead of `input`. {OPERATOR_ONLY}")
    ] = None
    changes: Annotated[bool | None, Field(description=f"Report which files changed. {OPERATOR_ONLY}")] = None
    stream_stdin: Annotated[
        bool | None, Field(description=f"stdin is sent separately, as a stream. {OPERATOR_ONLY}")
    ] = None
    confirm: Annotated[bool | None, Field(description=f"A person at this end can be asked. {OPERATOR_ONLY}")] = None

    @property
    def operator_words(self) -> tuple[str, ...]:
        """Which of an operator's own words it says."""
        if self.model_fields_set.isdisjoint(OPERATOR_FIELDS):
            return ()
        return tuple(name for name in OPERATOR_FIELDS if getattr(self, name) is not None)


OPERATOR_FIELDS = (
    *("principal", "door", "tier", "egress", "allow", "allow_interpreters", "allow_host", "read", "env"),
    *(
        "allow_root_tier_b",
        "timeout_ms",
        "memory_bytes",
        "max_output_bytes",
        "default_workspace",
        "input_base64",
        "changes",
        "stream_stdin",
        "confirm",
    ),
)
CallOrBatch = CallBody | Annotated[list[CallBody], Field(min_length=1)]


class LimitsBody(Model):
    """Each only narrows: the smaller of this and what is configured holds."""

    wall_ms: Annotated[int | None, Field(ge=1, le=86_400_000)] = None
    cpu_ms: Annotated[int | None, Field(ge=1, le=86_400_000)] = None
    memory_bytes: Annotated[int | None, Field(ge=8 << 20, le=1 << 44)] = None
    processes: Annotated[int | None, Field(ge=1, le=1 << 20)] = None
    output_bytes: Annotated[int | None, Field(ge=0, le=1 << 32)] = None
    open_files: Annotated[int | None, Field(ge=16, le=1 << 20)] = None
    file_bytes: Annotated[int | None, Field(ge=0, le=1 << 44)] = None
    scratch_bytes: Annotated[int | None, Field(ge=1 << 20, le=1 << 40)] = None


class BudgetBody(Model):
    """What the run may use in all; each only narrows."""

    wall_us: Annotated[int | None, Field(ge=0, le=1 << 53)] = None
    cpu_us: Annotated[int | None, Field(ge=0, le=1 << 53)] = None
    output_bytes: Annotated[int | None, Field(ge=0, le=1 << 53)] = None
    egress_bytes: Annotated[int | None, Field(ge=0, le=1 << 53)] = None
    fuel: Annotated[int | None, Field(ge=0, le=1 << 53)] = None


class RunBody(Model):
    run_id: Annotated[str | None, Field(pattern=ULID, description="A fresh ULID of the caller's own.")] = None
    workspace: Text | None = None
    budget: BudgetBody | None = None
    limits: LimitsBody | None = None
    egress: Annotated[str | None, Field(pattern=EGRESS, description="Only stricter than what is configured.")] = None
    tier: Annotated[str | None, Field(pattern=r"^(auto|b|c)$", description="Only stricter.")] = None
    calls_max: Annotated[int | None, Field(ge=1, le=10**9)] = None
    allowed_tools: Annotated[Names | None, Field(description=FEWER)] = None
    allowed_capabilities: Annotated[Names | None, Field(description=FEWER)] = None
    allowed_executables: Annotated[Names | None, Field(description=FEWER)] = None
    allowed_egress_hosts: Annotated[Names | None, Field(description=FEWER)] = None
    device: Text = ""
    channel: Text = ""
    principal: Annotated[str | None, Field(max_length=134, description=f"Whose run it is. Another's: {OTHERS}")] = None


# ── answers ──


class UsageShown(AnswerModel):
    wall_us: int
    cpu_us: int | None
    max_rss_bytes: int | None
    output_bytes: int
    fuel: int | None


class BudgetShown(AnswerModel):
    calls_used: int
    calls_max: int
    attempts_used: int
    attempts_max: int
    wall_us_used: int
    wall_us_max: int | None
    cpu_us_used: int
    cpu_us_max: int | None
    output_bytes_used: int
    output_bytes_max: int | None
    egress_bytes_used: int
    egress_bytes_max: int | None
    fuel_used: int
    fuel_max: int | None


class ApprovalShown(AnswerModel):
    approval_id: str
    expires_at_unix_ms: int
    url: str | None


class ArtifactShown(AnswerModel):
    artifact_id: str
    sha256: str
    size_bytes: int
    name: str


class ReceiptShown(AnswerModel):
    index: int
    tree_size: int
    checkpoint: str


class OutcomeShown(AnswerModel):
    """What every door returns. `attestation` and `receipt` are null only while the call goes on."""

    call_id: str
    run_id: str
    tool: str
    status: str
    success: bool
    reason: str | None
    message: str | None
    hint: str | None
    output: dict[str, Any]
    usage: UsageShown
    budget: BudgetShown
    approval: ApprovalShown | None
    artifacts: list[ArtifactShown]
    attestation: dict[str, Any] | None
    receipt: ReceiptShown | None


class ToolShown(AnswerModel):
    name: str
    version: str
    description: str
    kind: str
    capabilities: list[str]
    sensitive: bool
    parallelism: str
    projection: str
    max_input_bytes: int
    provenance: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    schema_sha256: str


class ToolPage(AnswerModel):
    items: list[ToolShown]
    next: str | None


class RunShown(AnswerModel):
    run_id: str
    principal: str
    workspace: str
    limits: dict[str, int]
    egress: str
    tier: str
    narrowing: dict[str, list[str]]
    created_at_unix_ms: int
    ended_at_unix_ms: int | None
    budget: BudgetShown
