"""A node: runs what a signed token allows, once, in a copy of the workspace, and signs what came of it.

Order of one dispatch: 1 the token (signature, node, end) · 2 the fence (this epoch once, nothing older than what was
seen) · 3 a slot · 4 the workspace, made anew from its digest · 5 the program, in its sandbox · 6 what changed, by its
digest · 7 the signed statement. Nothing that a call did to its copy counts until a daemon takes that.

Rules: bytes in, bytes out, canonical JSON alone; tools' code runs in sandboxes that `launch` starts, never in this
process; the node's private key is made here and never leaves. Not here: Ray (cluster/ray_node), what is sent where.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson

from palyra.canon import canonical, sha256_hex
from palyra.cluster import moving, trees
from palyra.cluster.batches import Outlet
from palyra.cluster.blobs import BlobMissing, Blobs
from palyra.cluster.copies import Copies, Copy
from palyra.cluster.fence import Fence
from palyra.cluster.parcels import check_body, open_parcel, pack_parcel
from palyra.cluster.token import Dispatch, Statement, open_token, sign_statement
from palyra.errors import StateError, TrustError
from palyra.launch.executor import Executor
from palyra.launch.values import from_json, to_json
from palyra.model.outcome import Connection, StreamName
from palyra.model.plan import ProcessPlan
from palyra.signing import PublicKey, SigningKey

MOST_PLANS, PLAN_BYTES = 64, 64 << 10
"""How many plans are kept in memory, and how large one may be for that."""
STDOUT, STDERR, END, REFUSED, BUSY, MISSING = b"1", b"2", b"=", b"!", b"~", b"?"
"""How a frame begins: output, how it ended, why it was not begun, no slot, a blob of the workspace is gone."""


@dataclass(slots=True, kw_only=True)
class Node:
    node_id: str
    key: SigningKey
    cluster_key: PublicKey
    blobs: Blobs
    copies: Copies
    executor: Executor
    slots: int
    now_unix_ms: Callable[[], int]

    draining: bool = field(init=False, default=False)
    start: str = field(init=False, default_factory=lambda: os.urandom(16).hex())
    """Told to daemons, and signed by them into every token: what was meant for this node before it began anew is not
    run again by one that cannot remember it."""
    _fence: Fence = field(init=False, default_factory=Fence)
    _policies: int = field(init=False, default=0)
    _plans: OrderedDict[str, tuple[ProcessPlan, str]] = field(init=False, default_factory=OrderedDict)
    """By their digest: agents ask the same again and again."""
    _running: dict[tuple[str, int], asyncio.Task[None] | None] = field(init=False, default_factory=dict)
    """By dispatch and epoch: what a daemon lost sight of may still run when it is sent here anew."""

    @property
    def busy(self) -> int:
        return len(self._running)

    async def serve(self, order: bytes, frames: Outlet) -> None:
        """Frames of output as they come, then one that ends it. Cancelled when nobody listens any more."""
        try:
            dispatch, plan, workspace = self._admit(order)
        except (TrustError, StateError, ValueError, KeyError, TypeError) as error:
            frames.put_last(REFUSED + str(error).encode())
            return
        if self.draining or self.busy >= self.slots:  # 3
            frames.put_last(BUSY)
            return
        self.cancel(dispatch.dispatch_id)  # an earlier epoch of it counts for nobody any more
        self._running[dispatch.dispatch_id, dispatch.epoch] = asyncio.current_task()
        last = REFUSED + b"The execution was cancelled."
        try:
            last = END + await self._execute(dispatch, plan, workspace, _Output(frames))
        except BlobMissing as error:
            last = MISSING + str(error).encode()
        except Exception as error:  # noqa: BLE001  # whatever it is, its daemon is told
            last = REFUSED + f"{type(error).__name__}: {error}".encode()
        finally:
            self._running.pop((dispatch.dispatch_id, dispatch.epoch), None)
            frames.put_last(last)

    def cancel(self, dispatch_id: str) -> bool:
        asked = [task.cancel() for (one, _), task in self._running.items() if one == dispatch_id and task is not None]
        return True in asked

    def _admit(self, order: bytes) -> tuple[Dispatch, ProcessPlan, str]:
        token, body = open_parcel(order)
        now = self.now_unix_ms()
        dispatch = open_token(
            token, self.cluster_key, node_id=self.node_id, node_start=self.start, now_unix_ms=now
        )  # 1
        check_body(body, dispatch.plan_sha256, "plan")
        if dispatch.policy_number < self._policies:
            raise TrustError("The policies that allowed this are no longer in use.")
        self._policies = dispatch.policy_number
        self._fence.pass_once(
            dispatch.dispatch_id, dispatch.epoch, expires_unix_ms=dispatch.expires_unix_ms, now_unix_ms=now
        )  # 2
        return dispatch, *self._read_plan(dispatch.plan_sha256, body)

    def _read_plan(self, sha256: str, body: bytes) -> tuple[ProcessPlan, str]:
        """The plan and its workspace; one that was read before is the very same value, for which a sandbox waits."""
        known = self._plans.get(sha256)
        if known is None:
            plan = from_json(ProcessPlan, orjson.loads(body))
            workspace = moving.workspace_of(plan)
            if workspace is None:
                raise TrustError("This plan cannot be run on another machine.")
            known = plan, workspace
            if len(body) <= PLAN_BYTES:
                self._plans[sha256] = known
            while len(self._plans) > MOST_PLANS:
                self._plans.popitem(last=False)
        return known

    async def _execute(self, dispatch: Dispatch, plan: ProcessPlan, workspace: str, sink: _Output) -> bytes:
        copy = self.copies.find(workspace, plan.run_as, dispatch.workspace_sha256)  # 4
        if copy is None:
            copy = await asyncio.to_thread(self._lay_out, dispatch, workspace, plan)
        base = copy.tree
        try:
            execution = canonical(to_json(await self.executor.run(copy.moved(plan), sink)))  # 5
            if self.copies.is_unchanged(copy):  # 6
                copy.sha256, changed = dispatch.workspace_sha256, trees.NOTHING
                self.copies.keep(copy)
            else:
                changed = await asyncio.to_thread(self._bring_in, base, copy)
        except BaseException:
            self.copies.discard(copy)
            raise
        stdout, stderr = (digest.hexdigest() for digest in sink.digests.values())
        statement = Statement(
            dispatch_id=dispatch.dispatch_id,
            epoch=dispatch.epoch,
            node_id=self.node_id,
            plan_sha256=dispatch.plan_sha256,
            workspace_sha256=dispatch.workspace_sha256,
            execution_sha256=sha256_hex(execution),
            changes_sha256=changed,
            stdout_sha256=stdout,
            stderr_sha256=stderr,
        )
        return pack_parcel(sign_statement(statement, self.key), execution)  # 7

    def _lay_out(self, dispatch: Dispatch, workspace: str, plan: ProcessPlan) -> Copy:
        base = trees.read(dispatch.workspace_sha256, self.blobs)
        return self.copies.lay_out(workspace, plan.run_as, base)

    def _bring_in(self, base: trees.Tree, copy: Copy) -> str:
        """What the call changed, by its digest."""
        after, whole = self.copies.read(copy)
        changes = trees.changes(base, after)
        changed = trees.keep(changes, self.blobs) if changes else trees.NOTHING
        copy.sha256 = trees.digest_of(after)
        (self.copies.keep if whole else self.copies.discard)(copy)
        return changed


class _Output:
    """A sink that hands output on, as fast as it is taken."""

    def __init__(self, frames: Outlet) -> None:
        self._frames = frames
        self.digests = {StreamName.STDOUT: hashlib.sha256(), StreamName.STDERR: hashlib.sha256()}

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        self.digests[stream].update(chunk)
        self._frames.put((STDOUT if stream is StreamName.STDOUT else STDERR) + chunk)

    def room(self, stream: StreamName) -> asyncio.Future[None] | None:
        """`launch` reads on only when there is room: a slow daemon slows the program, as a slow pipe would."""
        return self._frames.room()

    def reached(self, connections: Sequence[Connection]) -> None:
        """Nothing was granted."""
