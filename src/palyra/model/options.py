"""What a run and a call may be asked with, as types: for editors and type checkers of embedders' code, at every face.

Nothing is here at run time but names. What each means stands where it is used: `AsyncPalyra.run`, `AsyncRun.call`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

from palyra.model.budget import Allowance, Spending
from palyra.model.call import OperatorGrant
from palyra.model.limits import Limits
from palyra.model.outcome import StreamName


class Fewer(TypedDict, total=False):
    """What a run takes away from what is configured under these names; it never adds."""

    allowed_tools: Sequence[str]
    allowed_capabilities: Sequence[str]
    allowed_executables: Sequence[str]
    allowed_egress_hosts: Sequence[str]


class RunOptions(Fewer, total=False):
    run_id: str | None
    device: str
    channel: str
    limits: Limits | None
    tier: str | None
    egress: str | None
    grant: OperatorGrant | None
    calls_max: int | None
    budget: Allowance


class RemoteCallOptions(TypedDict, total=False):
    project: bool
    wait_s: float
    changes: bool


class CallOptions(RemoteCallOptions, total=False):
    call_id: str | None
    on_output: Callable[[StreamName, bytes], None] | None


class Gift(TypedDict, total=False):
    """More of a run's budget."""

    calls: int
    attempts: int
    more: Spending
