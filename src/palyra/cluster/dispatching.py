"""The executor of a cluster: the engine's port, with the program on another machine.

Order: 1 the workspace by digest · 2 a slot · 3 the policies are still those that decided · 4 a signed token with the
next epoch · 5 output as it comes · 6 the node's statement, of this very epoch · 7 what changed, brought home, if this
daemon was not taken for dead meanwhile.

Rules: an execution counts by step 6 alone, so a node that is lost before it is run anew elsewhere and nothing counts
twice; a program that had spoken and then, run anew, says something else has no second telling: its call ends as
interrupted and changes nothing. What cannot move runs here. Not here: Ray (cluster/ray_link), the node (cluster/node).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import orjson

from palyra.canon import canonical
from palyra.cluster import moving, trees
from palyra.cluster.blobs import Blobs
from palyra.cluster.crossings import Crossing, Crossings
from palyra.cluster.node import BUSY, END, MISSING, STDERR, STDOUT
from palyra.cluster.parcels import check_body, open_parcel, pack_parcel
from palyra.cluster.placing import MOST_REMEMBERED, Place, Placement
from palyra.cluster.telling import OtherTelling, Told
from palyra.cluster.token import Dispatch, open_statement, sign_token
from palyra.errors import Reason, Rejected, StateError, TrustError
from palyra.launch.executor import Executor, Sink, Source
from palyra.launch.values import from_json
from palyra.model.outcome import Execution, Ran, Status, StreamName
from palyra.model.plan import ProcessPlan
from palyra.signing import SigningKey

if TYPE_CHECKING:
    from palyra.egress.credentials import Credential

log = logging.getLogger("palyra.cluster")
ATTEMPTS = 1000
"""Most of them only find that another daemon took the slot, and pause."""
SLACK_MS = 30_000
"""How long a token lives beyond its call's own deadline: laying out the workspace, starting the sandbox."""
LATE_S = 5.0
"""How much later than its token's end an answer may still be on its way."""
PATIENCE_S = 60.0
ASK_AGAIN_S = 0.5
PAUSE_S = 0.05
MOST_COUNTED = 1 << 50
"""Microseconds, bytes: what the journal's numbers hold, and decades more than any call."""
_STREAMS = {STDOUT: StreamName.STDOUT, STDERR: StreamName.STDERR}


class NodeLost(Exception):
    """The node, or the way to it, is gone."""


class Tenure(Protocol):
    """Whether this daemon was taken for dead (cluster/leases fits)."""

    def burials(self) -> int:
        """How often. It may ask the server, blocking; `StateError` while that is away."""


class Link(Protocol):
    def send(self, node_id: str, order: bytes) -> AsyncGenerator[bytes, None]:
        """The node's frames. Raises `NodeLost`."""

    def cancel(self, node_id: str, dispatch_id: str) -> None: ...


class _Full(Exception):
    """Another daemon was quicker, or the node drains."""


class _Replaced(Exception):
    """This daemon was stalled for longer than its lease, and another daemon took over its calls."""


class _Gone(Exception):
    """Of the workspace the node did not find all, before anything ran: a blob was removed that was there once."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """What a node stated, believed."""

    execution: Execution
    changes_sha256: str


class ClusterExecutor:
    def __init__(
        self,
        *,
        link: Link,
        placement: Placement,
        blobs: Blobs,
        here: Executor,
        key: SigningKey,
        new_id: Callable[[], str],
        now_unix_ms: Callable[[], int],
        policy_number: Callable[[], int],
        tenure: Tenure,
    ) -> None:
        """`here` runs what cannot move; `policy_number` is that of the policies in use."""
        self._link, self._placement, self._blobs, self._here, self._key = link, placement, blobs, here, key
        self._new_id, self._now, self._policy_number, self._tenure = new_id, now_unix_ms, policy_number, tenure
        self._crossings = Crossings()
        self._known: dict[str, tuple[tuple[int, ...], trees.Node]] = {}
        self._last: dict[str, tuple[trees.Tree, str]] = {}
        """Small workspaces as they were, by their place."""

    def close(self) -> None:
        self._blobs.close()

    async def run(
        self,
        plan: ProcessPlan,
        sink: Sink,
        source: Source | None = None,
        *,
        credentials: Sequence[Credential] = (),
        policy_number: int | None = None,
    ) -> Execution:
        workspace = self._crossings.workspace_of(plan) if source is None else None
        if workspace is None:
            return await self._here.run(plan, sink, source, credentials=credentials)
        try:
            crossing = self._crossings.make(plan, workspace)
            return await self._send(crossing, Told(sink, most_bytes=plan.limits.output_bytes), policy_number)
        except OtherTelling:
            message = "The node was lost, and the program, run again, did not produce the same output."
            return Execution(status=Status.FAILED, reason=Reason.INTERRUPTED, message=message)
        except _Replaced:
            message = "This daemon was stalled for longer than its lease, and another daemon took over its calls."
            return Execution(status=Status.FAILED, reason=Reason.INTERRUPTED, message=message)
        except (TrustError, StateError, OSError) as error:
            return Execution(status=Status.FAILED, reason=Reason.SPAWN_FAILED, message=str(error))

    async def _send(self, crossing: Crossing, told: Told, decided_by: int | None) -> Execution:
        plan, workspace = crossing.plan, crossing.workspace
        number = self._policy_number() if decided_by is None else decided_by
        dispatch_id, burials = self._new_id(), self._tenure.burials()
        base_sha256 = self._unchanged(Path(workspace)) or await asyncio.to_thread(self._look, Path(workspace))  # 1
        full: set[str] = set()
        put_again = False
        for epoch in range(1, ATTEMPTS + 1):
            place = self._placement.take_now(plan.tier.value, workspace, avoid=full)  # 2
            if place is None:
                place = await self._placement.take(plan.tier.value, workspace, patience_s=PATIENCE_S, avoid=full)
            try:
                if self._policy_number() != number:  # 3
                    raise Rejected(
                        Reason.POLICY_DENIED, "The policies changed before the call was sent.", "Call again."
                    )
                dispatch = Dispatch(
                    dispatch_id=dispatch_id,
                    epoch=epoch,
                    node_id=place.node_id,
                    node_start=place.start,
                    plan_sha256=crossing.sha256,
                    workspace_sha256=base_sha256,
                    policy_number=number,
                    expires_unix_ms=self._now() + plan.limits.wall_ms + SLACK_MS,
                )
                order = pack_parcel(sign_token(dispatch, self._key), crossing.body)  # 4
                ended = await self._follow(place, dispatch, order, told, plan)
                return await self._take_in(ended, crossing, burials)
            except NodeLost:
                log.warning("node %s was lost with dispatch %s, epoch %d", place.node_id, dispatch_id, epoch)
                self._placement.lose(place.node_id)
                told.again()
            except _Gone:
                if put_again:
                    raise StateError(
                        "The blob store does not keep what it is given.", "Check [cluster.blobs] on every machine."
                    ) from None
                put_again = True
                await asyncio.to_thread(self._put_again, Path(workspace), base_sha256)
            except _Full:
                await asyncio.sleep(PAUSE_S if place.node_id in full else 0)
                full.add(place.node_id)
            finally:
                self._placement.give_back(place)
        raise StateError("No node took this call, or every one that did was lost.", "palyra cluster status")

    async def _follow(self, place: Place, dispatch: Dispatch, order: bytes, told: Told, plan: ProcessPlan) -> _Ended:
        """To the node's statement. One that is silent, or speaks on, beyond its token's end is as good as lost."""
        try:
            async with (
                asyncio.timeout((plan.limits.wall_ms + SLACK_MS) / 1000 + LATE_S),
                aclosing(self._link.send(place.node_id, order)) as frames,
            ):
                async for frame in frames:
                    kind, body = frame[:1], frame[1:]
                    if kind in _STREAMS:
                        told.feed(_STREAMS[kind], body)  # 5
                    elif kind == END:
                        return _accept(place, dispatch, body, told, plan)
                    elif kind == BUSY:
                        raise _Full
                    elif kind == MISSING:
                        raise _Gone
                    else:
                        raise StateError(f"Node {place.node_id} refused: {body.decode('utf-8', 'replace')[:300]}")
        except (asyncio.CancelledError, OtherTelling, TrustError):
            self._link.cancel(place.node_id, dispatch.dispatch_id)
            raise
        except TimeoutError as error:
            self._link.cancel(place.node_id, dispatch.dispatch_id)
            raise NodeLost from error
        raise NodeLost

    async def _take_in(self, ended: _Ended, crossing: Crossing, burials: int) -> Execution:
        if await self._burials() != burials:
            raise _Replaced
        if ended.changes_sha256 != trees.NOTHING:
            await asyncio.to_thread(
                self._bring_home, ended.changes_sha256, crossing.plan, Path(crossing.workspace)
            )  # 7
        return ended.execution

    async def _burials(self) -> int:
        """Waits for a server that is away: without its word nothing may be changed, and nothing could be recorded."""
        while True:
            try:
                return self._tenure.burials()
            except StateError as error:
                log.warning("it is not known whether this daemon's calls are still its own: %s", error.detail)
                await asyncio.sleep(ASK_AGAIN_S)

    def _unchanged(self, workspace: Path) -> str:
        """The digest of a small workspace that is what the last look found; empty where it takes another look."""
        tree, sha256 = self._last.get(str(workspace), ({}, ""))
        return sha256 if sha256 and trees.is_same(workspace, tree, self._known, most=trees.SMALL) else ""

    def _look(self, workspace: Path) -> str:
        tree = trees.take(workspace, self._blobs, self._known)
        sha256 = trees.keep(tree, self._blobs)
        if len(self._last) >= MOST_REMEMBERED:
            self._last.clear()
        self._last[str(workspace)] = (tree, sha256) if len(tree) <= trees.SMALL else ({}, "")
        return sha256

    def _put_again(self, workspace: Path, base_sha256: str) -> None:
        """Every file is read anew; a workspace that is another by now is not what the call was allowed for."""
        self._known.clear()
        self._last.clear()
        self._blobs.forget()
        if self._look(workspace) != base_sha256:
            raise StateError("The workspace changed before the call began.", "Call again.")

    def _bring_home(self, changes_sha256: str, plan: ProcessPlan, workspace: Path) -> None:
        changes = trees.read(changes_sha256, self._blobs)
        moving.check_changes(plan, str(workspace), changes)
        trees.write(changes, workspace, self._blobs, owner=_owner(workspace))


def _accept(place: Place, dispatch: Dispatch, body: bytes, told: Told, plan: ProcessPlan) -> _Ended:
    try:
        envelope, ended = open_parcel(body)
        statement = open_statement(envelope, place.key, of=dispatch)  # 6
        check_body(ended, statement.execution_sha256, "execution")
        told.check_end(statement.stdout_sha256, statement.stderr_sha256)
        execution = from_json(Execution, orjson.loads(ended))
        _check_claims(execution, plan)
    except (ValueError, KeyError, TypeError) as error:
        raise TrustError(f"The node's answer cannot be read: {error}.") from error
    ran = Ran(node_id=place.node_id, key_id=place.key.key_id, envelope=canonical(envelope).decode())
    return _Ended(replace(execution, ran=ran), statement.changes_sha256)


def _check_claims(execution: Execution, plan: ProcessPlan) -> None:
    """What only the daemon may say, and numbers that no call has: they would empty a run's budget or break a record."""
    if execution.ran is not None or execution.connections or execution.compiled_sha256 is not None:
        raise TrustError("The node's answer has fields that a node may not set.")
    used = execution.usage
    counted = [used.wall_us, used.cpu_us, used.max_rss_bytes, used.output_bytes, used.fuel]
    counted += [execution.stdout_bytes, execution.stderr_bytes, execution.stdin_bytes]
    fits = all(value is None or 0 <= value <= MOST_COUNTED for value in counted)
    fits &= execution.usage.wall_us <= (plan.limits.wall_ms + SLACK_MS) * 1000
    if not fits or not -1 <= (execution.exit_code or 0) <= 255 or not 0 <= (execution.signal or 0) <= 64:
        raise TrustError("The node reports more usage than any call can have.")


def _owner(workspace: Path) -> tuple[int, int]:
    seen = workspace.stat()
    return seen.st_uid, seen.st_gid
