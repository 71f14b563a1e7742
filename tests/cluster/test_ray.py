"""Real Ray nodes, started here: calls run on them, and one that is killed loses none and runs none twice."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from palyra.cluster.blobs import BlobFolder
from palyra.cluster.dispatching import ClusterExecutor
from palyra.cluster.placing import Placement
from palyra.cluster.ray_link import Offer, RayLink
from palyra.config.cluster import BlobsConfig
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.outcome import Status
from palyra.signing import NoteVerifier
from tests.cluster.machines import CLUSTER_KEY, make_workspace, plan_of
from tests.conformance.arena import Kept, host, require
from tests.journaling import ulid

CALLS = int(os.environ.get("PALYRA_CLUSTER_CALLS", "500"))
VKEY = NoteVerifier("palyra.cluster/test", CLUSTER_KEY.public).vkey
SMALL = {"object_store_memory": 80 << 20}

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray's own, at its end
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@dataclass
class Machines:
    cluster: Any

    def add(self, slots: int = 4) -> Any:
        return self.cluster.add_node(num_cpus=1, resources={"tier_c": slots}, **SMALL)

    def kill(self, node: Any) -> None:
        """Without a word: its processes are gone from one moment to the next."""
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    require(Tier.C)
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL})
    ray.init(address=cluster.address, namespace="palyra", log_to_driver=False, configure_logging=False)
    yield Machines(cluster)
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture
def folder() -> Iterator[Path]:
    made = make_workspace()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def workspace() -> Iterator[Path]:
    made = make_workspace()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@asynccontextmanager
async def daemon(folder: Path) -> AsyncIterator[tuple[ClusterExecutor, RayLink]]:
    placement = Placement()
    kept = BlobsConfig(folder=str(folder / "blobs"))
    link = RayLink(Offer(vkey=VKEY, blobs=kept, folder=str(folder / "nodes")), placement, key=CLUSTER_KEY)
    await link.find_nodes()
    here = ProcessExecutor(host())
    yield (
        ClusterExecutor(
            link=link,
            placement=placement,
            blobs=BlobFolder(folder / "blobs"),
            here=here,
            key=CLUSTER_KEY,
            new_id=ulid,
            now_unix_ms=lambda: time.time_ns() // 1_000_000,
            policy_number=lambda: 0,
        ),
        link,
    )
    await here.close()


def use(folder: Path, work: Callable[[ClusterExecutor, RayLink], Awaitable[Any]]) -> Any:
    async def all_of_it() -> Any:
        async with daemon(folder) as (executor, link):
            return await work(executor, link)

    return asyncio.run(all_of_it())


def test_killing_a_node_amid_five_hundred_calls_loses_none_and_runs_none_twice(machines, folder, workspace):
    first, second = machines.add(), machines.add()
    (workspace / "effects").mkdir()

    async def work(executor: ClusterExecutor, link: RayLink) -> tuple[list[Any], set[str]]:
        ended = 0
        nodes = set(link.nodes())

        async def one(number: int) -> Any:
            nonlocal ended
            script = f"echo {number}; echo $$ >> effects/{number}; sleep 0.02"
            execution = await executor.run(plan_of(workspace, script), output := Kept())
            ended += 1
            return execution, output.stdout

        calls = [asyncio.ensure_future(one(number)) for number in range(CALLS)]
        while ended < CALLS // 4:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(machines.kill, second)
        return await asyncio.gather(*calls), nodes

    ended, nodes = use(folder, work)
    assert len(nodes) == 2
    assert {execution.status for execution, _ in ended} == {Status.COMPLETED}
    assert [output for _, output in ended] == [f"{number}\n" for number in range(CALLS)]
    effects = {path.name: path.read_text().count("\n") for path in (workspace / "effects").iterdir()}
    assert effects == {str(number): 1 for number in range(CALLS)}
    assert {execution.ran.node_id for execution, _ in ended} == nodes
    machines.kill(first)


def test_output_comes_as_it_is_written_and_a_cancelled_call_is_killed_there(machines, folder, workspace):
    node = machines.add()

    async def work(executor: ClusterExecutor, link: RayLink) -> tuple[str, list[Path]]:
        output = Kept()
        task = asyncio.ensure_future(executor.run(plan_of(workspace, "echo first; sleep 60; echo never > x"), output))
        async with asyncio.timeout(60):
            while output.stdout != "first\n":
                await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.wait([task])
            while any(one["busy"] for one in (await link.busy()).values()):
                await asyncio.sleep(0.02)
        return output.stdout, list(workspace.iterdir())

    assert use(folder, work) == ("first\n", [])
    machines.kill(node)


def test_a_drained_node_finishes_what_it_has_and_gets_nothing_more(machines, folder, workspace):
    nodes = [machines.add(), machines.add()]

    async def work(executor: ClusterExecutor, link: RayLink) -> tuple[set[str], str]:
        running = asyncio.ensure_future(executor.run(plan_of(workspace, "sleep 1; echo done"), output := Kept()))
        async with asyncio.timeout(60):
            while not (busy := [name for name, one in (await link.busy()).items() if one["busy"]]):
                await asyncio.sleep(0.02)
        assert await link.drain(busy[0]) == 1
        others = [await executor.run(plan_of(workspace, "true"), Kept()) for _ in range(3)]
        await running
        return {execution.ran.node_id for execution in others} - {busy[0]}, output.stdout

    other, output = use(folder, work)
    assert (len(other), output) == (1, "done\n")
    for node in nodes:
        machines.kill(node)
