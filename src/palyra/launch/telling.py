"""What a held sandbox is told once its program is known, and the telling: from then on the program runs.

An order is made of the plan and of what the sandbox inherited; where a call waits for its sandbox that is done while
the launcher is busy. Rules: nothing of it is written before everything was verified and the intent is durable; a
launcher that still waits is let go only when its message is there.

Not here: the words themselves (message, sandbox/start_message), the limits (limits), when (process).
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from palyra.launch import _os
from palyra.launch.executor import LaunchFailed
from palyra.launch.feed import write_all
from palyra.launch.held import START_TIMEOUT_S, Held
from palyra.launch.limits import Ceilings, Step, counts_others, limit_held, limit_steps
from palyra.launch.message import launch_message, nonce_from
from palyra.sandbox.start_message import start_message
from palyra.sandbox.starter import is_started_by_it
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.model.host import HostFacts
    from palyra.model.plan import ProcessPlan

MAX_KNOWN = 64
MAX_KNOWN_BYTES = 8192
_ENDED = "The sandbox ended before the program could be started."


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    message: bytes
    nonce: bytes
    """Says on stderr that the program was never started."""


@dataclass(frozen=True, slots=True)
class _Known:
    plan: ProcessPlan
    ceilings: Ceilings
    before: bytes
    after: bytes
    """Of the message, around its nonce."""


class Orders:
    """One for each executor. A plan that comes again says the same again, but for its nonce."""

    def __init__(self, host: HostFacts) -> None:
        self._host = host
        self._known: dict[int, _Known] = {}

    def make(self, held: Held, plan: ProcessPlan) -> Order:
        known = self._known.get(id(plan))
        if known is None or known.plan is not plan or known.ceilings != held.ceilings:
            return self._make_first(held, plan)
        nonce = nonce_from(os.urandom(16))
        return Order(message=b"".join((known.before, nonce, known.after)), nonce=nonce)

    def _make_first(self, held: Held, plan: ProcessPlan) -> Order:
        order = make_order(held, plan, self._host)
        uid = plan.run_as[0] if plan.run_as else self._host.uid
        if not is_started_by_it(plan.launcher) or counts_others(uid=uid, own_user_namespace=plan.pid_namespace):
            return order
        if len(order.message) <= MAX_KNOWN_BYTES and not plan.stdin:  # what may be large is not kept
            before, _, after = order.message.partition(order.nonce)
            while len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            # It holds the plan, so that no other has this id meanwhile.
            self._known[id(plan)] = _Known(plan, held.ceilings, before, after)
        return order


def make_order(held: Held, plan: ProcessPlan, host: HostFacts) -> Order:
    """LaunchFailed for what no program can be given."""
    nonce = nonce_from(os.urandom(16))
    uid = plan.run_as[0] if plan.run_as else host.uid
    limits = limit_steps(plan.limits, uid=uid, own_user_namespace=plan.pid_namespace, inherited=held.ceilings)
    try:
        if is_started_by_it(plan.launcher):
            return Order(message=_start_message(plan, limits, nonce), nonce=nonce)
        return Order(message=_shell_message(held, plan, limits, nonce, host.shell), nonce=nonce)
    except ProcessLookupError as error:
        raise LaunchFailed(_ENDED) from error
    except ValueError as error:
        raise LaunchFailed(f"The program cannot be started: {error}.") from error


def _start_message(plan: ProcessPlan, limits: Sequence[Step], nonce: bytes) -> bytes:
    return start_message(
        program=plan.program,
        arguments=plan.argv[1:],
        env=plan.env,
        cwd=plan.cwd,
        limits=[(step.kind, *step.exact) for step in limits],
        nonce=nonce,
        limit_first=plan.pid_namespace,
    )


def _shell_message(held: Held, plan: ProcessPlan, limits: Sequence[Step], nonce: bytes, shell: str) -> bytes:
    limited = plan.pid_namespace and limit_held((held.init, held.program), limits)
    return launch_message(
        program=plan.program,
        arguments=plan.argv[1:],
        env=plan.env,
        cwd=plan.cwd,
        limits=() if limited else limits,
        nonce=nonce,
        limit_first=plan.pid_namespace and not limited,
        busybox=_is_busybox(shell),
    )


@lru_cache(maxsize=8)
def _is_busybox(shell: str) -> bool:
    return os.path.basename(os.path.realpath(shell)).startswith("busybox")


async def tell(held: Held, order: Order, *, subreaper: bool) -> None:
    if held.block >= 0 and subreaper:  # or it would reap the first process inside, and its usage with it
        _os.send_signal(held.pid_fd, signal.SIGSTOP)
    if len(order.message) > select.PIPE_BUF:  # somebody must read
        _let_go(held)
    if not await _write(held.control, order.message):
        raise LaunchFailed(_ENDED)
    os.close(held.take("control"))
    _let_go(held)


def _let_go(held: Held) -> None:
    """Of a launcher that still waits: from here on the program is whatever the first process inside starts."""
    if held.block < 0:
        return
    block = held.take("block")
    try:
        os.write(block, b"x")
    except BrokenPipeError as error:
        raise LaunchFailed(_ENDED) from error
    finally:
        os.close(block)
    held.program = held.init


async def _write(control: int, message: bytes) -> bool:
    if len(message) <= select.PIPE_BUF:  # an empty pipe takes that much at once
        try:
            return os.write(control, message) == len(message)
        except BrokenPipeError:
            return False
    os.set_blocking(control, False)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            return await write_all(control, message, lambda _: None)
    except TimeoutError:
        return False
