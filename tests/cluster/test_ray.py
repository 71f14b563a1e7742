"""Real Ray nodes, started here: calls run on them, and one that is killed loses none and runs none twice."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from palyra.canon import canonical
from palyra.cluster.batches import unpack
from palyra.cluster.blob_places import open_blobs
from palyra.cluster.dispatching import ClusterExecutor
from palyra.cluster.node import REFUSED
from palyra.cluster.parcels import open_parcel, pack_parcel
from palyra.cluster.placing import Placement
from palyra.cluster.ray_link import Offer, RayLink
from palyra.cluster.sigv4 import Credentials
from palyra.cluster.token import open_token, sign_token
from palyra.config.cluster import BlobsConfig
from palyra.launch.process import ProcessExecutor
from palyra.launch.values import to_json
from palyra.model.call import Tier
from palyra.model.outcome import Status
from palyra.signing import NoteVerifier, SigningKey
from tests.cluster.machines import CLUSTER_KEY, Alive, make_workspace, plan_of
from tests.cluster.stores_of_blobs import now_unix_ms, s3_server
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
async def daemon(
    folder: Path, kept: BlobsConfig | None = None, credentials: Callable[[], Credentials] | None = None
) -> AsyncIterator[tuple[ClusterExecutor, RayLink]]:
    """Blobs lie in the folder, unless `kept` says elsewhere."""
    placement = Placement()
    kept = kept or BlobsConfig(folder=str(folder / "blobs"))
    offer = Offer(vkey=VKEY, blobs=kept, folder=str(folder / "nodes"))
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
    await here.close()


def _none() -> Credentials:
    raise AssertionError("a folder needs no credentials")


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


def test_workspaces_cross_to_real_nodes_and_back_through_an_s3_store(machines, folder, workspace):
    """Nodes see no folder of the daemon's: a signed request by a sealed key brings every file, and takes every change.
    What somebody removed from the store is put again, and a node that is killed loses nothing."""
    nodes = [machines.add(2), machines.add(2)]
    (workspace / "deep" / "er").mkdir(parents=True)
    (workspace / "deep" / "er" / "large").write_bytes(os.urandom(1 << 20))
    (workspace / "link").symlink_to("deep/er/large")
    given = hashlib.sha256((workspace / "link").read_bytes()).hexdigest()

    def script(number: int) -> str:
        return f"sha256sum < link; echo {number} > made-{number}; head -c 100000 link > half-{number}; sleep 0.05"

    with s3_server() as server:
        store, user = server.bucket("ray"), server.user()
        server.check_signatures()
        kept = BlobsConfig(endpoint=store.endpoint, bucket=store.bucket, prefix=store.prefix)

        async def calls(executor: ClusterExecutor, numbers: range) -> list[tuple[Any, str]]:
            async def one(number: int) -> tuple[Any, str]:
                execution = await executor.run(plan_of(workspace, script(number)), output := Kept())
                return execution, output.stdout

            return list(await asyncio.gather(*map(one, numbers)))

        async def scenario() -> tuple[list[tuple[Any, str]], int]:
            async with daemon(folder, kept, lambda: user) as (executor, _):
                ended = await calls(executor, range(8))
                with closing(open_blobs(kept, lambda: user, now_unix_ms)) as blobs:
                    names = [name for name, *_ in blobs.kept()]
                    for name in names:
                        blobs.delete(name)
                (workspace / "new").write_text("the tree is another now")
                ended += await calls(executor, range(8, 16))
                last = asyncio.ensure_future(calls(executor, range(16, 32)))
                await asyncio.sleep(0.2)
                await asyncio.to_thread(machines.kill, nodes[1])
                ended += await last
                executor.close()
                return ended, len(names)

        ended, objects = asyncio.run(scenario())
    assert [(execution.exit_code, said) for execution, said in ended] == [(0, f"{given}  -\n")] * 32
    assert len({execution.ran.node_id for execution, _ in ended}) == 2
    assert objects > 8  # trees and files, by their digests
    assert [(workspace / f"made-{number}").read_text() for number in range(32)] == [f"{n}\n" for n in range(32)]
    assert {(workspace / f"half-{number}").stat().st_size for number in range(32)} == {100_000}
    assert not (folder / "blobs").exists()
    told = b"".join(path.read_bytes() for path in (folder / "nodes").rglob("*") if path.is_file())
    assert user.secret_key.encode() not in told
    machines.kill(nodes[0])


# ── attacks ──────────────────────────────────────────────────────────────────


def test_a_forged_or_replayed_order_straight_to_the_actor_is_refused(machines, folder, workspace):
    """Whoever speaks to Ray reaches the actor; it believes the cluster's signature alone."""
    node = machines.add()

    async def work(executor: ClusterExecutor, link: RayLink) -> list[bytes]:
        sent: list[tuple[str, bytes]] = []
        send = link.send

        def listening(node_id: str, order: bytes) -> Any:
            sent.append((node_id, order))
            return send(node_id, order)

        link.send = listening  # type: ignore[method-assign]
        execution = await executor.run(plan_of(workspace, "echo once >> effect"), Kept())
        assert execution.exit_code == 0
        ((node_id, order),) = sent
        token, plan = open_parcel(order)
        dispatch = open_token(
            token, CLUSTER_KEY.public, node_id=node_id, node_start=link._placement.places[node_id].start, now_unix_ms=0
        )
        stranger = SigningKey(os.urandom(32))
        forged = pack_parcel(sign_token(replace(dispatch, epoch=9), stranger), plan)
        early = pack_parcel(sign_token(replace(dispatch, epoch=0), CLUSTER_KEY), plan)
        other = pack_parcel(token, canonical(to_json(plan_of(workspace, "echo other >> effect"))))
        actor = link._actors[node_id]
        return [unpack(await actor.begin.remote(one))[2][0] for one in (order, forged, early, other, b"{}")]

    answers = use(folder, work)
    assert all(answer.startswith(REFUSED) for answer in answers), answers
    assert (workspace / "effect").read_text() == "once\n"
    machines.kill(node)


def test_a_program_on_a_node_reaches_neither_rays_ports_nor_its_sockets_nor_any_key(machines, folder, workspace):
    node = machines.add()
    port = int(machines.cluster.address.rpartition(":")[2])
    script = f"""
        (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached gcs
        cat {folder}/nodes/node.key {folder}/nodes/*/key 2>/dev/null
        ls {folder}/blobs {folder}/nodes 2>/dev/null
        ls /tmp/ray 2>/dev/null
        cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep RAY_
        grep -a . /proc/net/unix 2>/dev/null | grep -i ray
        echo done
    """

    async def work(executor: ClusterExecutor, link: RayLink) -> str:
        plan = plan_of(workspace, "true")
        bash = replace(plan, argv=("bash", "-c", script), program="/bin/bash")
        execution = await executor.run(bash, output := Kept())
        assert (execution.exit_code, execution.ran is not None) == (0, True), execution
        return output.stdout

    assert (folder / "nodes").mkdir(exist_ok=True, parents=True) is None
    assert use(folder, work) == "done\n"
    assert (folder / "nodes" / "node.key").stat().st_mode & 0o777 == 0o600
    machines.kill(node)


_INTRUDE = """
import os, sys
import ray
try:
    ray.init(address=sys.argv[1], namespace="palyra", log_to_driver=False, configure_logging=False)
    print("in", [name for name in ray.util.list_named_actors()])
except BaseException as error:
    print("out")
"""


@pytest.mark.parametrize("token", ["", "wrong" * 10])
def test_a_client_without_the_token_does_not_get_in(machines, token):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment = {**kept, **({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"HOME": "/nowhere"})}
    argv = [sys.executable, "-c", _INTRUDE, machines.cluster.address]
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, timeout=15, text=True)
    except subprocess.TimeoutExpired:
        return  # it was never let in
    assert "in" not in done.stdout.split(), done.stdout


def test_a_node_that_comes_back_with_another_key_is_not_used(machines, folder, workspace):
    """Somebody who may speak to Ray kills the actor and puts his own in its place."""
    import ray

    node = machines.add()

    async def work(executor: ClusterExecutor, link: RayLink) -> tuple[int, int, int]:
        (node_id,) = link.nodes()
        before = len(link._placement.places)
        ray.kill(link._actors[node_id])
        link._lose(node_id)
        (folder / "nodes" / "node.key").unlink()  # the new one makes another
        async with asyncio.timeout(60):
            while "gone" not in await asyncio.to_thread(_actor_state, node_id):
                await asyncio.sleep(0.1)
        await link.find_nodes()
        swapped = len(link._placement.places)
        link._pinned.clear()
        link._offer = replace(link._offer, node_keys=("0" * 64,))
        await link.find_nodes()
        return before, swapped, len(link._placement.places)

    assert use(folder, work) == (1, 0, 0)
    machines.kill(node)


def _actor_state(node_id: str) -> str:
    import ray

    try:
        ray.get_actor(f"palyra-node-{node_id}", namespace="palyra")
    except ValueError:
        return "gone"
    return "there"
