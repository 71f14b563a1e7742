"""Real Ray nodes, started here: calls run on them, and one that is killed loses none and runs none twice."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palyra.canon import canonical
from palyra.cluster.batches import unpack
from palyra.cluster.dispatching import ClusterExecutor
from palyra.cluster.node import REFUSED
from palyra.cluster.parcels import open_parcel, pack_parcel
from palyra.cluster.ray_link import RayLink
from palyra.cluster.token import open_token, sign_token
from palyra.launch.values import to_json
from palyra.model.outcome import Status
from palyra.signing import SigningKey
from tests.cluster.machines import CLUSTER_KEY, plan_of
from tests.cluster.ray_machines import RAYS_WARNINGS, use
from tests.conformance.arena import Kept

CALLS = int(os.environ.get("PALYRA_CLUSTER_CALLS", "500"))

pytestmark = RAYS_WARNINGS


def test_killing_a_node_amid_five_hundred_calls_loses_none_and_runs_none_twice(ray_machines, folder, workspace):
    first, second = ray_machines.add(), ray_machines.add()
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
        await asyncio.to_thread(ray_machines.kill, second)
        return await asyncio.gather(*calls), nodes

    ended, nodes = use(folder, work)
    assert len(nodes) == 2
    assert {execution.status for execution, _ in ended} == {Status.COMPLETED}
    assert [output for _, output in ended] == [f"{number}\n" for number in range(CALLS)]
    effects = {path.name: path.read_text().count("\n") for path in (workspace / "effects").iterdir()}
    assert effects == {str(number): 1 for number in range(CALLS)}
    assert {execution.ran.node_id for execution, _ in ended} == nodes
    ray_machines.kill(first)


@pytest.mark.parametrize("lines", [True, False])
def test_output_comes_as_it_is_written_and_a_cancelled_call_is_killed_there(ray_machines, folder, workspace, lines):
    """On a line of its own, and by Ray."""
    node = ray_machines.add()

    async def work(executor: ClusterExecutor, link: RayLink) -> tuple[str, list[Path]]:
        output = Kept()
        task = asyncio.ensure_future(executor.run(plan_of(workspace, "echo first; sleep 60; echo never > x"), output))
        async with asyncio.timeout(60):
            while output.stdout != "first\n":
                await asyncio.sleep(0.02)
            assert bool(link._lines) is lines
            task.cancel()
            await asyncio.wait([task])
            while any(one["busy"] for one in (await link.busy()).values()):
                await asyncio.sleep(0.02)
        return output.stdout, list(workspace.iterdir())

    assert use(folder, work, lines=lines) == ("first\n", [])
    ray_machines.kill(node)


def test_a_drained_node_finishes_what_it_has_and_gets_nothing_more(ray_machines, folder, workspace):
    nodes = [ray_machines.add(), ray_machines.add()]

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
        ray_machines.kill(node)


# ── attacks ──────────────────────────────────────────────────────────────────


def test_a_forged_or_replayed_order_straight_to_the_actor_is_refused(ray_machines, folder, workspace):
    """Whoever speaks to Ray reaches the actor; it believes the cluster's signature alone."""
    node = ray_machines.add()

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
    ray_machines.kill(node)


def test_a_program_on_a_node_reaches_neither_rays_ports_nor_its_sockets_nor_any_key(ray_machines, folder, workspace):
    node = ray_machines.add()
    port = int(ray_machines.cluster.address.rpartition(":")[2])
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
    ray_machines.kill(node)


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
def test_a_client_without_the_token_does_not_get_in(ray_machines, token):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment = {**kept, **({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"HOME": "/nowhere"})}
    argv = [sys.executable, "-c", _INTRUDE, ray_machines.cluster.address]
    try:
        done = subprocess.run(argv, env=environment, capture_output=True, timeout=15, text=True)
    except subprocess.TimeoutExpired:
        return  # it was never let in
    assert "in" not in done.stdout.split(), done.stdout


def test_a_node_that_comes_back_with_another_key_is_not_used(ray_machines, folder, workspace):
    """Somebody who may speak to Ray kills the actor and puts his own in its place."""
    import ray

    node = ray_machines.add()

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
    ray_machines.kill(node)


def _actor_state(node_id: str) -> str:
    import ray

    try:
        ray.get_actor(f"palyra-node-{node_id}", namespace="palyra")
    except ValueError:
        return "gone"
    return "there"
