"""Who asks for what: principals, ids, the operator's grant for one call, and the call itself.

Rules: a value that exists is valid; ids are ULIDs (26 characters of Crockford's base 32); the call's input is
kept exactly as it was sent, because what the caller sent is what is decided, planned, approved and attested.

Not here: reading bytes (protocol/parse), what the call would do (model/plan).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import NewType

from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, HostPattern
from palyra.values import dataclass

CallId = NewType("CallId", str)
RunId = NewType("RunId", str)

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")


def is_ulid(text: str) -> bool:
    return _ULID.fullmatch(text) is not None


def ulid_unix_ms(text: str) -> int:
    """When an id was made, by the clock of who made it."""
    return sum(_DIGITS.index(digit) << 5 * place for place, digit in enumerate(reversed(text[:10])))


def parse_ulid(text: object, *, what: str) -> str:
    if not isinstance(text, str) or not is_ulid(text):
        raise Rejected(Reason.BAD_ARGUMENTS, f"{what} is not a ULID.", "Leave it out and Palyra makes one.")
    return text


class PrincipalKind(StrEnum):
    USER = "user"
    AGENT = "agent"


class Door(StrEnum):
    """Through which door a call came. Doors hold no rules; policies may look at the name."""

    CLI = "cli"
    PYTHON = "python"
    HTTP = "http"
    MCP = "mcp"
    HOOK = "hook"
    """An agent's host asks before it runs a tool itself: decided here, run there."""


class Tier(StrEnum):
    A = "A"
    B = "B"
    C = "C"
    UNSANDBOXED = "unsandboxed"


class TierChoice(StrEnum):
    """What a caller or the configuration asks for. `auto` is tier C (contracts.md)."""

    AUTO = "auto"
    B = "b"
    C = "c"


@dataclass(frozen=True, slots=True)
class Principal:
    kind: PrincipalKind
    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise Rejected(
                Reason.BAD_ARGUMENTS,
                f"Principal name {self.name[:40]!r} is not allowed.",
                "Use letters, digits and . _ @ -, for example agent:demo.",
            )

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_principal(text: object) -> Principal:
    if not isinstance(text, str):
        raise Rejected(Reason.BAD_ARGUMENTS, "A principal must be a string.", "Write it as agent:demo or user:alice.")
    kind, colon, name = text.partition(":")
    if not colon or kind not in (PrincipalKind.USER, PrincipalKind.AGENT):
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"Principal {text[:40]!r} is neither user:NAME nor agent:NAME.",
            "Write it as agent:demo or user:alice.",
        )
    return Principal(PrincipalKind(kind), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorGrant:
    """What the operator's own flags allow for this one call (`--allow`, `--read`, `--egress` …).

    An agent's credential can never carry one; a door that takes calls from agents refuses it first.
    """

    executables: tuple[str, ...] = ()
    interpreters: bool = False
    read_roots: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    egress: EgressMode | None = None
    hosts: tuple[HostPattern, ...] = ()
    block_all: bool = False
    """`block_all`: strict with an empty list, whatever hosts are configured."""
    tier: TierChoice | None = None
    root_tier_b: bool = False
    """A program of tier B may keep uid 0 where the engine and the workspace are root's."""

    @property
    def is_empty(self) -> bool:
        return self == OperatorGrant()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Where a call comes from (`ToolRequestContext` in the glossary); part of the Cedar request."""

    principal: Principal
    door: Door = Door.PYTHON
    device: str = ""
    channel: str = ""
    session: str = ""
    skill: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    call_id: CallId
    run_id: RunId
    tool: str
    input: Mapping[str, Json]
    input_sha256: str
    context: RequestContext
    workspace: str
    """As the run named it; guard/look resolves it. Empty for tools that touch no files."""
    received_unix_ms: int
    limits: Limits
    """The run's limits: the configuration, narrowed by the run. A call narrows further, never widens."""
    grant: OperatorGrant = field(default_factory=OperatorGrant)
