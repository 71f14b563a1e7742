"""One process, one home: joins the hands to the engine's ports for the library and the command line.

`Installation` is what a door holds: the engine and the few hands that doors read from. Opening it creates the home
on first use, probes the host (or reads the cached probe), loads the policies and closes calls that a crash left open.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from palyra.approvals.store.desk import ApprovalStore
from palyra.artifacts.store import ArtifactStore
from palyra.budget.store import BudgetStore
from palyra.config.load import Home, git_files, load_config, read_passphrase, user_home
from palyra.config.schema import Config
from palyra.engine.ports import Approver, Ports
from palyra.engine.recover import recover
from palyra.engine.walk import Engine
from palyra.guard.look import Looker
from palyra.journal.store import JournalStore
from palyra.launch.process import ProcessExecutor
from palyra.model.host import HostFacts
from palyra.policy.store import PolicyStore
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.state.writer import Writer
from palyra.values import dataclass
from palyra.vault.store import Vault
from palyra.version import __version__
from palyra.wiring.anchors import anchor, show_head
from palyra.wiring.approvals import make_approvals
from palyra.wiring.changes import note_config
from palyra.wiring.clock import SystemClock, SystemIds
from palyra.wiring.cluster import ClusterDoor, open_state, owners_of, store_secret
from palyra.wiring.created_paths import CreatedPaths
from palyra.wiring.egress import Egress, HostSecrets, Interceptor, LateFetcher, interceptor_of
from palyra.wiring.guest_door import GuestDoor
from palyra.wiring.guest_storage import GuestStore
from palyra.wiring.host import look_at_host
from palyra.wiring.known_runs import KnownRuns
from palyra.wiring.own_files import read_own_files
from palyra.wiring.owners import ProcessOwners
from palyra.wiring.processes import KeptProcesses, keeper_of
from palyra.wiring.proofs import current_proof
from palyra.wiring.run_facts import RunFactsStore
from palyra.wiring.runs import RunDesk
from palyra.wiring.skill_door import SkillDoor
from palyra.wiring.standing import StandingStore
from palyra.wiring.versions import PolicyVersions, candidate_policies
from palyra.wiring.webhook import Webhook

if TYPE_CHECKING:
    from palyra.cluster.leases import Leases
    from palyra.launch.pool import PoolSize
    from palyra.wiring.skill_acts import SkillDesk


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    home: Home
    config: Config
    config_file: Path | None
    host: HostFacts
    engine: Engine
    journal: JournalStore
    policies: PolicyStore
    versions: PolicyVersions
    background: KeptProcesses
    approvals: ApprovalStore
    runs: RunDesk
    webhook: Webhook
    writer: Writer
    executor: ProcessExecutor
    cluster: ClusterDoor
    guests: GuestDoor
    vault: Vault

    @property
    def ports(self) -> Ports:
        return self.engine.ports

    @property
    def skills(self) -> SkillDesk:
        """What an operator does with skills."""
        door = self.ports.skills
        assert isinstance(door, SkillDoor)  # joined in _board
        return door.desk(self.config, self.guests)

    async def close(self) -> None:
        try:
            await self.engine.close()
        finally:
            await self.guests.close()
            await self.cluster.close()
            await self.executor.close()
            self.background.close()
            await self.webhook.close()
            show_head(self.writer, now_unix_ms=self.ports.clock.now_unix_ms())
            self.writer.close()


async def open_installation(
    home: Home,
    *,
    config_file: str | None = None,
    owns_process: bool = False,
    one_call: bool = False,
    approver: Approver | None = None,
    ask_passphrase: Callable[[], str] | None = None,
) -> Installation:
    """`owns_process`: this process is Palyra's own (command line, daemon), so it may collect orphans.

    `one_call`: it will end after its first call, so no sandbox is started ahead of a second.
    """
    config, source = load_config(home, config_file)
    writer = open_state(home.root, config, passphrase=read_passphrase(config))
    try:
        hands = _gather(
            home,
            config,
            source,
            writer,
            owns_process=owns_process,
            one_call=one_call,
            ask_passphrase=ask_passphrase,
        )
        installation = _join(home, source, writer, hands, approver)
        anchor(writer, thorough=not one_call)
        note_config(writer, config.digest, now_unix_ms=installation.ports.clock.now_unix_ms())
        if not one_call:  # a command that decides nothing (stop, journal) must work beside a broken policy; run does it
            installation.policies.current()
            installation.vault.load()
        await installation.cluster.open()
        await recover(installation.ports)
        await installation.background.recover()
        await installation.approvals.expire_overdue()
    except BaseException:
        writer.close()
        raise
    return installation


def _vault_of(config: Config, writer: Writer, clock: SystemClock, ask: Callable[[], str] | None) -> Vault:
    bound = config.credentials
    return Vault(writer, config=config.vault, credentials=bound, now_unix_ms=clock.now_unix_ms, ask=ask)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hands:
    """What touches the world, before it is joined to the engine's ports."""

    config: Config
    host: HostFacts
    clock: SystemClock
    ids: SystemIds
    owners: ProcessOwners | Leases
    background: KeptProcesses
    vault: Vault
    webhook: Webhook
    approvals: ApprovalStore
    known_runs: KnownRuns
    journal: JournalStore
    versions: PolicyVersions
    policies: PolicyStore
    executor: ProcessExecutor
    cluster: ClusterDoor
    interceptor: Interceptor | None
    guests: GuestDoor
    skills: SkillDoor


def _gather(
    home: Home,
    config: Config,
    source: Path | None,
    writer: Writer,
    *,
    owns_process: bool,
    one_call: bool,
    ask_passphrase: Callable[[], str] | None,
) -> _Hands:
    clock = SystemClock()
    owners = owners_of(config, writer, clock.now_unix_ms)
    ids = SystemIds(clock)
    host = look_at_host(home, config, owns_process=owns_process)
    keeping = keeper_of(home.root, source)
    vault = _vault_of(config, writer, clock, ask_passphrase)
    webhook = Webhook(config.approvals, vault.known_values, clock.now_unix_ms)
    approvals = make_approvals(writer, config.approvals, clock=clock, ids=ids, webhook=webhook)
    versions, known_runs = PolicyVersions(writer, clock), KnownRuns(writer)
    interceptor = interceptor_of(config, clock.now_unix_ms)
    executor = _executor(config, host, interceptor, one_call=one_call)
    return _Hands(
        config=config,
        host=host,
        clock=clock,
        ids=ids,
        owners=owners,
        background=KeptProcesses(writer=writer, keeping=keeping, logs=home.root / "logs", owners=owners, clock=clock),
        vault=vault,
        webhook=webhook,
        approvals=approvals,
        known_runs=known_runs,
        journal=JournalStore(writer, BudgetStore(), approvals, known_runs),
        versions=versions,
        policies=PolicyStore(config.posture, home.policies, versions=versions, strict=config.policy.strict),
        executor=executor,
        cluster=ClusterDoor(
            config,
            writer,
            owners,
            executor,
            new_id=ids.ulid,
            now_unix_ms=clock.now_unix_ms,
            policy_number=lambda: versions.use().number,
            secret=store_secret(vault),
        ),
        interceptor=interceptor,
        guests=GuestDoor(
            executor, host, config.tool_call.wasm_runtime, home.root / "compiled", spare=0 if one_call else 1
        ),
        skills=SkillDoor(writer, clock, home.root),
    )


def _join(home: Home, source: Path | None, writer: Writer, hands: _Hands, approver: Approver | None) -> Installation:
    return Installation(
        home=home,
        config=hands.config,
        config_file=source,
        host=hands.host,
        engine=Engine(_board(home, writer, hands, approver), make_registry(BUILTIN_TOOLS).with_source(hands.skills)),
        journal=hands.journal,
        policies=hands.policies,
        versions=hands.versions,
        background=hands.background,
        approvals=hands.approvals,
        runs=RunDesk(writer, now_unix_ms=hands.clock.now_unix_ms),
        webhook=hands.webhook,
        writer=writer,
        executor=hands.executor,
        cluster=hands.cluster,
        guests=hands.guests,
        vault=hands.vault,
    )


def _board(home: Home, writer: Writer, hands: _Hands, approver: Approver | None) -> Ports:
    clock, ids = hands.clock, hands.ids
    return Ports(
        config=hands.config,
        host=hands.host,
        clock=clock,
        ids=ids,
        look=Looker(home=user_home(), state_home=str(home.root), git_files=git_files()),
        executor=hands.cluster.executor,
        background=hands.background,
        journal=hands.journal,
        owners=hands.owners,
        policies=hands.policies,
        candidate=candidate_policies(hands.config, home.policies),
        run_facts=RunFactsStore(writer, clock),
        created_paths=CreatedPaths(writer),
        standings=StandingStore(writer, BudgetStore(), clock, hands.known_runs),
        approver=approver or hands.approvals,
        artifacts=ArtifactStore(writer, new_id=ids.ulid, now_unix_ms=clock.now_unix_ms),
        secrets=hands.vault,
        fetcher=LateFetcher(hands.config),
        host_credentials=HostSecrets(hands.vault),
        intercepts=hands.interceptor,
        guests=hands.guests,
        skills=hands.skills,
        guest_storage=GuestStore(writer),
        key=writer.home.key,
        own_files=read_own_files(),
        proven=current_proof(home.root, writer.home.key.public, hands.host, version=__version__),
    )


def _executor(config: Config, host: HostFacts, interceptor: Interceptor | None, *, one_call: bool) -> ProcessExecutor:
    warm = 0 if one_call else config.tool_call.process_runner.warm_sandboxes
    return ProcessExecutor(host, warm=_pool_size(warm) if warm else None, egress=Egress(config, interceptor))


def _pool_size(warm: int) -> PoolSize:
    from palyra.launch.pool import PoolSize

    return PoolSize(per_template=warm, total=4 * warm)
