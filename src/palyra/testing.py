"""Fakes for every port of the engine, for our tests and yours. No disk, no clock, no process.

    ports = fake_ports(executor=FakeExecutor(stdout=b"hello"))
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))

Rules: a fake keeps the promise of its port (the journal refuses a spent budget and a known id, as the real one does)
and records what it was given, so that a test can compare whole values. Policies are the real ones: Cedar is pure.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from palyra.budget.ledger import Ledger, Share
from palyra.canon import sha256_hex
from palyra.config.schema import Config
from palyra.engine.ports import Ports, Sink, Source
from palyra.engine.runs import Run, start_run
from palyra.errors import DuplicateCall, Reason, Rejected
from palyra.journal.chain import entry_bytes
from palyra.model.call import Door, OperatorGrant, RequestContext, parse_principal
from palyra.model.changes import Snapshot
from palyra.model.host import BubblewrapFacts, HostFacts, Platform
from palyra.model.outcome import ArtifactRef, BudgetView, Execution, Status, StreamName, Usage
from palyra.model.plan import ProcessPlan
from palyra.model.record import Closing, Intent, Opening, Owner, Receipt, Recorded, RunSpec, StoredCall
from palyra.model.sights import ExecutableSight, LookRequest, PathSight, Sights, WorkspaceSight
from palyra.policy.bundle import PolicyBundle
from palyra.policy.store import PolicyStore
from palyra.signing import SigningKey
from palyra.testing_approvals import FakeApprover
from palyra.testing_background import FakeBackground
from palyra.testing_guests import FakeGuests, FakeGuestStorage, FakeSkills
from palyra.testing_network import FakeFetcher as FakeFetcher
from palyra.testing_network import FakeSecrets as FakeSecrets
from palyra.testing_runs import FakeRunFacts
from palyra.values import dataclass

EPOCH_MS = 1_700_000_000_000
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

LINUX = HostFacts(
    platform=Platform.LINUX,
    machine="x86_64",
    kernel="6.18.0",
    uid=1000,
    gid=1000,
    shell="/bin/sh",
    bubblewrap=BubblewrapFacts(path="/usr/bin/bwrap", version="0.8.0", disable_userns=True),
    home="/home/tester",
    state_home="/home/tester/.local/share/palyra",
)
"""A plain user's machine on which everything works."""


class FakeClock:
    """Stands still until it is told to move."""

    def __init__(self, now_unix_ms: int = EPOCH_MS) -> None:
        self.now = now_unix_ms

    def now_unix_ms(self) -> int:
        return self.now

    def monotonic_us(self) -> int:
        return self.now * 1000

    def advance(self, milliseconds: int) -> None:
        self.now += milliseconds


class FakeIds:
    """Ids in order: …01, …02; random bytes that repeat from run to run."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def ulid(self) -> str:
        number = next(self._count)
        return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))

    def random_bytes(self, count: int) -> bytes:
        return next(self._count).to_bytes(8, "big").rjust(count, b"\x2a")[-count:]


class FakeLook:
    """A disk on which every program is below /usr/bin and every path is where it says, unless told otherwise."""

    def __init__(
        self,
        *,
        missing: frozenset[str] = frozenset(),
        links: Mapping[str, str] | None = None,
        writable: frozenset[str] = frozenset(),
        shebangs: Mapping[str, str] | None = None,
        problem: str = "",
    ) -> None:
        self.missing = missing
        self.links = dict(links or {})
        self.writable = writable
        self.shebangs = dict(shebangs or {})
        self.problem = problem
        self.new_names: tuple[str, ...] = ()
        """Guarded names that the program will have made by the end of the call."""
        self.snapshots: list[Snapshot] = []
        """What successive looks at the workspace will show."""
        self.requests: list[LookRequest] = []

    def appeared(self, workspace: WorkspaceSight) -> tuple[str, ...]:
        return self.new_names

    def created(self, workspace: WorkspaceSight, *, during_unix_ms: range) -> Mapping[str, str]:
        return {}

    def present(self, paths: Sequence[str]) -> Mapping[str, str]:
        return {path: self.links.get(path, path) for path in paths if path not in self.missing}

    def snapshot(self, workspace: str) -> Snapshot:
        return self.snapshots.pop(0) if self.snapshots else Snapshot()

    def look(self, request: LookRequest) -> Sights:
        self.requests.append(request)
        cwd = self._resolve(request, request.cwd or ".")
        return Sights(
            workspace=WorkspaceSight(
                path="" if self.problem else request.workspace, problem=self.problem, owner_uid=1000
            ),
            cwd=PathSight(argument=-1, text=request.cwd, resolved=cwd, exists=True),
            executable=self._executable(request.command),
            also=tuple(self._executable(name) for name in request.also),
            paths=tuple(
                PathSight(argument=c.argument, text=c.text, resolved=self._resolve(request, c.text), exists=True)
                for c in request.candidates
                if not c.must_exist or c.text in self.links
            ),
        )

    def _executable(self, name: str) -> ExecutableSight:
        if name in self.missing:
            return ExecutableSight(name=name, path="")
        return ExecutableSight(
            name=name,
            path=f"/usr/bin/{name}",
            sha256=sha256_hex(name.encode()),
            agent_writable=name in self.writable,
            shebang=self.shebangs.get(name, ""),
        )

    def _resolve(self, request: LookRequest, text: str) -> str:
        if text in self.links:
            return self.links[text]
        return posixpath.normpath(posixpath.join(request.workspace, request.cwd, text))


@dataclass
class FakeExecutor:
    """A canned execution: feeds its output to the sink and ends as told. `plans` are those it was given."""

    stdout: bytes = b""
    stderr: bytes = b""
    execution: Execution = field(
        default_factory=lambda: Execution(status=Status.COMPLETED, exit_code=0, usage=Usage(wall_us=1000, cpu_us=500))
    )
    during: Callable[[], Any] | None = None
    """Called, and awaited, while the program "runs"."""
    is_alone: bool = False
    """As where no other program runs: a sink that has work for that time is told."""
    plans: list[ProcessPlan] = field(default_factory=list)

    async def run(self, plan: ProcessPlan, sink: Sink, source: Source | None = None, **_: object) -> Execution:
        self.plans.append(plan)
        while_running = getattr(sink, "while_running", None)
        if self.is_alone and while_running is not None:
            while_running()
        for stream, data in ((StreamName.STDOUT, self.stdout), (StreamName.STDERR, self.stderr)):
            for at in range(0, len(data), 4096):
                sink.feed(stream, data[at : at + 4096])
        if self.during is not None:
            await self.during()
        return replace(self.execution, stdout_bytes=len(self.stdout), stderr_bytes=len(self.stderr))


class FakeJournal:
    """In memory, with the real one's promises: budget, unique ids, an entry for everything."""

    def __init__(self) -> None:
        self.openings: list[Opening] = []
        self.closings: list[Closing] = []
        self.down: Exception | None = None
        """Set to a StateError to see what the engine does without a journal."""
        self._budgets: dict[str, list[int]] = {}
        self._entries = 0

    async def open_call(self, opening: Opening) -> Recorded:
        self._check()
        if await self.find_call(opening.call_id) is not None:
            raise DuplicateCall(opening.call_id)
        row = self._row(opening.run.run_id, opening.run.calls_max, opening.run.attempts_max)
        if row[0] >= row[1]:
            raise Rejected(Reason.BUDGET_SPENT, f"This run has used {row[0]} of {row[1]} calls.")
        row[0] += 1
        self.openings.append(opening)
        return self._recorded(row)

    async def close_call(self, closing: Closing) -> Recorded:
        self._check()
        row = self._row(closing.run.run_id, closing.run.calls_max, closing.run.attempts_max)
        if not closing.opened:
            row[2] += 1
        self.closings.append(closing)
        return self._recorded(row)

    def close_now(self, closing: Closing) -> Recorded | None:
        return None  # so that what a test makes of `close_call` is what happens

    async def find_call(self, call_id: str) -> StoredCall | None:
        closed = next((c for c in self.closings if c.call_id == call_id and c.keep_call), None)
        opened = next((o for o in self.openings if o.call_id == call_id), None)
        found = closed or opened
        if found is None:
            return None
        return StoredCall(
            call_id=call_id,
            run_id=found.run.run_id,
            tool=found.tool,
            principal=found.principal,
            input_sha256=found.input_sha256,
            status=closed.status if closed else "open",
            reason=closed.reason if closed else None,
            owner=opened.owner if opened else None,
            outcome=closed.outcome if closed else b"",
            details=opened.details if opened else b"",
            intent_index=0 if opened else None,
            result_index=1 if closed else None,
            opened_unix_ms=opened.opened_unix_ms if opened else EPOCH_MS,
            recorded=self._recorded(self._row(found.run.run_id, 0, 0)) if closed else None,
        )

    async def budget(self, run_id: str) -> Ledger | None:
        row = self._budgets.get(run_id)
        if row is None:
            return None
        return Ledger(calls_used=row[0], calls_max=row[1], attempts_used=row[2], attempts_max=row[3])

    async def share(self, run: RunSpec) -> Share | None:
        return None

    async def find_intents(self, calls: Sequence[StoredCall]) -> Mapping[str, Intent]:
        kept = [o for o in self.openings if o.call_id in {call.call_id for call in calls}]
        bodies = [entry_bytes(o.entry, index=0, sequence=0, at_unix_ms=o.opened_unix_ms) for o in kept]
        return {o.call_id: Intent(body=body, details=o.details) for o, body in zip(kept, bodies, strict=True)}

    async def open_calls(self) -> Sequence[StoredCall]:
        closed = {c.call_id for c in self.closings}
        found = [await self.find_call(o.call_id) for o in self.openings if o.call_id not in closed]
        return [call for call in found if call is not None]

    def _check(self) -> None:
        if self.down is not None:
            raise self.down

    def _row(self, run_id: str, calls_max: int, attempts_max: int) -> list[int]:
        return self._budgets.setdefault(run_id, [0, calls_max, 0, attempts_max])

    def _recorded(self, row: list[int]) -> Recorded:
        receipt = Receipt(index=self._entries, tree_size=self._entries + 1, checkpoint="fake")
        self._entries += 1
        view = BudgetView(calls_used=row[0], calls_max=row[1], attempts_used=row[2], attempts_max=row[3])
        return Recorded(receipt=receipt, budget=view)


@dataclass
class FakeOwners:
    owner: Owner = field(default_factory=lambda: Owner("boot", 1, 1))
    alive: frozenset[Owner] = frozenset()

    def me(self) -> Owner:
        return self.owner

    def is_alive(self, owner: Owner) -> bool:
        return owner in self.alive or owner == self.owner

    def is_gone(self, owner: Owner) -> bool:
        return not self.is_alive(owner)


@dataclass
class FakePolicies:
    bundle: PolicyBundle = field(default_factory=lambda: PolicyStore("standard", None).current())

    def current(self) -> PolicyBundle:
        return self.bundle

    def at(self, version: str | None) -> PolicyBundle:
        return self.bundle


class FakeArtifacts:
    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, ArtifactRef, bytes]] = {}

    async def put(self, run_id: str, name: str, data: bytes) -> ArtifactRef:
        ref = ArtifactRef(
            artifact_id=f"{len(self.kept):026d}", sha256=sha256_hex(data), size_bytes=len(data), name=name
        )
        self.kept[ref.artifact_id] = (run_id, ref, data)
        return ref

    async def read(self, run_id: str, artifact_id: str) -> tuple[ArtifactRef, bytes]:
        owner, ref, data = self.kept.get(artifact_id, ("", None, b""))
        if ref is None or owner != run_id:
            raise Rejected(Reason.BAD_ARGUMENTS, "This run has no such artifact.")
        return ref, data


def fake_ports(**given: Any) -> Ports:
    """A whole board of fakes; name the ports you care about."""
    defaults: dict[str, Any] = {
        "config": Config(),
        "host": LINUX,
        "clock": FakeClock(),
        "ids": FakeIds(),
        "look": FakeLook(),
        "executor": FakeExecutor(),
        "background": FakeBackground(),
        "journal": FakeJournal(),
        "owners": FakeOwners(),
        "approver": FakeApprover(),
        "artifacts": FakeArtifacts(),
        "secrets": FakeSecrets(),
        "fetcher": FakeFetcher(),
        "guests": FakeGuests(),
        "skills": FakeSkills(),
        "guest_storage": FakeGuestStorage(),
        "run_facts": FakeRunFacts(),
        "key": SigningKey.from_seed(bytes(32)),
    }
    policies = given.pop("policies", None) or FakePolicies()
    return Ports(**(defaults | given), policies=policies)


def fake_run(
    config: Config | None = None,
    *,
    principal: str = "agent:demo",
    workspace: str = "/workspace",
    grant: OperatorGrant | None = None,
    run_id: str = "01HF7YAT000000000000000RVN",
    **options: Any,
) -> Run:
    return start_run(
        config or Config(),
        run_id=run_id,
        context=RequestContext(principal=parse_principal(principal), door=Door.PYTHON),
        workspace=workspace,
        now_unix_ms=EPOCH_MS,
        grant=grant,
        **options,
    )
