"""One executor for every native plan: a held shell that is told what to become, or a container client.

Rules: the program's own pidfd ends the wait; then the rest of its tree is killed, both pipes are drained within
a deadline, everybody inside is gone, and only then is anything returned; our own processes around them are reaped then
or a moment later (leftovers). All descriptors are close-on-exec; a call leaves no process, no descriptor and no file
behind.

Not here: the sandbox (held), a program's course (course), its end (ending), what may be promised (sandbox).
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from palyra.launch import _os
from palyra.launch.at_work import AtWork
from palyra.launch.course import Running, follow
from palyra.launch.data_files import DataFiles
from palyra.launch.ending import Ended, ask_to_end, cut_off, end, end_gone, ended_with, is_gone, is_told, tells_within
from palyra.launch.executor import Egress, LaunchFailed, Serving, Sink, Source, not_started
from palyra.launch.held import Held, Template, start_held, template_of
from palyra.launch.jobs import Jobs
from palyra.launch.leftovers import Leftovers
from palyra.launch.network import Unreachable
from palyra.launch.telling import Orders, tell
from palyra.launch.waiting import ends_within, has_ended, is_collected_within, unbroken
from palyra.model.host import HostFacts
from palyra.model.outcome import Connection, Execution
from palyra.model.plan import ProcessPlan
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.egress.credentials import Credential
    from palyra.launch.container import ContainerRoad
    from palyra.launch.etc_folder import EtcFolders
    from palyra.launch.pool import Pool, PoolSize

FDS_PER_CALL = 25
"""What one call has open at its most: pipes, pidfds, data for the launcher, and room for the journal beside it."""

MAX_TEMPLATES = 64


def _calls_at_once() -> int:
    """More would run out of descriptors in the middle of a start, or leave none to record the others' ends."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else max(2, (soft - 96) // FDS_PER_CALL)


class ProcessExecutor:
    """`warm` sizes the pool of sandboxes started ahead; without one every call starts cold. `egress` answers inside
    sandboxes with granted hosts; without one such a call is not started."""

    def __init__(self, host: HostFacts, *, warm: PoolSize | None = None, egress: Egress | None = None) -> None:
        self._host = host
        self._egress = egress
        self._containers: ContainerRoad | None = None
        self._jobs = Jobs()
        self._files = DataFiles()
        self._etc: EtcFolders | None = None
        self._leftovers = Leftovers()
        self._starts = 0
        self._at_work = AtWork(_calls_at_once())
        self._orders = Orders(host)
        self._shared = _Shared(host=host, leftovers=self._leftovers, at_work=self._at_work, orders=self._orders)
        self._templates: dict[int, tuple[ProcessPlan, Template]] = {}
        self.pool = self._make_pool(warm) if warm is not None else None
        if host.subreaper:
            _os.become_subreaper()

    def _make_pool(self, size: PoolSize) -> Pool:
        from palyra.launch.pool import Pool

        return Pool(self._start, self._abandon, size, self._at_work)

    async def run(
        self,
        plan: ProcessPlan,
        sink: Sink,
        source: Source | None = None,
        *,
        credentials: Sequence[Credential] = (),
        policy_number: int | None = None,
    ) -> Execution:
        """`policy_number`: what runs here begins at once, and nobody is asked again."""
        if plan.road == "container":
            if self._containers is None:
                from palyra.launch.container import ContainerRoad  # seldom taken

                self._containers = ContainerRoad()
            return await self._containers.run(plan, sink, source)
        if not self._at_work.has_entered():
            await self._at_work.turn()
        try:
            return await self._run_native(plan, sink, source, credentials)
        finally:
            self._at_work.leave()

    async def _run_native(
        self, plan: ProcessPlan, sink: Sink, source: Source | None, credentials: Sequence[Credential]
    ) -> Execution:
        try:
            template = self._template(plan)
        except LaunchFailed as error:
            return not_started(error)
        pool = self.pool
        try:
            held = pool.take(template) if pool is not None else None
            if held is None:
                held = await self._start(template, is_alone=self._at_work.running == 1, known=plan)
            return await self.run_held(held, plan, sink, source, credentials, template)
        except LaunchFailed as error:
            return not_started(error)
        finally:
            if pool is not None:
                pool.wish(template)

    def _template(self, plan: ProcessPlan) -> Template:
        """Of the very same plan the same one: a call that is asked again comes with the plan it had."""
        known = self._templates.get(id(plan))
        if plan.stdin:  # what may be large is not kept
            return template_of(plan)
        if known is None or known[0] is not plan:
            known = plan, template_of(plan)
            while len(self._templates) >= MAX_TEMPLATES:
                del self._templates[next(iter(self._templates))]
            self._templates[id(plan)] = known  # it holds the plan, so that no other has this id meanwhile
        return known[1]

    async def begin(self, plan: ProcessPlan) -> Running:
        """Start a program that its caller speaks with over its pipes; the caller takes all three and ends it."""
        held = await self._start(template_of(plan), stays=True)
        program = _HeldProgram(held, plan, self._shared)
        try:
            await program.begin()
        except BaseException:
            await unbroken(program.end(program_ended=False))
            raise
        return program

    @property
    def etc(self) -> EtcFolders:
        """For whoever starts a second sandbox."""
        if self._etc is None:
            from palyra.launch.etc_folder import EtcFolders

            self._etc = EtcFolders(self._host)
        return self._etc

    async def close(self) -> None:
        """End the sandboxes that wait; calls under way are not touched."""
        if self.pool is not None:
            await self.pool.close()
        self._jobs.close()
        self._files.close()
        if self._etc is not None:
            self._etc.close()
        await self._leftovers.ended()
        _os.end_helpers()

    async def _start(
        self, template: Template, *, is_alone: bool = False, known: ProcessPlan | None = None, stays: bool = False
    ) -> Held:
        """`known`: what it will run, where a call waits for it. `stays`: it may live for days."""
        if self._starts and template.pid_max:  # whoever starts a second one starts more
            self._jobs.get_ready()
        lookup = not stays and (self._starts or known is None)
        self._starts += 1
        short = self.etc.shortened(template) if lookup else template
        if short is template:
            return await self._hold(template, is_alone=is_alone, known=known)
        try:
            held = await self._hold(short, is_alone=is_alone, known=known)
        except LaunchFailed:
            if not self.etc.is_to_blame(template):
                raise
            return await self._hold(template, is_alone=is_alone, known=known)
        self.etc.is_seen_to_work = True
        return held

    async def _hold(self, template: Template, *, is_alone: bool, known: ProcessPlan | None) -> Held:
        def meanwhile(held: Held) -> None:
            if known is not None and template.is_started_by_us:  # a shell's says more, once it is there
                held.order = self._orders.make(held, known)
            if is_alone or not self._at_work.running:
                self._leftovers.let_go_here()
                self._files.get_ready(template.data)

        return await start_held(
            template,
            shell=self._host.shell,
            name=os.urandom(16).hex(),
            jobs=self._jobs,
            abandon=self._abandon,
            open_data=self._files.open,
            meanwhile=meanwhile,
            is_alone=is_alone,
            is_known=known is not None,
            keeps_usage=self._host.subreaper,
        )

    async def run_held(
        self,
        held: Held,
        plan: ProcessPlan,
        sink: Sink,
        source: Source | None = None,
        credentials: Sequence[Credential] = (),
        template: Template | None = None,
    ) -> Execution:
        """Run a plan in a sandbox made from its template. The sandbox is used up, however this ends. `template`: one
        like it is wanted for the next call."""
        try:
            serving = self._serve(held, plan, credentials)
        except BaseException:
            await self._abandon(held)
            raise
        program = _HeldProgram(held, plan, self._shared)
        if self.pool is not None and template is not None:
            program.wish = self.pool, template
        if serving is None:
            return await follow(program, plan, sink, source)
        unreachable = Unreachable(held.init)
        try:
            execution = await follow(program, plan, sink, source)
        finally:
            connections = (*serving.finish(), *_unreachable(unreachable.close()))
            sink.reached(connections)
        return replace(execution, connections=connections)

    def _serve(self, held: Held, plan: ProcessPlan, credentials: Sequence[Credential]) -> Serving | None:
        if plan.face is None:
            return None
        if self._egress is None:
            raise LaunchFailed("Nothing in this process can serve the hosts that were granted.")
        return self._egress.serve(plan, held.take_listeners(), credentials)

    async def _abandon(self, held: Held) -> None:
        await unbroken(end(held, subreaper=self._host.subreaper, program_ended=False))


def _unreachable(count: int) -> tuple[Connection, ...]:
    """The kernel refused these itself, so nobody knows which address it was."""
    if not count:
        return ()
    why = f"{count} tries at addresses that are not granted"
    return (Connection(host="*", port=0, verdict="unreachable", why=why),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What the programs of one executor have in common."""

    host: HostFacts
    leftovers: Leftovers
    at_work: AtWork
    orders: Orders


class _HeldProgram:
    """A held shell and what it is to become."""

    def __init__(self, held: Held, plan: ProcessPlan, shared: _Shared) -> None:
        self._held = held
        self._plan = plan
        self._host = shared.host
        self._shared = shared
        self._is_gone = False
        self._is_over = False
        self._began = 0.0
        self.wish: tuple[Pool, Template] | None = None
        """Of which pool another like it is wanted, once this one is used up."""

    @property
    def program_fd(self) -> int:
        """Where the program has no descriptor of its own, the sandbox's first process ends with it."""
        return self._held.program_fd if self._held.program_fd >= 0 else self._held.init_fd

    @property
    def is_alone(self) -> bool:
        return self._shared.at_work.running == 1

    def ends_within(self, timeout_s: float) -> bool:
        held = self._held
        if held.init_fd < 0 or (self._host.subreaper and held.ready < 0):
            return ends_within(self.program_fd, timeout_s)
        if held.program_fd < 0 or self._host.subreaper:  # whose usage is known when everybody was collected
            return tells_within(held, timeout_s) if held.ready >= 0 else ends_within(held.init_fd, timeout_s)
        return is_collected_within(held.program_fd, held.init_fd, timeout_s)

    def is_gone(self, timeout_s: float) -> bool:
        """Where nothing is to be learnt from it the launcher's own end is not waited for: it has started one process,
        the first one inside, and that is gone with everything else."""
        held = self._held
        held.launcher_stays = not self._host.subreaper and is_told(held, timeout_s)
        self._is_gone = is_gone(held, timeout_s)
        return self._is_gone

    def take(self, name: str) -> int:
        return self._held.take(name)

    def look_ahead(self) -> None:
        if self.wish is not None:
            self.wish[0].wish_ahead(self.wish[1])
        self._shared.leftovers.expect()

    def ask_to_end(self) -> None:
        ask_to_end(self._held)

    def cut_off(self) -> None:
        cut_off(self._held, subreaper=self._host.subreaper)

    async def end(self, *, program_ended: bool) -> Ended:
        if self._is_over:  # cancelled while it ended: nothing is left, and its numbers may be others' by now
            return Ended()
        ended = await self._end(program_ended=program_ended)
        self._is_over = True
        return ended

    async def _end(self, *, program_ended: bool) -> Ended:
        held, leftovers = self._held, self._shared.leftovers
        if not held.cut_off:
            return await end(held, subreaper=self._host.subreaper, program_ended=program_ended)
        if self._is_gone and program_ended and held.launcher_stays and held.status is not None:
            return self._leave(held.status)
        kept, domain, launcher = held.take("mounts_fd"), held.domain if held.emptied else None, (0, -1)
        if held.launcher_stays and (self._is_gone or has_ended(held.init_fd)):
            launcher, held.pid = (held.pid, held.take("pid_fd")), 0
        if domain is not None:
            held.domain = None
        try:
            if self._is_gone and program_ended:
                return end_gone(held, subreaper=self._host.subreaper)
            return await end(held, subreaper=self._host.subreaper, program_ended=program_ended)
        finally:
            if kept >= 0 or launcher[0] or domain is not None:
                fds = [kept] if kept >= 0 else []
                leftovers.keep(fds=fds, launcher=launcher, domain=domain, ran_s=time.monotonic() - self._began)

    def _leave(self, status: int) -> Ended:
        """Everybody is gone, and how the program ended is known: what is left is closed and reaped after the answer."""
        held, launcher = self._held, (self._held.pid, self._held.take("pid_fd"))
        held.pid = 0
        _os.forget(held.init)
        ran_s = time.monotonic() - self._began
        self._shared.leftovers.keep(fds=held.take_rest(), launcher=launcher, ran_s=ran_s)
        return ended_with(status)

    async def begin(self) -> bytes:
        held = self._held
        order = held.order or self._shared.orders.make(held, self._plan)
        self._began = time.monotonic()
        if held.domain is not None:
            held.began = _os.last_pid(), self._began
        await tell(held, order, subreaper=self._host.subreaper)
        return order.nonce
