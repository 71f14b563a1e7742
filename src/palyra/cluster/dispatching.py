"""The executor of a cluster: the engine's port, with the program on another machine.

Order: 1 the workspace by digest · 2 a slot · 3 the policies are still those that decided · 4 a signed token with the
next epoch · 5 output as it comes · 6 the node's statement, of this very epoch · 7 what changed, brought home.

Rules: an execution counts by step 6 alone, so a node that is lost before it is run anew elsewhere and nothing counts
twice; a program that had spoken and then, run anew, says something else has no second telling: its call ends as
interrupted and changes nothing. What cannot move runs here. Not here: Ray (cluster/ray_link), the node (cluster/node).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import orjson

from palyra.canon import Json, canonical, sha256_hex
from palyra.cluster import moving, trees
from palyra.cluster.blobs import Blobs
from palyra.cluster.node import BUSY, END, MISSING, STDERR, STDOUT
from palyra.cluster.placing import Place, Placement
from palyra.cluster.token import Dispatch, open_statement, sign_token
from palyra.errors import Reason, Rejected, StateError, TrustError
from palyra.launch.executor import Executor, Sink, Source
from palyra.launch.values import from_json, to_json
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
PATIENCE_S = 60.0
PAUSE_S = 0.05
NOTHING = trees.digest_of({})
_STREAMS = {STDOUT: StreamName.STDOUT, STDERR: StreamName.STDERR}


class NodeLost(Exception):
    """The node, or the way to it, is gone."""


class Link(Protocol):
    def send(self, node_id: str, order: bytes) -> AsyncGenerator[bytes, None]:
        """The node's frames. Raises `NodeLost`."""

    def cancel(self, node_id: str, dispatch_id: str) -> None: ...


class _Full(Exception):
    """Another daemon was quicker, or the node drains."""


class _Gone(Exception):
    """Of the workspace the node did not find all, before anything ran: a blob was removed that was there once."""


class _Other(Exception):
    """The second telling is not the first one's."""


@dataclass(slots=True)
class _Told:
    """What the sink was given, so that a second run is not told twice."""

    sink: Sink
    whole: dict[StreamName, bytearray] = field(default_factory=lambda: {name: bytearray() for name in StreamName})
    at: dict[StreamName, int] = field(default_factory=lambda: dict.fromkeys(StreamName, 0))

    def again(self) -> None:
        self.at = dict.fromkeys(StreamName, 0)

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        whole, at = self.whole[stream], self.at[stream]
        old = min(len(chunk), len(whole) - at)
        if bytes(whole[at : at + old]) != chunk[:old]:
            raise _Other
        self.at[stream] += len(chunk)
        if fresh := chunk[old:]:
            whole += fresh
            self.sink.feed(stream, fresh)

    def check_end(self, stdout_sha256: str, stderr_sha256: str) -> None:
        for stream, sha256 in ((StreamName.STDOUT, stdout_sha256), (StreamName.STDERR, stderr_sha256)):
            if self.at[stream] != len(self.whole[stream]):
                raise _Other
            if hashlib.sha256(self.whole[stream]).hexdigest() != sha256:
                raise TrustError("The output that came is not the output that was signed.")


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
    ) -> None:
        """`here` runs what cannot move; `policy_number` is that of the policies in use."""
        self._link, self._placement, self._blobs, self._here, self._key = link, placement, blobs, here, key
        self._new_id, self._now, self._policy_number = new_id, now_unix_ms, policy_number
        self._known: dict[str, tuple[tuple[int, ...], trees.Node]] = {}

    def close(self) -> None:
        self._blobs.close()

    async def run(
        self, plan: ProcessPlan, sink: Sink, source: Source | None = None, *, credentials: Sequence[Credential] = ()
    ) -> Execution:
        workspace = moving.workspace_of(plan) if source is None else None
        if workspace is None:
            return await self._here.run(plan, sink, source, credentials=credentials)
        try:
            return await self._send(plan, workspace, _Told(sink))
        except _Other:
            message = "The node was lost, and the program, run anew, did not say what it had said before."
            return Execution(status=Status.FAILED, reason=Reason.INTERRUPTED, message=message)
        except (TrustError, StateError, OSError) as error:
            return Execution(status=Status.FAILED, reason=Reason.SPAWN_FAILED, message=str(error))

    async def _send(self, plan: ProcessPlan, workspace: str, told: _Told) -> Execution:
        number, dispatch_id = self._policy_number(), self._new_id()
        try:
            crossing: Json = to_json(plan)
            plan_sha256 = sha256_hex(canonical(crossing))
        except (TypeError, ValueError) as error:
            raise StateError(f"The plan cannot be sent: {error}.") from error
        base_sha256 = await asyncio.to_thread(self._look, Path(workspace))  # 1
        full: set[str] = set()
        put_again = False
        for epoch in range(1, ATTEMPTS + 1):
            place = await self._placement.take(plan.tier.value, workspace, patience_s=PATIENCE_S, avoid=full)  # 2
            try:
                if self._policy_number() != number:  # 3
                    raise Rejected(
                        Reason.POLICY_DENIED, "The policies changed before the call was sent.", "Call again."
                    )
                dispatch = Dispatch(
                    dispatch_id=dispatch_id,
                    epoch=epoch,
                    node_id=place.node_id,
                    plan_sha256=plan_sha256,
                    workspace_sha256=base_sha256,
                    policy_number=number,
                    expires_unix_ms=self._now() + plan.limits.wall_ms + SLACK_MS,
                )
                order = canonical({"token": sign_token(dispatch, self._key), "plan": crossing})  # 4
                return await self._follow(place, dispatch, order, told, Path(workspace))
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
                await asyncio.shield(self._placement.give_back(place))
        raise StateError("No node took this call, or every one that did was lost.", "palyra cluster status")

    async def _follow(self, place: Place, dispatch: Dispatch, order: bytes, told: _Told, workspace: Path) -> Execution:
        try:
            async with aclosing(self._link.send(place.node_id, order)) as frames:
                async for frame in frames:
                    kind, body = frame[:1], frame[1:]
                    if kind in _STREAMS:
                        told.feed(_STREAMS[kind], body)  # 5
                    elif kind == END:
                        return await self._accept(place, dispatch, body, told, workspace)
                    elif kind == BUSY:
                        raise _Full
                    elif kind == MISSING:
                        raise _Gone
                    else:
                        raise StateError(f"Node {place.node_id} refused: {body.decode('utf-8', 'replace')[:300]}")
        except (asyncio.CancelledError, _Other, TrustError):
            self._link.cancel(place.node_id, dispatch.dispatch_id)
            raise
        raise NodeLost

    async def _accept(self, place: Place, dispatch: Dispatch, body: bytes, told: _Told, workspace: Path) -> Execution:
        try:
            answer = orjson.loads(body)
            statement = open_statement(answer["statement"], place.key, of=dispatch)  # 6
            if sha256_hex(canonical(answer["execution"])) != statement.execution_sha256:
                raise TrustError("The execution is not the one that was signed.")
            told.check_end(statement.stdout_sha256, statement.stderr_sha256)
            execution = from_json(Execution, answer["execution"])
        except (ValueError, KeyError, TypeError) as error:
            raise TrustError(f"The node's answer cannot be read: {error}.") from error
        if statement.changes_sha256 != NOTHING:
            await asyncio.to_thread(self._bring_home, statement.changes_sha256, workspace)  # 7
        ran = Ran(node_id=place.node_id, key_id=place.key.key_id, envelope=canonical(answer["statement"]).decode())
        return replace(execution, ran=ran)

    def _look(self, workspace: Path) -> str:
        return trees.keep(trees.take(workspace, self._blobs, self._known), self._blobs)

    def _put_again(self, workspace: Path, base_sha256: str) -> None:
        """Every file is read anew; a workspace that is another by now is not what the call was allowed for."""
        self._known.clear()
        self._blobs.forget()
        if self._look(workspace) != base_sha256:
            raise StateError("The workspace changed before the call began.", "Call again.")

    def _bring_home(self, changes_sha256: str, workspace: Path) -> None:
        trees.write(trees.read(changes_sha256, self._blobs), workspace, self._blobs, owner=_owner(workspace))


def _owner(workspace: Path) -> tuple[int, int]:
    seen = workspace.stat()
    return seen.st_uid, seen.st_gid
