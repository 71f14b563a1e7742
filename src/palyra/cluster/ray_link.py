"""The way to nodes through Ray: which there are, bytes to them and back, and noticing that one is gone.

Rules: one actor a machine, by name, pinned to it; it holds no slot of Ray's, because daemons and nodes count their own.
A machine says what it offers as Ray resources (`tier_c`: slots). Ray errors of every kind are `NodeLost`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

import ray
from ray._private.authentication.authentication_utils import is_token_auth_enabled
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from palyra.cluster.batches import unpack
from palyra.cluster.blob_places import to_box
from palyra.cluster.dispatching import NodeLost
from palyra.cluster.line import DaemonEnd, connect
from palyra.cluster.placing import Place, Placement
from palyra.cluster.ray_node import RayNode
from palyra.cluster.sealing import seal
from palyra.cluster.sigv4 import Credentials
from palyra.config.cluster import BlobsConfig
from palyra.errors import ConfigError, TrustError
from palyra.signing import PublicKey, SigningKey

log = logging.getLogger("palyra.cluster")
NAMESPACE = "palyra"
RESOURCE = "tier_c"
PREFIX = "palyra-node-"
HELLO_S, AGAIN_S = 60.0, 2.0
LOST = (ray.exceptions.RayError, ConnectionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What daemons tell a new node."""

    vkey: str
    blobs: BlobsConfig
    folder: str
    warm: int = 1
    lines: bool = True
    """Orders go on a connection of their own."""
    node_keys: tuple[str, ...] = ()
    """Public keys of the machines that may be nodes; empty: any that Ray brings."""


def join_ray(address: str) -> None:
    """This process as a client of the cluster; `ConfigError` when it cannot be reached, or is open to everybody."""
    if not is_token_auth_enabled():
        raise ConfigError("Ray accepts anybody here.", "Set RAY_AUTH_MODE=token on every machine.")
    if not ray.is_initialized():
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        except (*LOST, RuntimeError, OSError) as error:
            raise ConfigError(
                f"Ray cannot be reached at {address}: {error}.", "palyra cluster up starts it."
            ) from error


class RayLink:
    def __init__(
        self,
        offer: Offer,
        placement: Placement,
        *,
        key: SigningKey,
        credentials: Callable[[], Credentials] | None = None,
    ) -> None:
        """`key` is the cluster's; `credentials` are the blob store's, None where it needs none."""
        self._offer, self._placement, self._key, self._credentials = offer, placement, key, credentials
        self._locks: dict[str, Any] = {}
        self._given: dict[str, Credentials] = {}
        self._pinned: dict[str, PublicKey] = {}
        self._actors: dict[str, Any] = {}
        self._lines: dict[str, DaemonEnd] = {}

    def nodes(self) -> tuple[str, ...]:
        return tuple(self._actors)

    async def find_nodes(self) -> int:
        """Take in every machine that offers slots; returns how many there are."""
        machines = await asyncio.to_thread(ray.nodes)
        found = {
            machine["NodeID"]: int(machine["Resources"][RESOURCE])
            for machine in machines
            if machine["Alive"] and machine["Resources"].get(RESOURCE, 0) >= 1
        }
        for node_id in set(self._actors) - set(found):
            self._lose(node_id)
        await asyncio.gather(*(self._join(node_id, slots) for node_id, slots in found.items()))
        await asyncio.gather(*(self._give(node_id, place.key) for node_id, place in self._placement.places.items()))
        await self._placement.told()
        return len(self._placement.places)

    async def _join(self, node_id: str, slots: int) -> None:
        if node_id in self._actors and node_id in self._placement.places:
            return
        told = {
            "node_id": node_id,
            "slots": slots,
            "vkey": self._offer.vkey,
            "blobs": asdict(self._offer.blobs),
            "folder": self._offer.folder,
            "warm": self._offer.warm,
            "lines": self._offer.lines,
        }
        try:
            actor = await asyncio.to_thread(_actor_of, node_id, slots, json.dumps(told).encode())
            # One that was there and fell silent is asked again and again, and nobody else waits for it.
            async with asyncio.timeout(AGAIN_S if node_id in self._pinned else HELLO_S):
                hello = json.loads(await actor.hello.remote())
        except (*LOST, TimeoutError, ValueError):
            return
        key = PublicKey(bytes.fromhex(hello["public"]))
        if not self._is_welcome(node_id, key):
            return
        self._actors[node_id], self._locks[node_id] = actor, hello["lock"]
        if not await self._give(node_id, key):
            self._lose(node_id)
            return
        await self._draw_line(node_id, hello)
        self._placement.add(
            Place(
                node_id=node_id,
                key=key,
                start=str(hello["start"]),
                slots=int(hello["slots"]),
                tiers=frozenset(hello["tiers"]),
            )
        )

    def _is_welcome(self, node_id: str, key: PublicKey) -> bool:
        """A node keeps the key it first came with: whoever may speak to Ray could put another actor in its place."""
        pinned = self._pinned.setdefault(node_id, key)
        if pinned != key:
            log.error("node %s came back with a different key and is not used; its key was %s", node_id, pinned.key_id)
            return False
        if self._offer.node_keys and key.raw.hex() not in self._offer.node_keys:
            log.error("node %s has the key %s, which [cluster] node_keys does not list", node_id, key.raw.hex())
            return False
        return True

    async def _give(self, node_id: str, key: PublicKey) -> bool:
        """The blob store's credentials, when they are not those the node has: sealed, because Ray keeps what it
        carries."""
        if self._credentials is None or node_id not in self._actors:
            return True
        credentials = await asyncio.to_thread(self._credentials)
        if self._given.get(node_id) == credentials:
            return True
        try:
            box = seal(to_box(credentials), self._locks[node_id], node_id=node_id, node_key=key, key=self._key)
            taken = bool(await self._actors[node_id].trust.remote(box))
        except (*LOST, TrustError):
            return False
        if taken:
            self._given[node_id] = credentials
        return taken

    async def _draw_line(self, node_id: str, hello: dict[str, Any]) -> None:
        """Where there is no way to its port, orders go by Ray, as its questions do."""
        if (old := self._lines.pop(node_id, None)) is not None:
            old.abort()
        if not self._offer.lines or not hello["line"]:
            return
        host, port = hello["line"]
        start = str(hello["start"])
        try:
            self._lines[node_id] = await connect(str(host), int(port), node_id=node_id, node_start=start, key=self._key)
        except OSError as error:
            log.warning("there is no direct connection to node %s, so its orders go through Ray: %s", node_id, error)

    def close(self) -> None:
        for line in self._lines.values():
            line.abort()
        self._lines.clear()

    def _lose(self, node_id: str) -> None:
        if (line := self._lines.pop(node_id, None)) is not None:
            line.abort()
        self._actors.pop(node_id, None)
        self._given.pop(node_id, None)
        self._placement.lose(node_id)

    async def send(self, node_id: str, order: bytes) -> AsyncGenerator[bytes, None]:
        actor, line = self._actors.get(node_id), self._lines.get(node_id)
        if actor is None:
            raise NodeLost
        try:
            if line is not None:
                async with aclosing(line.send(order)) as told:
                    async for frame in told:
                        yield frame
                return
            handle, more, frames = unpack(await actor.begin.remote(order))
            while True:
                for frame in frames:
                    yield frame
                if not more:
                    return
                _, more, frames = unpack(await actor.more.remote(handle))
        except LOST as error:
            self._lose(node_id)
            raise NodeLost from error

    def cancel(self, node_id: str, dispatch_id: str) -> None:
        actor = self._actors.get(node_id)
        if actor is not None:
            actor.cancel.remote(dispatch_id)

    async def drain(self, node_id: str) -> int:
        """The node takes nothing more; how much it still runs."""
        self._placement.stop(node_id)
        actor = self._actors.get(node_id)
        try:
            return 0 if actor is None else int(await actor.drain.remote())
        except LOST:
            self._lose(node_id)
            return 0

    async def busy(self) -> dict[str, dict[str, Any]]:
        """Per node: how much it runs, of how much."""
        found = {}
        for node_id, actor in list(self._actors.items()):
            try:
                key = self._pinned[node_id].raw.hex()
                found[node_id] = {**json.loads(await actor.busy.remote()), "key": key}
            except LOST:
                self._lose(node_id)
        return found


def _actor_of(node_id: str, slots: int, told: bytes) -> Any:
    kind = ray.remote(RayNode)
    return kind.options(
        name=PREFIX + node_id,
        namespace=NAMESPACE,
        get_if_exists=True,
        lifetime="detached",
        num_cpus=0,
        max_concurrency=slots + 16,
        max_restarts=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
    ).remote(told)
