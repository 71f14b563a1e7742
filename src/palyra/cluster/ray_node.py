"""The actor that is a node, on the machine it is pinned to: Ray carries bytes to it and back, and nothing else.

It is started by whoever joins the cluster (cluster/ray_link). Ray is no wall: whoever may speak to it may run code on
its machines, so it stands behind token authentication on a private interface; a node believes signed tokens alone.
"""

from __future__ import annotations

import gc
import json
import time
from pathlib import Path
from typing import Any

import ray.util

from palyra.cluster.batches import Batches
from palyra.cluster.blob_places import from_box, open_blobs
from palyra.cluster.copies import Copies
from palyra.cluster.line import NodeEnds
from palyra.cluster.node import Node
from palyra.cluster.sealing import Lock
from palyra.cluster.sigv4 import Credentials
from palyra.config.cluster import BlobsConfig
from palyra.errors import StateError, TrustError
from palyra.launch.pool import PoolSize
from palyra.launch.process import ProcessExecutor
from palyra.sandbox.probe import probe
from palyra.signing import SigningKey, parse_vkey
from palyra.state.keyfile import create_key, read_key

KEY_FILE = "node.key"


class RayNode:
    """Told once, as JSON: its id, its slots, the cluster's key, the folders for blobs and for its own state."""

    def __init__(self, told: bytes) -> None:
        given: dict[str, Any] = json.loads(told)
        folder = Path(given["folder"]) / given["node_id"]
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        folder.chmod(0o711)  # programs of another user walk through it into their copy of the workspace
        self._warm = int(given["warm"])
        self._key = _key_of(folder.parent)
        self._slots = int(given["slots"])
        self._node_id = str(given["node_id"])
        self._cluster = parse_vkey(given["vkey"])
        self._credentials: Credentials | None = None
        self._blobs = open_blobs(BlobsConfig(**given["blobs"]), self._ask, _now_unix_ms)
        self._lock = Lock(self._node_id, self._key)
        self._folder = folder
        self._node: Node | None = None
        self._batches = Batches()
        self._host = str(ray.util.get_node_ip_address())
        self._has_lines = bool(given["lines"])
        self._line: list[str | int] = []

    async def hello(self) -> bytes:
        """Who this is; the first call makes what needs the loop."""
        node = self._made()
        if self._has_lines and not self._line:
            self._line = [self._host, await NodeEnds(node).open(self._host)]
        return json.dumps(
            {
                "line": self._line,
                "start": node.start,
                "public": self._key.public.raw.hex(),
                "slots": self._slots,
                "tiers": ["C"],
                "lock": self._lock.shown,
            }
        ).encode()

    async def trust(self, box: bytes) -> bool:
        """Credentials for the blob store, from a daemon of this cluster, sealed to this node."""
        try:
            self._credentials = from_box(self._lock.open(json.loads(box), self._cluster.key))
        except (TrustError, ValueError):
            return False
        return True

    async def begin(self, order: bytes) -> bytes:
        node = self._made()
        return await self._batches.begin(lambda frames: node.serve(order, frames))

    async def more(self, handle: str) -> bytes:
        return await self._batches.more(handle)

    async def cancel(self, dispatch_id: str) -> bool:
        return self._made().cancel(dispatch_id)

    async def drain(self) -> int:
        """Takes nothing more; how much is still running."""
        node = self._made()
        node.draining = True
        return node.busy

    async def busy(self) -> bytes:
        node = self._made()
        return json.dumps({"busy": node.busy, "slots": node.slots, "draining": node.draining}).encode()

    def _made(self) -> Node:
        if self._node is None:
            host = probe(home="", state_home=str(self._folder), search_path=(), owns_process=True)
            size = PoolSize(per_template=self._warm, total=4 * self._warm) if self._warm else None
            gc.collect()
            gc.freeze()  # all that Ray and we were started with is there for good: no call waits while it is looked at
            self._node = Node(
                node_id=self._node_id,
                key=self._key,
                cluster_key=self._cluster.key,
                blobs=self._blobs,
                copies=Copies(self._folder, self._blobs, most_idle=4 * self._slots),
                executor=ProcessExecutor(host, warm=size),
                slots=self._slots,
                now_unix_ms=_now_unix_ms,
            )
        return self._node

    def _ask(self) -> Credentials:
        if self._credentials is None:
            raise StateError("No daemon gave this node credentials for the blob store.", "Check [cluster.blobs].")
        return self._credentials


def _key_of(folder: Path) -> SigningKey:
    """The machine's own, the same after a restart, so that daemons may know it by name."""
    path = folder / KEY_FILE
    try:
        return read_key(path) if path.exists() else create_key(path)
    except FileExistsError:  # another node of this machine was quicker
        return read_key(path)


def _now_unix_ms() -> int:
    return time.time_ns() // 1_000_000
