"""Calls under way in this daemon: begun as tasks of their own, so that no client's end is a call's end.

Rules: at most so many at once, of everybody, of agents (seven eighths, so that operators get through), of one principal
(three quarters, so that nobody takes it all) and of one run; past that a call is refused with BUSY, which is attested
and not recorded: its id stays free. An accepted call has its place from before it is written down. Cancelling one never
touches another. What a call says is kept for listeners while it goes on and a little
after. At the end of the daemon calls may finish for a while; then they are ended, and recorded as cancelled.

Not here: what a call is (engine), who may see it (daemon/calls).
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field

import orjson

from palyra.canon import Json
from palyra.daemon.feed import Feed
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason, Rejected
from palyra.model.outcome import Outcome, Status, StreamName
from palyra.protocol.wire import outcome_bytes
from palyra.values import change, dataclass

CANCEL_AGAIN_S = 0.02
KEPT_CALLS = 256
KEPT_BYTES = 4 << 20
"""Of calls that have ended, for listeners that come back."""


class Wait:
    """Of a call for a person. The request tells this and not the call itself, which would hold on to itself by its
    request: what ends in a circle is freed only by a walk over everything that lives."""

    __slots__ = ("_feed", "approval")

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.approval: Mapping[str, Json] | None = None

    def told(self, approval: Mapping[str, Json] | None) -> None:
        self.approval = approval
        self._feed.put("approval", orjson.dumps(approval))


@dataclass(slots=True, eq=False)
class LiveCall:
    request: CallRequest
    call_id: str
    principal: str
    feed: Feed
    is_resumable: bool = True
    """Whether somebody may come back for its events; an attended call ends with its one listener."""
    task: asyncio.Future[Outcome] = field(init=False)
    """Done with it."""
    wait: Wait = field(init=False)
    said: bytes = b""
    """Its outcome, as it is sent, when it has one."""

    def __post_init__(self) -> None:
        self.wait = Wait(self.feed)

    @property
    def waits_for(self) -> Mapping[str, Json] | None:
        """The approval it waits for, while it does."""
        return self.wait.approval

    @property
    def running(self) -> Outcome:
        """What can be said of it while it goes on."""
        return running_outcome(self.request, self.waits_for)


OnEnd = Callable[[LiveCall, Outcome], None]


def running_outcome(request: CallRequest, waits_for: Mapping[str, Json] | None = None) -> Outcome:
    assert request.call_id is not None, "a door gives every call its id"
    return Outcome(
        call_id=request.call_id,
        run_id=request.run.run_id,
        tool=request.tool,
        status=Status.RUNNING if waits_for is None else Status.PENDING_APPROVAL,
        success=False,
        approval=waits_for,
    )


class LiveCalls:
    def __init__(self, engine: Engine, *, most: int, most_waiting_per_run: int, on_end: OnEnd) -> None:
        self._engine = engine
        self._most = most
        self._most_of_run = most_waiting_per_run
        self._on_end = on_end
        self._live: dict[str, LiveCall] = {}
        self._ended: OrderedDict[str, LiveCall] = OrderedDict()
        self._ended_bytes = 0
        self._tasks: set[asyncio.Future[Outcome]] = set()
        self._of_run: Counter[str] = Counter()
        self._of_principal: Counter[str] = Counter()
        self._of_agents = 0
        self._held = 0
        """Places of calls that are being written down."""
        self.stopping = False

    @property
    def count(self) -> int:
        return len(self._tasks)

    def begin(self, request: CallRequest, *, listener: Feed | None = None) -> LiveCall:
        """A second call with the same id is begun as well: the engine gives it the first one's outcome."""
        call = self._admit(request, listener)
        self._enter(call, asyncio.ensure_future(self._run(call)))
        return call

    async def make(self, request: CallRequest) -> tuple[LiveCall, Outcome]:
        """From its beginning to its end, in the task of whoever waits for it: one of its own costs as much as a tenth
        of the call. That task ends with its client's request, not with its client."""
        call = self._admit(request, None)
        over: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._enter(call, over)
        try:
            outcome = await self._run(call)
        except BaseException:
            over.cancel()
            raise
        if not over.done():
            over.set_result(outcome)
        return call, outcome

    def _admit(self, request: CallRequest, listener: Feed | None) -> LiveCall:
        assert request.call_id is not None, "a door gives every call its id"
        feed = listener or Feed()
        call = LiveCall(request, request.call_id, str(request.run.context.principal), feed, listener is None)
        refusal = request.refusal or (None if request.accepted else self.find_shortage(request))
        call.request = change(
            request, refusal=refusal, on_output=request.on_output or _Teller(feed), on_pending=call.wait.told
        )
        return call

    def _enter(self, call: LiveCall, task: asyncio.Future[Outcome]) -> None:
        call.task = task
        self._tasks.add(task)
        self._add_to_counts(call.request)
        self._live.setdefault(call.call_id, call)

    @contextmanager
    def hold_place(self, request: CallRequest) -> Iterator[None]:
        """Keep a place while the call is made durable: another call must not take it before 202 is answered."""
        self._held += 1
        self._add_to_counts(request)
        try:
            yield
        finally:
            self._held -= 1
            self._take_from_counts(request)

    def find_shortage(self, request: CallRequest) -> Rejected | None:
        """Return why there is no capacity for this call now, or None."""
        run_id, principal = request.run.run_id, str(request.run.context.principal)
        if self.stopping:
            return Rejected(Reason.BUSY, "The daemon is shutting down.", "Try again when it is back.")
        running = len(self._tasks) + self._held
        if running >= self._most or (request.lagging and self._of_agents >= max(1, self._most * 7 // 8)):
            return Rejected(
                Reason.BUSY, f"{self._most} calls are already running.", "Wait a moment; see daemon.max_calls."
            )
        if self._of_principal[principal] >= max(1, self._most * 3 // 4):
            return Rejected(
                Reason.BUSY, "Too many calls of this principal are already running.", "Wait for some to end."
            )
        if self._of_run[run_id] > self._most_of_run:
            return Rejected(
                Reason.BUSY,
                f"{self._most_of_run} calls of this run are already waiting.",
                "Wait for some to end; see daemon.max_calls_waiting_per_run.",
            )
        return None

    async def _run(self, call: LiveCall) -> Outcome:
        try:
            outcome = await self._engine.call(call.request)
            call.said = bytes(memoryview(outcome_bytes(outcome)))  # orjson's own hold on to more than they show
            call.feed.put("outcome", call.said)
            self._on_end(call, outcome)
            if outcome.call_id != call.call_id or (outcome.reason is Reason.BUSY and outcome.receipt is None):
                call.is_resumable = False  # the id is another call's, or free: nothing is found under it
            return outcome
        finally:
            call.feed.close()
            self._forget(call)

    def _forget(self, call: LiveCall) -> None:
        self._tasks.discard(call.task)
        self._take_from_counts(call.request)
        if self._live.get(call.call_id) is call:
            del self._live[call.call_id]
            if call.is_resumable:
                self._keep(call)

    def _add_to_counts(self, request: CallRequest) -> None:
        self._of_run[request.run.run_id] += 1
        self._of_principal[str(request.run.context.principal)] += 1
        self._of_agents += request.lagging

    def _take_from_counts(self, request: CallRequest) -> None:
        self._of_agents -= request.lagging
        principal = str(request.run.context.principal)
        for counter, key in ((self._of_run, request.run.run_id), (self._of_principal, principal)):
            counter[key] -= 1
            if counter[key] <= 0:
                del counter[key]

    def _keep(self, call: LiveCall) -> None:
        old = self._ended.pop(call.call_id, None)
        self._ended_bytes -= old.feed.kept_bytes if old else 0
        self._ended[call.call_id] = call
        self._ended_bytes += call.feed.kept_bytes
        while len(self._ended) > KEPT_CALLS or self._ended_bytes > KEPT_BYTES:
            _, dropped = self._ended.popitem(last=False)
            self._ended_bytes -= dropped.feed.kept_bytes

    def find(self, call_id: str) -> LiveCall | None:
        """One that goes on."""
        return self._live.get(call_id)

    def heard(self, call_id: str) -> LiveCall | None:
        """One that goes on or ended a little while ago."""
        return self._live.get(call_id) or self._ended.get(call_id)

    def cancel(self, call_id: str) -> bool:
        return self._engine.cancel(call_id)

    async def end(self, call: LiveCall) -> Outcome:
        """Cancel a call and wait for its outcome; one that has just begun is cancelled when the engine knows it."""
        while not self._engine.cancel(call.call_id) and not call.task.done():
            await asyncio.wait({call.task}, timeout=CANCEL_AGAIN_S)
        return await asyncio.shield(call.task)

    async def finish(self, *, within_s: float) -> None:
        """No new ones; those under way may end by themselves for a while, then they are ended."""
        self.stopping = True
        if self._tasks and within_s > 0:
            await asyncio.wait(self._tasks, timeout=within_s)
        while self._tasks:  # again and again: one that has just begun is not known to the engine yet
            for call_id in list(self._live):
                self._engine.cancel(call_id)
            await asyncio.wait(self._tasks, timeout=CANCEL_AGAIN_S)


class _Teller:
    """A program's output as events: text where it is UTF-8, else base64, so that no byte is lost."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def __call__(self, stream: StreamName, chunk: bytes) -> None:
        self._feed.put("output", output_event(stream, chunk))


def output_event(stream: StreamName, chunk: bytes) -> bytes:
    try:
        return orjson.dumps({"stream": stream.value, "text": chunk.decode("utf-8")})
    except UnicodeDecodeError:
        return orjson.dumps({"stream": stream.value, "base64": base64.b64encode(chunk).decode()})
