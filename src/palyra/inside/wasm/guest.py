"""One call of one guest: its input, its bounds, what it was granted, what it has used, and how it ended.

Everything a host function may touch hangs off a `GuestCall`; two calls share nothing. `Exceeded` ends the guest,
`Refused` is an answer to it. What a granted thing really does (a request, a secret, a stored value) is asked of the
`Gate`, with the time that is left: fuel and epochs do not cover the host's own code.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from palyra.inside.wasm import abi

MAX_TRAIL = 256
"""Host calls that are listed one by one; the rest are counted."""


class EndKind(StrEnum):
    RETURNED = "returned"
    OUT_OF_FUEL = "out_of_fuel"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    QUOTA = "quota"
    TRAPPED = "trapped"
    INVALID = "invalid"
    """The module cannot be run at all: imports, exports, declared sizes."""
    BROKEN = "broken"
    """The host's own fault."""


class End(NamedTuple):
    kind: EndKind
    detail: str = ""
    exit_code: int | None = None
    output: bytes | None = None
    fuel: int | None = None
    """None where wasmtime does not say: a guest that its deadline interrupted keeps the count to itself."""
    memory_bytes: int = 0


@dataclass(frozen=True)
class Bounds:
    fuel: int
    memory_bytes: int
    table_elements: int
    wall_ms: int
    host_calls: int = 10_000
    host_bytes: int = 16 << 20
    log_lines: int = 1000
    output_bytes: int = 1 << 20


@dataclass(frozen=True)
class StorageRoot:
    prefix: str
    writable: bool


@dataclass(frozen=True)
class Grants:
    """What the guest may name, each family in sorted order: a handle is its place in it."""

    http: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    readable_secrets: frozenset[str] = frozenset()
    """Whose raw value the guest may read; the others are only injected at the edge, on their own host."""
    storage: tuple[StorageRoot, ...] = ()
    channels: tuple[str, ...] = ()

    def count(self, family: str) -> int:
        return len({"http": self.http, "secret": self.secrets, "storage": self.storage}.get(family, self.channels))


class Refused(Exception):
    """The guest asked for what it may not have or what cannot be done: an error number is its answer."""

    def __init__(self, number: int, detail: str = "") -> None:
        super().__init__(detail)
        self.number = number


class Exceeded(Exception):
    """A bound of the call was passed: the guest ends here."""

    def __init__(self, kind: EndKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


class Gate(Protocol):
    """What answers for the world: the engine itself, or the engine at the other end of the worker's pipe."""

    def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
        """Raises `Refused`; returns within about `timeout_s`."""


@dataclass(slots=True)
class GuestCall:
    input: bytes
    bounds: Bounds
    grants: Grants
    gate: Gate
    began_s: float = field(default_factory=time.monotonic)
    output: bytes | None = None
    parked: bytes = b""
    fault: Exceeded | None = None
    """Why the host ended the guest; it goes before whatever wasmtime then says."""
    fuel_left: int | None = None
    """As it was when the host stopped the guest by taking its fuel away."""
    calls: int = 0
    host_bytes: int = 0
    log_lines: int = 0
    trail: list[tuple[str, str, int]] = field(default_factory=list)
    """(operation, name of what was granted, bytes) of each call that reached the gate."""

    def left_s(self) -> float:
        return self.bounds.wall_ms / 1000 - (time.monotonic() - self.began_s)

    def enter(self) -> None:
        """At the start of every host call: a storm of cheap calls costs the host more than it costs the guest."""
        bounds = self.bounds
        self.calls += 1
        if self.calls > bounds.host_calls:
            raise Exceeded(EndKind.QUOTA, f"The guest made more than {bounds.host_calls} host calls.")
        if (time.monotonic() - self.began_s) * 1000 >= bounds.wall_ms:
            raise Exceeded(EndKind.TIMEOUT, f"The guest ran longer than {bounds.wall_ms} ms.")

    def carry(self, count: int) -> None:
        self.host_bytes += count
        if self.host_bytes > self.bounds.host_bytes:
            raise Exceeded(EndKind.QUOTA, f"The guest moved more than {self.bounds.host_bytes} bytes through the host.")

    def ask(self, operation: str, name: str, payload: bytes = b"") -> bytes:
        self.carry(len(payload))
        if len(self.trail) < MAX_TRAIL:
            self.trail.append((operation, name, len(payload)))
        answer = self.gate.ask(operation, name, payload, timeout_s=max(0.0, self.left_s()))
        self.carry(len(answer))
        if self.left_s() <= 0:
            raise Exceeded(EndKind.TIMEOUT, f"The guest ran longer than {self.bounds.wall_ms} ms.")
        return answer

    def place(self, family: str, handle: int) -> int:
        """A handle's place among what was granted; forged, negative and other families' numbers are refused."""
        place = handle - abi.FAMILIES[family]
        if not 0 <= place < self.grants.count(family):
            raise Refused(abi.NOT_GRANTED)
        return place
