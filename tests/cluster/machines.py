"""Nodes for tests: plans of real sandboxes, nodes in this process, and a way to them that can be cut."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palyra.cluster.batches import Frames
from palyra.cluster.blobs import BlobFolder, Blobs
from palyra.cluster.copies import Copies
from palyra.cluster.dispatching import ClusterExecutor
from palyra.cluster.node import Node
from palyra.cluster.placing import Place, Placement
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK
from palyra.model.outcome import Execution
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.planner import needs_for, plan_job
from palyra.signing import SigningKey
from tests.conformance.arena import Kept, host
from tests.journaling import ulid

CLUSTER_KEY = SigningKey(bytes(range(32)))


def plan_of(workspace: Path, script: str, **limits: int) -> ProcessPlan:
    """A shell's script, in tier C, with the workspace writable."""
    needs, wants = needs_for(Tier.C, NO_NETWORK)
    seen = workspace.stat()
    job = Job(
        program="/bin/sh",
        program_sha256="",
        argv=("sh", "-c", script),
        env=(("PATH", "/usr/bin:/bin"),),
        cwd=str(workspace),
        workspace=WorkspaceSight(path=str(workspace), owner_uid=seen.st_uid, owner_gid=seen.st_gid),
        read_roots=(),
        limits=Limits(**limits),
        net=NO_NETWORK,
        tier=Tier.C,
        needs=needs,
        wants=wants,
    )
    return plan_job(job, host())


async def frames_of(node: Node, order: bytes) -> AsyncGenerator[bytes, None]:
    """What a node says to an order, frame by frame."""
    frames = Frames()
    task = asyncio.ensure_future(node.serve(order, frames))
    task.add_done_callback(frames.end)
    try:
        is_over = False
        while not is_over:
            taken, is_over = await frames.take()
            for frame in taken:
                yield frame
    finally:
        task.cancel()
        await asyncio.wait([task])


@dataclass
class Alive:
    """A daemon that was taken for dead so often."""

    count: int = 0

    def burials(self) -> int:
        return self.count


@dataclass
class Machines:
    """Nodes of this process, and every order that was sent."""

    folder: Path
    nodes: dict[str, Node] = field(default_factory=dict)
    orders: list[tuple[str, bytes]] = field(default_factory=list)
    placement: Placement = field(default_factory=Placement)
    blobs: Blobs = field(init=False)
    policy: int = 0
    tenure: Any = field(default_factory=Alive)
    key: SigningKey = CLUSTER_KEY
    now: int = 1_000_000

    def __post_init__(self) -> None:
        self.blobs = BlobFolder(self.folder / "blobs")

    def add(self, name: str, *, slots: int = 4) -> Node:
        folder = self.folder / name
        folder.mkdir(mode=0o711, parents=True)
        node = Node(
            node_id=name,
            key=SigningKey(os.urandom(32)),
            cluster_key=self.key.public,
            blobs=self.blobs,
            copies=Copies(folder, self.blobs, most_idle=4),
            executor=ProcessExecutor(host()),
            slots=slots,
            now_unix_ms=lambda: self.now,
        )
        self.nodes[name] = node
        self.placement.add(
            Place(node_id=name, key=node.key.public, start=node.start, slots=slots, tiers=frozenset({"C"}))
        )
        return node

    async def send(self, node_id: str, order: bytes) -> AsyncGenerator[bytes, None]:
        self.orders.append((node_id, order))
        async with aclosing(frames_of(self.nodes[node_id], order)) as frames:
            async for frame in frames:
                yield frame

    def cancel(self, node_id: str, dispatch_id: str) -> None:
        self.nodes[node_id].cancel(dispatch_id)

    def executor(self) -> ClusterExecutor:
        return ClusterExecutor(
            link=self,
            placement=self.placement,
            blobs=self.blobs,
            here=ProcessExecutor(host()),
            key=self.key,
            new_id=ulid,
            now_unix_ms=lambda: self.now,
            policy_number=lambda: self.policy,
            tenure=self.tenure,
        )


def run(machines: Machines, workspace: Path, script: str, **limits: int) -> tuple[Execution, Kept]:
    output = Kept()
    execution = asyncio.run(machines.executor().run(plan_of(workspace, script, **limits), output))
    return execution, output
