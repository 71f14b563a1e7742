"""Real Ray nodes whose blobs lie in an S3-compatible store, and one that stands still without being dead."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from contextlib import closing
from typing import Any

from palyra.cluster import dispatching
from palyra.cluster.blob_places import open_blobs
from palyra.cluster.dispatching import ClusterExecutor
from palyra.cluster.ray_link import RayLink
from palyra.config.cluster import BlobsConfig
from tests.cluster.machines import plan_of
from tests.cluster.ray_machines import RAYS_WARNINGS, daemon, use
from tests.cluster.stores_of_blobs import now_unix_ms, s3_server
from tests.conformance.arena import Kept

pytestmark = RAYS_WARNINGS


def test_workspaces_cross_to_real_nodes_and_back_through_an_s3_store(ray_machines, folder, workspace):
    """Nodes see no folder of the daemon's: a signed request by a sealed key brings every file, and takes every change.
    What somebody removed from the store is put again, and a node that is killed loses nothing."""
    nodes = [ray_machines.add(2), ray_machines.add(2)]
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
                await asyncio.to_thread(ray_machines.kill, nodes[1])
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
    ray_machines.kill(nodes[0])


def test_a_node_that_stands_still_loses_its_calls_to_another_and_comes_back(
    ray_machines, folder, workspace, monkeypatch
):
    """Stopped, not dead: Ray sees nothing wrong with it. Its own late run counts for nothing."""
    monkeypatch.setattr(dispatching, "SLACK_MS", 1000)
    monkeypatch.setattr(dispatching, "LATE_S", 0.5)
    nodes = [ray_machines.add(2), ray_machines.add(2)]

    async def work(executor: ClusterExecutor, link: RayLink) -> tuple[Any, list[str]]:
        first = (await executor.run(plan_of(workspace, "true"), Kept())).ran.node_id
        (stopped,) = (ray_machines.process_of(node) for node in nodes if node.node_id == first)
        os.kill(stopped, signal.SIGSTOP)
        try:
            again = await executor.run(plan_of(workspace, "echo once >> effect", wall_ms=1000), Kept())
            assert first not in link._placement.places
            await link.find_nodes()
            assert first not in link._placement.places  # it does not answer, and nobody waits for it for long
        finally:
            os.kill(stopped, signal.SIGCONT)
        async with asyncio.timeout(30):
            while await link.find_nodes() < 2:
                await asyncio.sleep(0.1)
        both = [executor.run(plan_of(workspace, "sleep 0.5"), Kept()) for _ in range(4)]
        return again.ran.node_id != first, sorted({one.ran.node_id for one in await asyncio.gather(*both)})

    is_other, used = use(folder, work)
    assert is_other
    assert used == sorted(node.node_id for node in nodes)
    assert (workspace / "effect").read_text() == "once\n"
    for node in nodes:
        ray_machines.kill(node)
