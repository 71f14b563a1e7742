"""The course of one program, whatever holds it: begun, captured, fed, watched, ended; then what became of it.

Rules: the first of these wins: the program ends, the quota is exceeded (the tree is killed at once), the deadline
passes (SIGTERM, a short grace, SIGKILL), the task is cancelled (killed, reaped, raised again). Whatever comes, both
pipes are drained within a deadline and `end` has run when this returns.

Not here: what is started and how it is killed (process and held, container).
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import time
from typing import Protocol

from palyra.errors import Reason
from palyra.launch.capture import Capture
from palyra.launch.ending import Ended
from palyra.launch.executor import Sink, Source, WhileEnding, WhileRunning
from palyra.launch.feed import Feed
from palyra.launch.waiting import has_ended, readable_within, unbroken
from palyra.model.outcome import Execution, Status, StreamName, Usage
from palyra.model.plan import ProcessPlan
from palyra.values import dataclass

GRACE_S = 0.5
"""Between SIGTERM at the deadline and SIGKILL."""
BRIEF_S = 0.003
"""How long a program's end, and that of its sandbox, is waited for without going back to the loop, where nothing else
runs: most of what agents run ends sooner, and each turn of the loop costs as much as a commit."""
DRAIN_S = 2.0
"""How long output may still come after every process is dead: only a stranger can hold the pipe then."""


class Running(Protocol):
    """A sandbox that is about to run one program. It is used up, however that ends."""

    @property
    def program_fd(self) -> int:
        """Readable when the program has ended."""

    @property
    def is_alone(self) -> bool:
        """No other program runs for this process: the loop may be held up for a moment."""

    def ends_within(self, timeout_s: float) -> bool:
        """Whether the program ends within a moment, waited for in place."""

    def is_gone(self, timeout_s: float) -> bool:
        """Whether all that is left after `cut_off` ends within a moment: then `end` waits for nothing."""

    def take(self, name: str) -> int:
        """Hand over stdin, stdout or stderr to someone who will close it."""

    def look_ahead(self) -> None:
        """While the program runs, and nobody waits for us: see to it that what comes after its end will be done."""

    async def begin(self) -> bytes:
        """The program runs when this returns, or LaunchFailed is raised. What stderr holds where it never started."""

    def ask_to_end(self) -> None: ...

    def cut_off(self) -> None:
        """The program has ended: begin killing the rest, as far as that needs no waiting."""

    async def end(self, *, program_ended: bool) -> Ended:
        """Kill what is left, wait until it is gone, reap, close. Not cut short; a second time does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    status: Status
    program_ended: bool
    wall_us: int


async def follow(running: Running, plan: ProcessPlan, sink: Sink, source: Source | None = None) -> Execution:
    try:
        began_ns = time.perf_counter_ns()
        nonce = await running.begin()
        capture = Capture(  # while the program starts
            stdout=running.take("stdout"),
            stderr=running.take("stderr"),
            quota_bytes=plan.limits.output_bytes,
            sink=sink,
            nonce=nonce,
        )
        feed = Feed(running.take("stdin"))
    except BaseException:
        await unbroken(running.end(program_ended=False))
        raise
    feeding: asyncio.Task[None] | None = None
    try:
        if plan.stdin or plan.stdin_streamed:
            feeding = asyncio.create_task(feed.run(plan.stdin, source if plan.stdin_streamed else None))
        else:
            feed.close()
        watched = None
        if running.is_alone and feeding is None:
            running.look_ahead()
            while_running: WhileRunning | None = getattr(sink, "while_running", None)
            if while_running is not None:
                while_running()
            watched = _watch_briefly(running, plan, began_ns)
        if watched is None:
            capture.start()
            watched = await _watch(running, plan, capture, began_ns)
        ended = await _finish(running, capture, watched, getattr(sink, "while_ending", None))
    except BaseException:
        await unbroken(running.end(program_ended=False))
        raise
    finally:
        capture.stop()
        if feeding is not None:
            await _stop_feeding(feeding)
        feed.close()
    if capture.tripped.done():
        capture.tripped.result()  # a sink that broke after the program ended
    return _execution(plan, watched=watched, ended=ended, capture=capture, feed=feed)


async def _finish(running: Running, capture: Capture, watched: _Watched, while_ending: WhileEnding | None) -> Ended:
    if watched.program_ended:
        running.cut_off()
        if while_ending is not None:
            while_ending()
        if running.is_alone and running.is_gone(BRIEF_S):
            ended = await running.end(program_ended=True)  # nothing is left to wait for
            capture.read_out()  # nobody is left who could write more
            capture.stop()
            return ended
    return await unbroken(_end(running, capture, program_ended=watched.program_ended))


async def _end(running: Running, capture: Capture, *, program_ended: bool) -> Ended:
    ended = await running.end(program_ended=program_ended)
    await capture.drain(DRAIN_S)
    return ended


def _watch_briefly(running: Running, plan: ProcessPlan, began_ns: int) -> _Watched | None:
    """None when it has not ended yet. What it wrote is in its pipes, and it waits there if they are full."""
    if not running.ends_within(min(BRIEF_S, plan.limits.wall_ms / 1000)):
        return None
    return _Watched(status=Status.COMPLETED, program_ended=True, wall_us=_us_since(began_ns))


async def _watch(running: Running, plan: ProcessPlan, capture: Capture, began_ns: int) -> _Watched:
    """Until the program ends, the quota is exceeded or the deadline passes."""
    status = Status.COMPLETED
    if not await readable_within(running.program_fd, plan.limits.wall_ms / 1000, or_done=capture.tripped):
        status = Status.TIMEOUT
        running.ask_to_end()
        await readable_within(running.program_fd, GRACE_S, or_done=capture.tripped)
    wall_us = _us_since(began_ns)
    if capture.tripped.done():
        capture.tripped.result()
    return _Watched(status=status, program_ended=has_ended(running.program_fd), wall_us=wall_us)


def _us_since(began_ns: int) -> int:
    """Of the program's life: from when it was let go, however soon somebody looked."""
    return (time.perf_counter_ns() - began_ns) // 1000


async def _stop_feeding(feeding: asyncio.Task[None]) -> None:
    """The program is gone, so nobody reads; what a caller's stream raised is the caller's own affair."""
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)


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
    if capture.launch_failed or ended.never_started:
        return Status.FAILED, Reason.SPAWN_FAILED, _launch_sentence(plan, capture.last_words or _error_words(ended))
    if capture.exceeded:
        sentence = f"The program wrote more than {limits.output_bytes} bytes and was killed."
        return Status.QUOTA_EXCEEDED, Reason.QUOTA_EXCEEDED, sentence
    if watched.status is Status.TIMEOUT:
        return Status.TIMEOUT, Reason.TIMEOUT, f"The program ran longer than {limits.wall_ms} ms and was killed."
    if ended.signal is not None and _is_out_of_cpu(limits.cpu_ms * 1000, watched, ended):
        return Status.COMPLETED, Reason.CPU_LIMIT, f"The program used more than {limits.cpu_ms} ms of CPU time."
    if ended.out_of_memory:
        sentence = f"The call used more than {limits.memory_bytes} bytes of memory in all, and the kernel killed it."
        return Status.COMPLETED, Reason.MEMORY_LIMIT, sentence
    return Status.COMPLETED, None, None


def _is_out_of_cpu(limit_us: int, watched: _Watched, ended: Ended) -> bool:
    """Whether the kernel ended it at its limit; a program that sends itself SIGXCPU has not used that much. Half of it
    is enough: for its limit the kernel counts ticks, for what was used the time between them. Where that is not known
    it is at most what all processors had."""
    if ended.signal == signal.SIGXCPU:
        used_us = watched.wall_us * (os.cpu_count() or 1) if ended.cpu_us is None else ended.cpu_us
        return 2 * used_us >= limit_us
    return ended.signal == signal.SIGKILL and (ended.cpu_us or 0) >= limit_us


def _error_words(ended: Ended) -> bytes:
    """What the start program ends with is the number of the error; a shell says it in its own words."""
    if not ended.exit_code:
        return b""
    return b"not found" if ended.exit_code == errno.ENOENT else os.strerror(ended.exit_code).encode()


def _launch_sentence(plan: ProcessPlan, words: bytes) -> str:
    said = words.decode("utf-8", "replace").strip().split("\n")[-1]
    said = said.rpartition(": ")[2] if ": " in said else said
    sentence = f"{plan.program} could not be started in {plan.cwd}: {said or 'the launcher gave up'}."
    if plan.pid_namespace and "not found" in said and plan.road == "held":
        sentence += " The sandbox shows only system folders, the workspace and read_roots."
    if "not found" in said and plan.road == "container":
        sentence += " A container has its image's programs alone; an operator puts this one into container_image."
    return sentence
