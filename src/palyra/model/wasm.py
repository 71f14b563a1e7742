"""Words of tier A: what a module is, what a guest may use and name, and the plan to run it.

Rules: a grant is `manifest ∩ operator's grant ∩ policy ∩ request`, already intersected when it stands here, each family
sorted, because a guest's handle is a place in it; limits only ever narrow.

Not here: reading a module (sandbox/wasm_scan), planning (sandbox/wasm), running (launch/guests, inside/wasm).
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Literal

from palyra.canon import Json
from palyra.errors import ConfigError
from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.values import dataclass

PAGE_BYTES = 65536


class GuestKind(StrEnum):
    CORE = "core"
    COMPONENT = "component"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """What the bytes of a module say about it, before any compiler has seen them."""

    kind: GuestKind
    size_bytes: int
    modules: int = 1
    """Core modules within, the module itself or those of a component."""
    functions: int = 0
    largest_body_bytes: int = 0
    most_locals: int = 0
    code_bytes: int = 0
    data_bytes: int = 0
    memories: int = 0
    memory_min_pages: int = 0
    tables: int = 0
    table_min_elements: int = 0
    imports: tuple[tuple[str, str], ...] = ()
    """(module, name) of a core module; (name, "") of a component."""
    exports: tuple[str, ...] = ()
    has_start: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WasmLimits:
    """`RuntimeLimits` of the glossary: each exceeded one ends the guest with its own sentence."""

    fuel: int = 10_000_000
    memory_bytes: int = 64 << 20
    """In all, also for a component with several memories."""
    table_elements: int = 100_000
    wall_ms: int = 120_000
    host_calls: int = 10_000
    host_bytes: int = 16 << 20
    log_lines: int = 1000
    output_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if self.fuel < 1 or self.memory_bytes < PAGE_BYTES or self.wall_ms < 1:
            raise ConfigError("A guest needs fuel, a page of memory and time.", "Raise fuel_budget, max_memory_bytes.")

    def as_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageGrant:
    prefix: str
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityGrants:
    """`CapabilityGrantSet`: what a guest may name, sorted within each family."""

    http: tuple[str, ...] = ()
    """Hosts, `host` or `host:port`."""
    secrets: tuple[str, ...] = ()
    readable_secrets: frozenset[str] = frozenset()
    """Whose raw value the guest may read: a louder grant of its own."""
    storage: tuple[StorageGrant, ...] = ()
    channels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for family in (self.http, self.secrets, self.channels, tuple(root.prefix for root in self.storage)):
            if list(family) != sorted(set(family)):
                raise ValueError("what is granted must be sorted, each once: a handle is a place in it")

    def as_json(self) -> dict[str, Json]:
        return {
            "http": list(self.http),
            "secrets": list(self.secrets),
            "readable_secrets": sorted(self.readable_secrets),
            "storage": [[root.prefix, root.writable] for root in self.storage],
            "channels": list(self.channels),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAnswer:
    """What a host call comes to: bytes that the guest may take, or a negative number that is its answer."""

    number: int = 0
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WasmPlan:
    """Everything needed to run one guest once. The module itself is named by its digest."""

    module_sha256: str
    guest: GuestKind
    memories: int = 1
    """That a component declares in all: each gets its share of the memory."""
    skill_id: str
    """Empty for an inline module."""
    tool_id: str
    input: bytes
    wasm: WasmLimits
    grants: CapabilityGrants = field(default_factory=CapabilityGrants)
    in_process: bool = False
    """Only for publishers the operator named: then there is no jail around wasmtime's own."""
    limits: Limits = field(default_factory=Limits)
    """What the records of every call tell; the guest's own are in `wasm`."""
    guarantees: frozenset[Guarantee] = frozenset()
    degraded: tuple[str, ...] = ()
    executor: str = "sandbox_tier_a"
    backend: str = "wasm"
    kind: Literal["wasm"] = "wasm"

    def as_json(self) -> dict[str, Json]:
        return {
            "kind": self.kind,
            "backend": self.backend,
            "executor": self.executor,
            "tier": "A",
            "module_sha256": self.module_sha256,
            "guest": self.guest.value,
            "memories": self.memories,
            "skill_id": self.skill_id,
            "tool_id": self.tool_id,
            "wasm": dict(self.wasm.as_json()),
            "grants": self.grants.as_json(),
            "in_process": self.in_process,
            "guarantees": sorted(g.value for g in self.guarantees),
            "degraded": list(self.degraded),
        }
