"""Real Ray nodes for tests: a cluster of this machine, machines that come and are killed, a daemon's way to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from palyra.cluster.blob_places import open_blobs
from palyra.cluster.dispatching import ClusterExecutor
from palyra.cluster.placing import Placement
from palyra.cluster.ray_link import Offer, RayLink
from palyra.cluster.sigv4 import Credentials
from palyra.config.cluster import BlobsConfig
from palyra.launch.process import ProcessExecutor
from palyra.signing import NoteVerifier
from tests.cluster.machines import CLUSTER_KEY, Alive
from tests.cluster.stores_of_blobs import now_unix_ms
from tests.conformance.arena import host
from tests.journaling import ulid

VKEY = NoteVerifier("palyra.cluster/test", CLUSTER_KEY.public).vkey
SMALL = {"object_store_memory": 80 << 20}
RAYS_WARNINGS = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # at its end
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
"""For `pytestmark`."""


@dataclass
class Machines:
    cluster: Any

    def add(self, slots: int = 4) -> Any:
        return self.cluster.add_node(num_cpus=1, resources={"tier_c": slots}, **SMALL)

    def process_of(self, node: Any) -> int:
        """The process that is palyra's node there: a child of that raylet, of no other."""
        raylet = node.all_processes["raylet"][0].process.pid
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == raylet and b"RayNode" in (path / "cmdline").read_bytes():
                    return int(path.name)
        raise AssertionError("that node runs no actor")

    def kill(self, node: Any) -> None:
        """Without a word: its processes are gone from one moment to the next."""
        self.cluster.remove_node(node, allow_graceful=False)


@contextmanager
def ray_cluster() -> Iterator[Machines]:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL})
    ray.init(address=cluster.address, namespace="palyra", log_to_driver=False, configure_logging=False)
    try:
        yield Machines(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()


@asynccontextmanager
async def daemon(
    folder: Path,
    kept: BlobsConfig | None = None,
    credentials: Callable[[], Credentials] | None = None,
    *,
    lines: bool = True,
) -> AsyncIterator[tuple[ClusterExecutor, RayLink]]:
    """Blobs lie in the folder, unless `kept` says elsewhere."""
    placement = Placement()
    kept = kept or BlobsConfig(folder=str(folder / "blobs"))
    offer = Offer(vkey=VKEY, blobs=kept, folder=str(folder / "nodes"), lines=lines)
    link = RayLink(offer, placement, key=CLUSTER_KEY, credentials=credentials)
    await link.find_nodes()
    here = ProcessExecutor(host())
    yield (
        ClusterExecutor(
            link=link,
            placement=placement,
            blobs=open_blobs(kept, credentials or _none, now_unix_ms),
            here=here,
            key=CLUSTER_KEY,
            new_id=ulid,
            now_unix_ms=now_unix_ms,
            policy_number=lambda: 0,
            tenure=Alive(),
        ),
        link,
    )
    link.close()
    await here.close()


def _none() -> Credentials:
    raise AssertionError("a folder needs no credentials")


def use(folder: Path, work: Callable[[ClusterExecutor, RayLink], Awaitable[Any]], *, lines: bool = True) -> Any:
    async def all_of_it() -> Any:
        async with daemon(folder, lines=lines) as (executor, link):
            return await work(executor, link)

    return asyncio.run(all_of_it())
