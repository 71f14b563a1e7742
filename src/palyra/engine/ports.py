"""What the engine needs of the world, as Protocols. `wiring` joins real hands to them, `palyra.testing` fakes.

Rules: a port says what, never how; values of `model/` go in and come out; a port that cannot keep its promise
raises (`StateError` for the journal, so that nothing runs), it never returns half an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palyra.config.schema import Config
from palyra.model.call import ToolCall
from palyra.model.grant import Ask
from palyra.model.host import HostFacts
from palyra.model.outcome import ArtifactRef, Execution, StreamName
from palyra.model.plan import LookRequest, Plan, ProcessPlan, Sights
from palyra.model.record import Closing, Opening, Owner, Recorded, StoredCall
from palyra.policy.bundle import PolicyBundle
from palyra.signing import SigningKey


class Clock(Protocol):
    def now_unix_ms(self) -> int: ...
    def monotonic_us(self) -> int: ...


class Ids(Protocol):
    def ulid(self) -> str: ...
    def random_bytes(self, count: int) -> bytes: ...


class Look(Protocol):
    """What the disk says about a call. Missing things are facts, not errors."""

    def look(self, request: LookRequest) -> Sights: ...


class Sink(Protocol):
    """Takes a program's output as it comes, in chunks of at most 4 KiB."""

    def feed(self, stream: StreamName, chunk: bytes) -> None: ...


class Source(Protocol):
    """A caller's stdin, streamed. `read` returns b"" at the end."""

    async def read(self) -> bytes: ...


class Executor(Protocol):
    """Runs a native plan and reports how it ended. Cancelling the task kills the whole tree before it returns."""

    async def run(self, plan: ProcessPlan, sink: Sink, source: Source | None = None) -> Execution: ...


class Journal(Protocol):
    """The call's rows and the tamper-evident log, one transaction each.

    `open_call` spends one call of the run's budget in the same transaction: it raises
    `Rejected(BUDGET_SPENT)` when none is left, `DuplicateCall` when the id is known, `StateError` when it
    cannot be durable. `close_call` never refuses for budget.
    """

    async def open_call(self, opening: Opening) -> Recorded: ...
    async def close_call(self, closing: Closing) -> Recorded: ...
    async def find_call(self, call_id: str) -> StoredCall | None: ...
    async def budget(self, run_id: str) -> tuple[int, int, int, int] | None:
        """(calls used, calls max, attempts used, attempts max) of a run that is known."""

    async def open_calls(self) -> Sequence[StoredCall]:
        """Every call whose intent has no result."""


class Owners(Protocol):
    def me(self) -> Owner: ...
    def is_alive(self, owner: Owner) -> bool: ...


class Policies(Protocol):
    def current(self) -> PolicyBundle: ...


class Approver(Protocol):
    """Asks a person. Returns the approval's id, or raises `Rejected(NOT_APPROVED | APPROVAL_TIMEOUT)`."""

    async def ask(self, call: ToolCall, plan: Plan, decision: Ask) -> str: ...


class Artifacts(Protocol):
    """Blobs by digest, scoped to the run that made them."""

    async def put(self, run_id: str, name: str, data: bytes) -> ArtifactRef: ...
    async def read(self, run_id: str, artifact_id: str) -> tuple[ArtifactRef, bytes]: ...


class Secrets(Protocol):
    """Values that must never leave in output, each under the name its placeholder shows."""

    def known_values(self, run_id: str) -> Sequence[tuple[str, bytes]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The fuse box's board: one of each."""

    config: Config
    host: HostFacts
    clock: Clock
    ids: Ids
    look: Look
    executor: Executor
    journal: Journal
    owners: Owners
    policies: Policies
    approver: Approver
    artifacts: Artifacts
    secrets: Secrets
    key: SigningKey
