"""What the engine needs of the world, as Protocols. `wiring` joins real hands to them, `palyra.testing` fakes.

Rules: a port says what, never how; values of `model/` go in and come out; a port that cannot keep its promise
raises (`StateError` for the journal, so that nothing runs), it never returns half an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from palyra.budget.ledger import Ledger, Share
from palyra.config.schema import Config
from palyra.model.approval import Approval, Question
from palyra.model.changes import Snapshot
from palyra.model.credential import Credential
from palyra.model.face import Trust
from palyra.model.fetch import Fetched, FetchOrder, FetchUrl
from palyra.model.host import HostFacts
from palyra.model.net import NetGrant
from palyra.model.outcome import ArtifactRef, Connection, Execution, StreamName
from palyra.model.plan import ProcessPlan
from palyra.model.process import BackgroundProcess, LogPage, ProcessOwner, StartOrder
from palyra.model.record import Closing, Intent, Opening, Owner, Recorded, RunSpec, StoredCall
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.model.sights import LookRequest, Sights, WorkspaceSight
from palyra.model.skill import SkillTool
from palyra.model.wasm import HostAnswer, WasmPlan
from palyra.policy.bundle import PolicyBundle
from palyra.signing import SigningKey
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.egress.credentials import Credential as HeaderCredential
    from palyra.sandbox.proven import Proven

HostCall = Callable[[str, str, bytes, float], Awaitable[HostAnswer]]
"""A guest asks: operation, name of what was granted, payload, seconds left."""


class Clock(Protocol):
    def now_unix_ms(self) -> int: ...
    def monotonic_us(self) -> int: ...


class Ids(Protocol):
    def ulid(self) -> str: ...
    def random_bytes(self, count: int) -> bytes: ...


class Look(Protocol):
    """What the disk says about a call. Missing things are facts, not errors."""

    def look(self, request: LookRequest) -> Sights: ...
    def appeared(self, workspace: WorkspaceSight) -> tuple[str, ...]:
        """Guarded names (hooks, CI files, .env …) that were not there when the workspace was seen, and are now."""

    def created(self, workspace: WorkspaceSight, *, during_unix_ms: range) -> Mapping[str, str]:
        """Guarded paths that the run has created, with their stamps; `during_unix_ms`: when its call ran."""

    def present(self, paths: Sequence[str]) -> Mapping[str, str]:
        """Those the host has, and where each really ends."""

    def snapshot(self, workspace: str) -> Snapshot:
        """Every file's number, size and times, within bounds. May take some time: call it from a thread."""


class Sink(Protocol):
    """Takes a program's output as it comes, in chunks of at most 4 KiB. One that has a `while_running()` too is
    told once when the program has begun, where no other runs and all that is left is to wait; one with a
    `while_ending()`, once when it has ended by itself and its sandbox is being taken apart: for work of its own."""

    def feed(self, stream: StreamName, chunk: bytes) -> None: ...
    def reached(self, connections: Sequence[Connection]) -> None:
        """Once at the end, also of a call that was cancelled, where hosts were granted: what it reached and tried."""


class Source(Protocol):
    """A caller's stdin, streamed. `read` returns b"" at the end."""

    async def read(self) -> bytes: ...


class Executor(Protocol):
    """Runs a native plan and reports how it ended. Cancelling the task kills the whole tree before it returns."""

    async def run(
        self,
        plan: ProcessPlan,
        sink: Sink,
        source: Source | None = None,
        *,
        credentials: Sequence[HeaderCredential] = (),
        policy_number: int | None = None,
    ) -> Execution:
        """`credentials` are added to the program's requests outside the sandbox; they are no part of the plan.
        `policy_number` is that of the policies that decided: who sends a plan elsewhere sends it under no others."""


class Background(Protocol):
    """Programs that outlive their call, each known to its owner alone.

    `start` raises `NotStarted` when nothing of the program ran, `Rejected(BUSY)` when the run has too many; cancelling
    it takes the process back. The others raise `Rejected(BAD_ARGUMENTS)` for a handle that is not the owner's.
    """

    async def start(self, order: StartOrder) -> BackgroundProcess: ...
    async def status(self, owner: ProcessOwner, process_id: str) -> BackgroundProcess: ...
    async def list(self, owner: ProcessOwner, *, before: str | None, count: int) -> Sequence[BackgroundProcess]:
        """The newest first; `before` is the last one seen."""

    async def output(
        self, owner: ProcessOwner, process_id: str, *, offset_bytes: int, max_bytes: int, stream: StreamName | None
    ) -> tuple[BackgroundProcess, LogPage]: ...
    async def stop(self, owner: ProcessOwner, process_id: str, *, by: str) -> BackgroundProcess:
        """Returns how it ended; one that had ended is left as it was."""

    async def end_run(self, owner: ProcessOwner) -> None:
        """End what was to end with the run."""


class Fetcher(Protocol):
    """Fetches over HTTP, outside every sandbox, within the order's grant; every hop is judged.

    Raises `FetchFailed`. `credentials` is asked for the headers of a request to the host that the call named.
    """

    async def fetch(self, order: FetchOrder, credentials: Callable[[FetchUrl], Sequence[Credential]]) -> Fetched: ...


class Guests(Protocol):
    """Runs WebAssembly guests. Raises `Rejected(BAD_ARGUMENTS)` for a module that cannot be compiled; cancelling kills
    the guest before it returns."""

    async def run(self, plan: WasmPlan, module: bytes, answer: HostCall) -> tuple[Execution, bytes | None]:
        """(how it ended, what the guest gave as output)."""


class Skills(Protocol):
    """Installed skills, as they are enabled now. `find` raises `Rejected(SKILL_NOT_ACTIVE | SKILL_TAMPERED)`."""

    def find(self, skill_id: str, *, version: str, tool_id: str) -> SkillTool:
        """An empty version: the active one; an empty tool id: the skill's only tool; an empty skill id: whose tool it
        is."""

    def module(self, tool: SkillTool) -> bytes:
        """The module's bytes, checked against the digest that was approved."""

    def is_active(self, tool: SkillTool) -> bool:
        """Whether just this payload is still enabled: asked before it runs, and now and then while it does."""

    def fail(self, tool: SkillTool, why: str) -> None:
        """It can no longer be compiled or started here: it is out of use until somebody enables it again."""


class GuestStorage(Protocol):
    """A durable key-value space of each skill. `put` raises `Rejected(QUOTA_EXCEEDED)`."""

    async def get(self, skill_id: str, key: str) -> bytes | None: ...
    async def put(self, skill_id: str, key: str, value: bytes) -> None: ...
    async def delete(self, skill_id: str, key: str) -> None: ...
    async def list(self, skill_id: str, prefix: str) -> Sequence[str]: ...


class Journal(Protocol):
    """The call's rows and the tamper-evident log, one transaction each.

    `open_call` spends one call of the run's budget in the same transaction: it raises
    `Rejected(BUDGET_SPENT)` when none is left, `DuplicateCall` when the id is known, `StateError` when it
    cannot be durable. `close_call` never refuses for budget.
    """

    async def open_call(self, opening: Opening) -> Recorded: ...
    async def close_call(self, closing: Closing) -> Recorded:
        """Never cut short: whoever is cancelled meanwhile finds that in its own task (`cancelling`)."""

    def close_now(self, closing: Closing) -> Recorded | None:
        """The same without waiting, where nobody else is writing and no other call would gain by sharing the commit;
        None: nothing was done, use `close_call`."""

    async def find_call(self, call_id: str) -> StoredCall | None: ...
    async def budget(self, run_id: str) -> Ledger | None:
        """Of a run that is known."""

    async def share(self, run: RunSpec) -> Share | None:
        """What the principal's runs of that day have used of what they share; None where they share nothing."""

    async def open_calls(self) -> Sequence[StoredCall]:
        """Every call whose intent has no result."""

    async def find_intents(self, calls: Sequence[StoredCall]) -> Mapping[str, Intent]:
        """By call id, those whose intent is in the signed tree: rows alone can be written by anyone."""


class Owners(Protocol):
    def me(self) -> Owner: ...
    def is_alive(self, owner: Owner) -> bool: ...
    def is_gone(self, owner: Owner) -> bool:
        """Whether its open calls may be closed by others: it is dead, or will learn that it was taken for dead."""


class Policies(Protocol):
    def current(self) -> PolicyBundle: ...
    def at(self, version: str | None) -> PolicyBundle:
        """The same, where it was read a moment ago which version is in use; None for the folder of policies itself."""


class RunFactsPort(Protocol):
    """What a run of this principal has done so far, also before a restart."""

    def read(self, owner: ProcessOwner) -> RunFacts: ...
    async def mark(self, owner: ProcessOwner, call_id: str, labels: Iterable[RunLabel]) -> None:
        """Set labels for good. Done when it is durable; raises `StateError` when it cannot be."""

    def count_calls(self, owner: ProcessOwner, *, since_unix_ms: int) -> int:
        """Calls of the run, made or refused."""


class CreatedPathsPort(Protocol):
    """Guarded paths (`.env`, `.vscode`, `.git`) that calls of a run created, each with its stamp."""

    def read(self, owner: ProcessOwner) -> Mapping[str, str]: ...
    async def write(self, owner: ProcessOwner, changes: Mapping[str, str | None]) -> None:
        """Set stamps; None removes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Of a run, all of one moment."""

    budget: Ledger | None
    """Of a run that is known."""
    facts: RunFacts | None = None
    """None where it was not read."""
    policy_is_read: bool = False
    policy: str | None = None
    """Which version is in use, if it was read."""
    policy_number: int | None = None
    """Its number in the order of uses."""


class Standings(Protocol):
    def read(self, owner: ProcessOwner, *, ends_with_call: bool = False, is_new: bool = False) -> Standing:
        """`ends_with_call`: most such runs are not known yet, and of one that is not there is nothing else to read.
        `is_new`: this one cannot be known."""


class Approver(Protocol):
    """Puts questions before people and keeps what they say; durable, so that another process may decide.

    Using a grant is the journal's: it is consumed in the transaction of the call's intent.
    """

    async def ask(self, question: Question) -> Approval:
        """A grant that covers it, what was last said to it, or a request that now waits."""

    async def look(self, approval_id: str) -> Approval:
        """As it stands now; a request that nobody decided in time is expired."""

    async def confirm(self, approval_id: str, *, by: str, approved: bool) -> Approval:
        """Decided by who made the call, at its terminal; where another was quicker, that stands."""


class Artifacts(Protocol):
    """Blobs by digest, scoped to the run that made them."""

    async def put(self, run_id: str, name: str, data: bytes) -> ArtifactRef: ...
    async def read(self, run_id: str, artifact_id: str) -> tuple[ArtifactRef, bytes]: ...


class Secrets(Protocol):
    """Values that must never leave in output, each under the name its placeholder shows."""

    def known_values(self, run_id: str) -> Sequence[tuple[str, bytes]]: ...
    def value(self, name: str, *, principal: str, tool: str) -> bytes | None:
        """The raw value, where its scope covers this principal and tool. StateError: none can be had."""

    def bound(self, *, principal: str, tool: str) -> Sequence[Credential]:
        """Every header that may be added to this principal's requests, outside the sandbox, each for its host alone."""

    def credentials(self, host: str, port: int, *, encrypted: bool, principal: str, tool: str) -> Sequence[Credential]:
        """Of those, the ones for this host. StateError: none can be had."""


class HostCredentials(Protocol):
    """Secrets bound to hosts, for whoever may use them."""

    def for_call(self, *, principal: str, tool: str) -> Sequence[HeaderCredential]: ...


class Intercepts(Protocol):
    """Hosts whose TLS is ended outside the sandbox."""

    def trust_for(self, net: NetGrant) -> Trust | None:
        """What programs inside must trust; None where no such host is granted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The fuse box's board: one of each."""

    config: Config
    host: HostFacts
    clock: Clock
    ids: Ids
    look: Look
    executor: Executor
    background: Background
    journal: Journal
    owners: Owners
    policies: Policies
    run_facts: RunFactsPort
    approver: Approver
    artifacts: Artifacts
    secrets: Secrets
    fetcher: Fetcher
    guests: Guests
    skills: Skills
    guest_storage: GuestStorage
    key: SigningKey
    own_files: tuple[tuple[str, bytes], ...] = ()
    """(path inside a sandbox, content) of Palyra's own programs that run there: see inside/."""
    created_paths: CreatedPathsPort | None = None
    """None: what a call creates is closed to the next one."""
    candidate: Policies | None = None
    """In shadow mode: policies that are asked beside the ones that decide. Differences are recorded."""
    standings: Standings | None = None
    """Reads at once what journal, run_facts and policies would be asked for one by one."""
    host_credentials: HostCredentials | None = None
    intercepts: Intercepts | None = None
    proven: Proven | None = None
    """The proof that this host's tier C profile holds (palyra doctor --prove), if there is one."""
