"""One executor for every native plan: start held, set limits, tell, watch, end.

Rules: the program's own pidfd ends the wait; then the rest of its tree is killed, both pipes are drained within
a deadline, everything is reaped, and only then is anything returned. The first of these wins: the program ends,
the quota is exceeded (the tree is killed at once), the deadline passes (SIGTERM, a short grace, SIGKILL), the
task is cancelled (killed, reaped, raised again). All descriptors are close-on-exec; a call leaves no process,
no descriptor and no file behind.

Not here: the sandbox (held), its end (ending), what may be promised (sandbox).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass

from palyra.errors import Reason
from palyra.launch import _os
from palyra.launch.capture import Capture
from palyra.launch.ending import Ended, ask_to_end, end
from palyra.launch.executor import LaunchFailed, Sink, Source
from palyra.launch.feed import Feed, write_all
from palyra.launch.held import START_TIMEOUT_S, Held, Template, start_held, template_of
from palyra.launch.limits import limit_steps
from palyra.launch.message import launch_message, nonce_from
from palyra.launch.pool import Pool, PoolSize
from palyra.launch.waiting import readable, unbroken
from palyra.model.host import HostFacts
from palyra.model.outcome import Execution, Status, StreamName, Usage
from palyra.model.plan import ProcessPlan

GRACE_S = 0.5
"""Between SIGTERM at the deadline and SIGKILL."""
DRAIN_S = 2.0
"""How long output may still come after every process is dead: only a stranger can hold the pipe then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    status: Status
    program_ended: bool
    wall_us: int


class ProcessExecutor:
    """`warm` sizes the pool of sandboxes started ahead; without one every call starts cold."""

    def __init__(self, host: HostFacts, *, warm: PoolSize | None = None) -> None:
        self._host = host
        self.pool = Pool(self._start, self._abandon, warm) if warm is not None else None
        if host.subreaper:
            _os.become_subreaper()

    async def run(self, plan: ProcessPlan, sink: Sink, source: Source | None = None) -> Execution:
        template = template_of(plan)
        try:
            held = (self.pool and self.pool.take(template)) or await self._start(template)
            return await self.run_held(held, plan, sink, source)
        except LaunchFailed as error:
            return Execution(status=Status.FAILED, reason=Reason.SPAWN_FAILED, message=str(error))
        finally:
            if self.pool is not None:
                self.pool.wish(template)

    async def close(self) -> None:
        """End the sandboxes that wait; calls under way are not touched."""
        if self.pool is not None:
            await self.pool.close()

    async def _start(self, template: Template) -> Held:
        return await start_held(template, shell=self._host.shell, name=os.urandom(16).hex(), abandon=self._abandon)

    async def run_held(self, held: Held, plan: ProcessPlan, sink: Sink, source: Source | None = None) -> Execution:
        """Run a plan in a sandbox made from its template. The sandbox is used up, however this ends."""
        nonce = nonce_from(os.urandom(16))
        capture = Capture(
            stdout=held.take("stdout"),
            stderr=held.take("stderr"),
            quota_bytes=plan.limits.output_bytes,
            sink=sink,
            nonce=nonce,
        )
        feed = Feed(held.take("stdin"))
        feeding: asyncio.Task[None] | None = None
        try:
            await self._tell(held, plan, nonce)
            capture.start()
            feeding = asyncio.create_task(feed.run(plan.stdin, source if plan.stdin_streamed else None))
            watched = await _watch(held, plan, capture)
            ended = await unbroken(self._end(held, capture, program_ended=watched.program_ended))
        except BaseException:
            await unbroken(self._abandon(held))
            raise
        finally:
            capture.stop()
            await _stop_feeding(feeding, feed)
        if capture.tripped.done():
            capture.tripped.result()  # a sink that broke after the program ended
        return _execution(plan, watched=watched, ended=ended, capture=capture, feed=feed)

    async def _tell(self, held: Held, plan: ProcessPlan, nonce: bytes) -> None:
        uid = plan.run_as[0] if plan.run_as else self._host.uid
        try:
            message = launch_message(
                program=plan.program,
                arguments=plan.argv[1:],
                env=plan.env,
                cwd=plan.cwd,
                limits=limit_steps(plan.limits, uid=uid, own_user_namespace=plan.pid_namespace),
                nonce=nonce,
            )
        except ValueError as error:
            raise LaunchFailed(f"The program cannot be started: {error}.") from error
        os.set_blocking(held.control, False)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                told = await write_all(held.control, message, lambda _: None)
        except TimeoutError:
            told = False
        if not told:
            raise LaunchFailed("The sandbox ended before the program could be started.")
        os.close(held.take("control"))

    async def _end(self, held: Held, capture: Capture, *, program_ended: bool) -> Ended:
        ended = await end(held, subreaper=self._host.subreaper, program_ended=program_ended)
        await capture.drain(DRAIN_S)
        return ended

    async def _abandon(self, held: Held) -> None:
        await unbroken(end(held, subreaper=self._host.subreaper, program_ended=False))


async def _watch(held: Held, plan: ProcessPlan, capture: Capture) -> _Watched:
    """Until the program ends, the quota is exceeded or the deadline passes."""
    clock = asyncio.get_running_loop().time
    began = clock()
    exited = asyncio.ensure_future(readable(held.program_fd))
    status = Status.COMPLETED
    try:
        if not await _first(exited, capture, timeout_s=plan.limits.wall_ms / 1000):
            status = Status.TIMEOUT
            ask_to_end(held)
            await _first(exited, capture, timeout_s=GRACE_S)
        wall_us = round((clock() - began) * 1_000_000)
        program_ended = exited.done()
    finally:
        exited.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await exited
    if capture.tripped.done():
        capture.tripped.result()
    return _Watched(status=status, program_ended=program_ended, wall_us=wall_us)


async def _first(exited: asyncio.Future[None], capture: Capture, *, timeout_s: float) -> bool:
    done, _ = await asyncio.wait({exited, capture.tripped}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    return bool(done)


async def _stop_feeding(feeding: asyncio.Task[None] | None, feed: Feed) -> None:
    """The program is gone, so nobody reads; what a caller's stream raised is the caller's own affair."""
    if feeding is not None:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
    feed.close()


def _execution(plan: ProcessPlan, *, watched: _Watched, ended: Ended, capture: Capture, feed: Feed) -> Execution:
    output = sum(capture.counts.values())
    status, reason, message = _verdict(plan, watched, ended, capture)
    return Execution(
        status=status,
        reason=reason,
        message=message,
        exit_code=None if status is Status.FAILED else ended.exit_code,
        signal=None if status is Status.FAILED else ended.signal,
        stdout_bytes=capture.counts[StreamName.STDOUT],
        stderr_bytes=capture.counts[StreamName.STDERR],
        truncated=capture.exceeded,
        usage=Usage(
            wall_us=watched.wall_us,
            cpu_us=ended.cpu_us,
            max_rss_bytes=ended.max_rss_bytes,
            output_bytes=output,
        ),
        stdin_bytes=feed.count,
        stdin_sha256=feed.sha256() if plan.stdin or plan.stdin_streamed else None,
        degraded=(f"tree_kill: {ended.survivors}",) if ended.survivors else (),
    )


def _verdict(
    plan: ProcessPlan, watched: _Watched, ended: Ended, capture: Capture
) -> tuple[Status, Reason | None, str | None]:
    limits = plan.limits
    if capture.launch_failed:
        return Status.FAILED, Reason.SPAWN_FAILED, _launch_sentence(plan, capture.last_words)
    if capture.exceeded:
        sentence = f"The program wrote more than {limits.output_bytes} bytes and was ended."
        return Status.QUOTA_EXCEEDED, Reason.QUOTA_EXCEEDED, sentence
    if watched.status is Status.TIMEOUT:
        return Status.TIMEOUT, Reason.TIMEOUT, f"The program ran longer than {limits.wall_ms} ms and was ended."
    killed_late = ended.signal == signal.SIGKILL and (ended.cpu_us or 0) >= limits.cpu_ms * 1000
    if ended.signal == signal.SIGXCPU or killed_late:
        return Status.COMPLETED, Reason.CPU_LIMIT, f"The program used more than {limits.cpu_ms} ms of CPU time."
    return Status.COMPLETED, None, None


def _launch_sentence(plan: ProcessPlan, words: bytes) -> str:
    said = words.decode("utf-8", "replace").strip().split("\n")[-1]
    said = said.rpartition(": ")[2] if ": " in said else said
    sentence = f"{plan.program} could not be started in {plan.cwd}: {said or 'the shell gave up'}."
    if plan.pid_namespace and "not found" in said:
        sentence += " The sandbox shows only system folders, the workspace and read_roots."
    return sentence
