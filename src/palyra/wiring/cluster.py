"""A cluster, joined: the state on its server, daemons' leases, and an executor that sends calls to nodes.

Nothing of `palyra.cluster` is imported unless `[cluster]` says so: it is an extra.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palyra.config.schema import Config
from palyra.engine.ports import Clock, Executor, Owners
from palyra.errors import ConfigError, StateError
from palyra.journal.acts import Act, ActKind, record_act
from palyra.state.writer import Writer
from palyra.wiring.owners import ProcessOwners

if TYPE_CHECKING:
    from palyra.cluster.blobs import Blobs
    from palyra.cluster.dispatching import ClusterExecutor
    from palyra.cluster.leases import Leases
    from palyra.cluster.sigv4 import Credentials
    from palyra.config.cluster import BlobsConfig
    from palyra.vault.store import Vault

log = logging.getLogger("palyra.cluster")
LOOK_S = 2.0
LOST_S = 0.5
INSTALL = "In a checkout of Palyra: pip install '.[cluster]'"


def open_state(root: Path, config: Config, *, passphrase: bytes | None) -> Writer:
    """The home's own database, or the cluster's."""
    if not config.cluster.database:
        return Writer.open(root, passphrase=passphrase)
    try:
        from palyra.cluster.opening import open_writer
    except ImportError as error:
        raise ConfigError(f"[cluster] needs {error.name}, which is not installed.", INSTALL) from error
    return open_writer(config.cluster.database, root, passphrase=passphrase, segments=config.cluster.segments)


def owners_of(config: Config, writer: Writer, now_unix_ms: Callable[[], int]) -> ProcessOwners | Leases:
    if not config.cluster.database:
        return ProcessOwners(writer.home.lock)
    from palyra.cluster.leases import Leases

    leases = Leases(writer, ProcessOwners(), now_unix_ms)
    leases.renew()
    return leases


class ClusterDoor:
    """Keeps this daemon known to the others and the nodes known to it. `executor` is the engine's."""

    def __init__(
        self,
        config: Config,
        writer: Writer,
        owners: Owners,
        here: Executor,
        *,
        new_id: Callable[[], str],
        now_unix_ms: Callable[[], int],
        policy_number: Callable[[], int],
        secret: Callable[[str], bytes | None],
    ) -> None:
        """`secret`: of the vault, by its name."""
        self.executor: Executor = here
        self._config, self._writer, self._owners, self._now = config.cluster, writer, owners, now_unix_ms
        self._tasks: list[asyncio.Task[None]] = []
        self._link: Any = None
        if config.cluster.nodes:
            from palyra.cluster.leases import Leases

            assert isinstance(owners, Leases), "cluster.nodes needs cluster.database"
            self._link, self._to_nodes = _to_nodes(
                config,
                writer,
                here,
                owners,
                new_id=new_id,
                now_unix_ms=now_unix_ms,
                policy_number=policy_number,
                secret=secret,
            )
            self.executor = self._to_nodes

    async def open(self) -> None:
        if self._link is not None:
            await self._link.find_nodes()
            self._tasks.append(asyncio.ensure_future(self._look()))
        if self._config.database:
            self._tasks.append(asyncio.ensure_future(self._live()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []
        if self._link is not None:
            self._to_nodes.close()
            self._link.close()

    async def nodes(self) -> list[dict[str, Any]]:
        """What each node runs, of how much."""
        if self._link is None:
            return []
        return [{"node_id": node_id, **found} for node_id, found in sorted((await self._link.busy()).items())]

    def daemons(self) -> list[dict[str, Any]]:
        """Those that said a moment ago that they live."""
        from palyra.cluster.leases import Leases

        if not isinstance(self._owners, Leases):
            return []
        return [{"boot_id": one.boot_id, "pid": one.pid} for one in self._owners.living()]

    async def drain(self, node_id: str, *, actor: str) -> int | None:
        """How much the node still runs; None when there is no such node. Journaled."""
        if self._link is None or node_id not in self._link.nodes():
            return None
        act = Act(kind=ActKind.NODE_DRAINED, actor=actor, subject=f"node/{node_id}", details={"node_id": node_id})
        self._writer.commit_now(lambda tx: record_act(tx, act, at_unix_ms=self._now()))
        left: int = await self._link.drain(node_id)
        return left

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._link.find_nodes()
            except Exception:  # Ray's own troubles are of every kind, and the next look may be luckier
                log.exception("the nodes could not be checked")

    async def _live(self) -> None:
        from palyra.cluster.leases import RENEW_S, Leases

        assert isinstance(self._owners, Leases)
        pause_s = RENEW_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                self._owners.renew()
                pause_s = RENEW_S
            except StateError as error:
                if pause_s == RENEW_S:
                    log.critical("this daemon can no longer renew its lease: %s", error.detail)
                pause_s = LOST_S  # a server that comes back must hear of it before somebody takes it for dead


def _to_nodes(
    config: Config,
    writer: Writer,
    here: Executor,
    leases: Leases,
    *,
    new_id: Callable[[], str],
    now_unix_ms: Callable[[], int],
    policy_number: Callable[[], int],
    secret: Callable[[str], bytes | None],
) -> tuple[Any, ClusterExecutor]:
    from palyra.cluster.ray_machine import Machine

    root = writer.home.root
    Machine(state=root / "state", run=root / "run").take_environment()
    try:
        from palyra.cluster.ray_link import Offer, RayLink, join_ray
    except ImportError as error:
        raise ConfigError(f"[cluster] nodes needs {error.name}, which is not installed.", INSTALL) from error
    from palyra.cluster.blob_places import open_blobs
    from palyra.cluster.dispatching import ClusterExecutor
    from palyra.cluster.placing import Placement

    cluster = config.cluster
    join_ray(cluster.nodes)
    placement = Placement()
    offer = Offer(
        vkey=writer.home.verifier.vkey,
        blobs=cluster.blobs,
        folder=cluster.node_folder,
        node_keys=cluster.node_keys,
        lines=cluster.lines,
    )
    ask = store_credentials(cluster.blobs, secret)
    link = RayLink(offer, placement, key=writer.home.key, credentials=ask if cluster.blobs.is_remote else None)
    executor = ClusterExecutor(
        link=link,
        placement=placement,
        blobs=open_blobs(cluster.blobs, ask, now_unix_ms),
        here=here,
        key=writer.home.key,
        new_id=new_id,
        now_unix_ms=now_unix_ms,
        policy_number=policy_number,
        tenure=leases,
    )
    return link, executor


def open_store(config: Config, vault: Vault, clock: Clock) -> Blobs | None:
    """The cluster's blob store; None where there is none."""
    blobs = config.cluster.blobs
    if not (blobs.folder or blobs.endpoint):
        return None
    from palyra.cluster.blob_places import open_blobs

    return open_blobs(blobs, store_credentials(blobs, store_secret(vault)), clock.now_unix_ms)


def store_secret(vault: Vault) -> Callable[[str], bytes | None]:
    """The blob store's own, by its name: scoped to a tool that no call has."""
    return lambda name: vault.value(name, principal="palyra:cluster", tool="cluster.blobs")


def store_credentials(blobs: BlobsConfig, secret: Callable[[str], bytes | None]) -> Callable[[], Credentials]:
    """Asked with every request: by the vault's secret, or from the environment's three names."""
    from palyra.cluster.sigv4 import Credentials
    from palyra.config.load import read_store_environment

    def ask() -> Credentials:
        if not blobs.secret:
            access_key, secret_key, session_token = read_store_environment()
            if not (access_key and secret_key):
                raise StateError(
                    "There are no credentials for the blob store.",
                    "Set access_key and secret in [cluster.blobs], or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
                )
            return Credentials(access_key=access_key, secret_key=secret_key, session_token=session_token)
        found = secret(blobs.secret)
        if found is None:
            raise StateError(
                f"There is no secret {blobs.secret} for the blob store in the vault.",
                f"palyra secrets set {blobs.secret} --scope tool=cluster.blobs (the value on stdin)",
            )
        return Credentials(access_key=blobs.access_key, secret_key=found.decode("utf-8", "replace").strip())

    return ask
