"""The walk of one call, on one screen. The numbers are those of ARCHITECTURE.md.

1 validate · 2 look · 3 guard · 4 authorise · 5 budget · 6 plan · 7 approve · 8 open (the intent is durable before
anything runs) · 9 run and capture · 10 redact · 11 attest · 12 close and answer.

Rules: decisions are values, refusals are one exception, caught here and nowhere else; every way out (a refusal, a
time-out, a cancellation, an error of our own) is attested and journaled, except BUSY before anything began; if the
journal is down, nothing runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from palyra.engine import assessment, roads
from palyra.engine.asking import check_still_asked
from palyra.engine.attesting import get_ready
from palyra.engine.budget import check_budget
from palyra.engine.changes import changes_since, look_before
from palyra.engine.claims import NOTHING, WHOLE, claim_of
from palyra.engine.created import note_created
from palyra.engine.decision import authorise
from palyra.engine.ended import EndedRuns
from palyra.engine.endings import (
    bare,
    broken,
    close_made,
    close_now,
    keep_large_output,
    keeps_no_record,
    make_record,
    refused,
    unrecorded,
)
from palyra.engine.intake import settle_request
from palyra.engine.labels import mark_run
from palyra.engine.live import Live, finish_whatever_comes, stop_all
from palyra.engine.output import Collector, failed_hint, process_output
from palyra.engine.planning import make_plan
from palyra.engine.ports import Ports
from palyra.engine.record import make_closing, make_opening, with_receipt
from palyra.engine.repeat import first_outcome, refuse_reused
from palyra.engine.runs import Run, RunScope
from palyra.engine.shapes import Shapes
from palyra.engine.since import assess_again, check_marked_since
from palyra.engine.trip import CallRequest, Ending, Trip
from palyra.engine.turns import Turns
from palyra.errors import DuplicateCall, Reason, Rejected, StateError
from palyra.model.grant import Ask
from palyra.model.outcome import Execution, Outcome, Status, StreamName, Usage
from palyra.model.plan import BuiltinPlan, FetchPlan, ProcessPlan
from palyra.model.process import Lifetime, ProcessOwner
from palyra.model.record import Closing
from palyra.model.run_facts import RunLabel
from palyra.model.tool import ToolKind
from palyra.model.wasm import WasmPlan
from palyra.protocol.registry import Registry
from palyra.protocol.schema import check_arguments
from palyra.redact.values import redact_json

if TYPE_CHECKING:
    from palyra.egress.credentials import Credential
    from palyra.engine.owning import OwningRuns

log = logging.getLogger("palyra.engine")


class Engine:
    _everyones: ClassVar[set[str]] = set()
    """Calls under way in this process, whichever engine has them: several may share a home."""

    def __init__(self, ports: Ports, registry: Registry) -> None:
        self.ports = ports
        self.registry = registry
        self._turns = Turns()
        self._shapes = Shapes()
        self._live: dict[str, Live] = {}
        self._calls: dict[ProcessOwner, set[str]] = {}
        """Live calls, by run and principal."""
        self._owning: OwningRuns | None = None
        self._ended = EndedRuns()

    async def call(self, request: CallRequest) -> Outcome:
        """Run one call to its end. Cancelling the caller kills the call, and the record is still closed."""
        trip = self._begin(request)
        if trip.request.call_id is not None and not trip.request.fresh_id:
            first = await self._first_outcome(trip)
            if first is not None:
                return first
        task = asyncio.current_task()
        assert task is not None, "an engine is used inside an event loop"
        cancelled_before = task.cancelling()
        live = self._enter(trip, task)
        try:
            outcome = await self._from_start_to_end(trip)
        finally:
            if live is not None:
                self._leave(trip, live)
        if live is not None and live.cancelled:
            await live.take_cancellation_back()
        if task.cancelling() > cancelled_before:  # whoever asked for it has gone; the record is closed
            await finish_whatever_comes(roads.take_back(trip, outcome, self.ports))
            raise asyncio.CancelledError
        return outcome

    def cancel(self, call_id: str) -> bool:
        """Ask a live call of this engine to end; its outcome says CANCELLED."""
        live = self._live.get(call_id)
        return live is not None and live.cancel()

    def is_busy(self, run: Run) -> bool:
        """Whether a call of this run is under way."""
        return bool(self._calls.get(run.owner))

    async def end_run(self, run: Run) -> None:
        """Cancel what is under way in a run, then end the background processes that were to end with it."""
        await self._end(run.owner)

    async def close(self) -> None:
        """End what is under way, and every run of this process that owns background processes."""
        await stop_all(list(self._live.values()))
        for owner in self._owning.all() if self._owning is not None else ():
            await self._end(owner)

    async def _end(self, owner: ProcessOwner) -> None:
        self._ended.note(owner, self.ports.clock.monotonic_us())
        await stop_all([self._live[call_id] for call_id in self._calls.get(owner, ())])
        await self.ports.background.end_run(owner)
        if self._owning is not None:
            self._owning.forget(owner)

    async def _first_outcome(self, trip: Trip) -> Outcome | None:
        return await first_outcome(trip, self.ports, self.registry, is_live=self._everyones.__contains__)

    def _enter(self, trip: Trip, task: asyncio.Task[Any]) -> Live | None:
        """None for a second caller with the same id, which must not take the first one's place."""
        if trip.call_id in self._live:
            return None
        live = self._live[trip.call_id] = Live(task, trip.call_id)
        self._everyones.add(trip.call_id)
        self._calls.setdefault(trip.run.owner, set()).add(trip.call_id)
        return live

    def _leave(self, trip: Trip, live: Live) -> None:
        del self._live[live.call_id]
        self._everyones.discard(live.call_id)
        calls = self._calls[trip.run.owner]
        calls.discard(live.call_id)
        if not calls:
            del self._calls[trip.run.owner]
        live.end()

    async def assess(self, request: CallRequest) -> tuple[Trip, Rejected | None]:
        """Steps 1 to 6 alone: what would happen, with nothing run and nothing written."""
        trip = self._begin(request)
        try:
            await self._assess(trip)
        except Rejected as refusal:
            return trip, refusal
        return trip, None

    def _begin(self, request: CallRequest) -> Trip:
        request = settle_request(request, self.registry.has, self.ports.secrets.known_values)
        return Trip(
            request=request,
            call_id=request.call_id or self.ports.ids.ulid(),
            received_unix_ms=self.ports.clock.now_unix_ms(),
            started_us=self.ports.clock.monotonic_us(),
        )

    async def _repeat(self, trip: Trip) -> Outcome:
        """The id was taken while this call was on its way: the first outcome, or a refusal under an id of its own."""
        first = await self._first_outcome(trip)
        if first is not None:
            return first
        trip.opened = None
        detail = f"Call id {trip.reused_id} was used before, for another call."
        reused = Rejected(Reason.CALL_ID_REUSED, detail, "Send a fresh call_id, or leave it out.")
        return await self._finish(trip, refused(reused))

    async def _from_start_to_end(self, trip: Trip) -> Outcome:
        try:
            ending = await self._walk(trip)
        except Rejected as refusal:
            ending = refused(refusal)
            refusal.__traceback__ = None  # the door's own is kept with the request, which the frames of this hold
        except DuplicateCall:
            return await finish_whatever_comes(self._repeat(trip))
        except StateError as error:
            ending = refused(Rejected(Reason.JOURNAL_DOWN, error.detail, error.hint))
        except asyncio.CancelledError:
            ending = Ending(status=Status.CANCELLED, reason=Reason.CANCELLED, message="The call was cancelled.")
        except Exception as error:
            log.exception("call %s failed inside Palyra", trip.call_id)
            ending = broken(error)
        ports = self.ports
        made = make_record(trip, ports, ending)  # 11
        # A door of many agents shares its commits with those that come next: one alone costs more than its wait.
        outcome = None if made is None or trip.request.project else close_now(ports, *made)  # 12
        if outcome is None and made is not None:
            outcome = await close_made(ports, *made)
        return outcome if outcome is not None else await finish_whatever_comes(self._finish(trip, ending, made))

    async def _walk(self, trip: Trip) -> Ending:
        with self._turns.announce(trip.run.run_id) as has_changed:
            await self._assess(trip)  # 1-6
            if isinstance(trip.decision, Ask):
                pending = await roads.approve(trip, self.ports, self._assess)  # 7
                if pending is not None:
                    return pending
            await mark_run(trip, self.ports)
            claim = claim_of(trip)
            while True:
                async with self._turns.take(trip.run.run_id, claim) as has_waited:
                    if has_waited or (claim is not NOTHING and has_changed()):
                        await assess_again(trip, self.ports, self._assess)
                    if claim_of(trip) == claim or claim == WHOLE:
                        return await self._open_and_run(trip)
                claim = WHOLE  # it would now touch more than it waited for

    async def _open_and_run(self, trip: Trip) -> Ending:
        """8 to 10, in its turn."""
        assert trip.tool is not None
        check_marked_since(trip, self.ports)
        check_still_asked(trip, self.ports)
        self._ended.check(trip)
        trip.opened = await self.ports.journal.open_call(make_opening(trip, self.ports))  # 8
        match trip.plan:
            case ProcessPlan() as plan if trip.tool.spec.kind is ToolKind.INSIDE:
                return await roads.run_inside(trip, plan, self.ports)  # 9, 10
            case ProcessPlan(lifetime="") as plan:
                return await self._run_process(trip, plan)  # 9, 10
            case ProcessPlan() as plan:
                return await self._start_background(trip, plan)  # 9
            case FetchPlan() as plan:
                return await roads.run_fetch(trip, plan, self.ports)  # 9, 10
            case WasmPlan() as plan:
                return await roads.run_plugin(trip, plan, self.ports)  # 9, 10
            case BuiltinPlan():
                return await self._run_builtin(trip)
            case None:
                raise AssertionError("a call without a plan is refused in step 6")

    async def _assess(self, trip: Trip, own: frozenset[RunLabel] = frozenset()) -> None:
        """`own`: labels that this call itself gave to its run, which say nothing against it."""
        ports = self.ports
        assessment.receive(trip)
        if trip.request.refusal is not None:
            raise trip.request.refusal
        standing = await assessment.read_standing(trip, ports)
        if own:
            facts = standing.facts or ports.run_facts.read(trip.run.owner)
            standing = replace(standing, facts=replace(facts, labels=facts.labels - own))
        trip.policy_number = standing.policy_number
        assessment.check_attempts_left(standing.budget)
        roads.check_pace(trip, self.ports, standing)
        shape = self._shapes.find(trip)
        if shape is None:
            assessment.validate(trip, self.registry)  # 1
        refuse_reused(trip)
        if shape is None:
            assessment.prepare(trip, ports)  # 2, 3
        else:
            assessment.recall(trip, ports, shape)  # 1-3
        authorise(trip, ports, standing)  # 4
        await check_budget(trip, ports, standing.budget)  # 5
        make_plan(trip, ports)  # 6
        self._shapes.keep(trip)

    async def _run_process(self, trip: Trip, plan: ProcessPlan) -> Ending:
        collector = self._collector(trip)
        collector.while_running = lambda: get_ready(trip, self.ports)  # of 11
        before = await look_before(trip, self.ports)
        began_unix_ms = self.ports.clock.now_unix_ms()
        cancelled = False
        try:
            bound = self._credentials(trip, plan)
            execution = await self.ports.executor.run(  # 9
                plan, collector, trip.request.source, credentials=bound, policy_number=trip.policy_number
            )
        except asyncio.CancelledError:
            cancelled = True
            execution = Execution(
                status=Status.CANCELLED,
                reason=Reason.CANCELLED,
                message="The call was cancelled.",
                stdout_bytes=collector.fed[StreamName.STDOUT],
                stderr_bytes=collector.fed[StreamName.STDERR],
                usage=Usage(wall_us=self.ports.clock.monotonic_us() - trip.started_us, cpu_us=None, max_rss_bytes=None),
                connections=collector.connections,
            )
        collector.finish(execution.status)  # 10
        trip.redactions = collector.redactions
        output = process_output(plan, execution, collector)
        if trip.sights is not None and (created := self.ports.look.appeared(trip.sights.workspace)):
            output["protected_created"] = collector.clean(list(created))
        if "protected_created" in output or (trip.look is not None and trip.look.created):
            await note_created(trip, self.ports, since_unix_ms=began_unix_ms)
        if before is not None:
            output["changes"] = await changes_since(before, trip, self.ports)
        success = execution.status is Status.COMPLETED and execution.exit_code == 0 and not cancelled
        return Ending(
            status=execution.status,
            success=success,
            reason=execution.reason,
            message=execution.message,
            hint=None if success else execution.hint or failed_hint(trip, plan, execution, collector),
            execution=execution,
            output=output,
        )

    def _collector(self, trip: Trip) -> Collector:
        if trip.request.learn:
            from palyra.engine.learn import LearningCollector

            return LearningCollector(trip, self.ports)
        secrets, request = self.ports.secrets.known_values(trip.run.run_id), trip.request
        return Collector(secrets, request.on_output, lagging=request.lagging)

    def _credentials(self, trip: Trip, plan: ProcessPlan) -> Sequence[Credential]:
        """Bound to hosts, for this caller; only where there is a network to send them over."""
        if plan.face is None or self.ports.host_credentials is None:
            return ()
        return self.ports.host_credentials.for_call(principal=str(trip.run.context.principal), tool=trip.request.tool)

    async def _start_background(self, trip: Trip, plan: ProcessPlan) -> Ending:
        if plan.lifetime == Lifetime.RUN_OWNED and trip.run.scope is RunScope.SESSION:
            from palyra.engine.owning import OwningRuns

            now_us, self._owning = self.ports.clock.monotonic_us(), self._owning or OwningRuns()
            self._owning.note(trip.run.owner, now_us=now_us, lifetime_ms=plan.limits.wall_ms)
        return await roads.start_background(trip, plan, self.ports)

    async def _run_builtin(self, trip: Trip) -> Ending:
        assert trip.tool is not None
        assert trip.call is not None
        output = await roads.run_builtin(trip, self.ports)
        output = redact_json(output, self.ports.secrets.known_values(trip.run.run_id))
        check_arguments(trip.tool.output_schema, output)
        usage = Usage(wall_us=self.ports.clock.monotonic_us() - trip.started_us)
        execution = Execution(status=Status.COMPLETED, exit_code=None, usage=usage)
        return Ending(status=Status.COMPLETED, success=True, execution=execution, output=output)

    async def _finish(self, trip: Trip, ending: Ending, made: tuple[Outcome, Closing] | None = None) -> Outcome:
        try:
            if made is None:
                ending = await keep_large_output(trip, self.ports, ending)
                made = make_closing(trip, self.ports, ending)  # 11
            outcome, closing = made
        except (ValueError, TypeError, RecursionError):
            log.exception("call %s: its record could not be made", trip.call_id)
            message = "Palyra could not describe this call."
            ending = Ending(status=Status.FAILED, reason=Reason.INTERNAL, message=message)
            outcome, closing = make_closing(bare(trip), self.ports, ending)
        if keeps_no_record(trip, ending):
            return outcome
        try:
            return with_receipt(outcome, await self.ports.journal.close_call(closing))  # 12
        except DuplicateCall:
            return await self._repeat(trip)
        except StateError as error:
            log.critical("call %s: its end could not be recorded: %s", trip.call_id, error.detail)
            return make_closing(trip, self.ports, unrecorded(ending, error))[0]
