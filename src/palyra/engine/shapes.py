"""Calls that were asked before: agents run the same few commands over and over.

What follows from a call's words, its run and what the disk shows is worked out once, and used again while all of these
are equal. Rules: remembered is only what pure rooms answered, beside everything they were asked with: a run on equal
terms, the same bytes of input, equal sights. The disk is looked at anew for every call; policy is asked whenever
anything that its policies look at has changed, the bundle too; a plan is taken only for the very job it was made from.
A call that was refused is not remembered, and the memory is bounded.

Not here: the rooms themselves (engine/assessment, decision, planning), what of a request can change (policy/request).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from palyra.canon import Json, canonical_plain, sorted_json
from palyra.engine.trip import CallRequest, Trip
from palyra.model.grant import Decision
from palyra.model.job import Facts, Job
from palyra.model.plan import Plan
from palyra.model.sights import LookRequest, Sights
from palyra.policy.bundle import PolicyBundle
from palyra.policy.request import Request
from palyra.protocol.process_input import ProcessInput
from palyra.protocol.registry import RegisteredTool
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.engine.claims import Claim
    from palyra.engine.fixed import Fixed

MAX_SHAPES = 128
MAX_INPUT_BYTES = 4096
"""Longer ones are seldom sent twice, and would fill the memory."""

Key = tuple[str, str, str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What policy was asked and said."""

    cedar: Request
    bundle: PolicyBundle
    seen: object
    """What of the request the bundle's policies look at."""
    decision: Decision


@dataclass(slots=True, kw_only=True, eq=False)
class Shape:
    """One call on its run's terms, as it was assessed last: a process that ends with its call and is fed nothing, or a
    tool that the engine answers itself, which has neither a program nor anything to look at."""

    terms: tuple[object, ...]
    tool: RegisteredTool
    input: Mapping[str, Json]
    input_bytes: bytes
    input_sha256: str
    facts: Facts
    process: ProcessInput | None = None
    look: LookRequest | None = None
    sights: Sights | None = None
    job: Job | None = None
    """Before a budget narrowed it."""
    asked: Asked | None = None
    plan: Plan | None = None
    """Of `job`."""
    plan_bytes: bytes = b""
    claim: Claim | None = None
    fixed: Fixed | None = None
    """Of its records."""
    is_kept: bool = False


def process_shape(trip: Trip, process: ProcessInput) -> Shape | None:
    """What is worked out for this call, for when it is asked again."""
    assert trip.tool is not None
    assert trip.call is not None
    assert trip.look is not None
    assert trip.sights is not None
    assert trip.facts is not None
    assert trip.job is not None
    if process.lifetime is not None or process.stdin or trip.request.learn:
        return None
    return Shape(
        terms=trip.run.terms,
        tool=trip.tool,
        input=trip.call.input,
        input_bytes=trip.input_bytes,
        input_sha256=trip.input_sha256,
        process=process,
        look=trip.look,
        sights=trip.sights,
        facts=trip.facts,
        job=trip.job,
    )


def answered_shape(trip: Trip) -> Shape | None:
    """Of a tool that the engine answers; where the input's bytes give the very same value again."""
    assert trip.tool is not None
    assert trip.call is not None
    assert trip.facts is not None
    if canonical_plain(trip.call.input) is None:
        return None
    return Shape(
        terms=trip.run.terms,
        tool=trip.tool,
        input=trip.call.input,
        input_bytes=trip.input_bytes,
        input_sha256=trip.input_sha256,
        facts=trip.facts,
    )


class Shapes:
    """Those of one engine, and so of one configuration, one host and one registry of tools."""

    def __init__(self) -> None:
        self._known: dict[Key, Shape] = {}
        self._answered: dict[Key, Shape] = {}
        """Of tools that the engine answers: cheap to work out anew, and not to push out the others."""

    def find(self, trip: Trip) -> Shape | None:
        request = trip.request
        given = request.input
        data = given if isinstance(given, bytes) else sorted_json(given)
        key = _key(request, data)
        shape = None if key is None else self._known.get(key) or self._answered.get(key)
        if shape is None or (shape.terms is not trip.run.terms and shape.terms != trip.run.terms):
            return None
        if data is not given and given != shape.input:  # unequal values may be written alike (canon.sorted_json)
            return None
        return shape

    def keep(self, trip: Trip) -> None:
        """After step 6: it was allowed, and can be run."""
        shape = trip.shape
        if shape is None or shape.is_kept or shape.plan is None:
            return
        given = trip.request.input
        # Two plain mappings with the same canonical bytes are the same input.
        key = _key(trip.request, given if isinstance(given, bytes) else canonical_plain(given))
        if key is None:
            return
        shape.is_kept = True
        memory = self._answered if shape.look is None else self._known
        memory.pop(key, None)
        while len(memory) >= MAX_SHAPES:
            del memory[next(iter(memory))]
        memory[key] = shape


def _key(request: CallRequest, data: bytes | None) -> Key | None:
    """None for a call that is not remembered."""
    if data is None or len(data) > MAX_INPUT_BYTES or request.source is not None or request.learn:
        return None
    return request.run.owner.principal, request.run.workspace, request.tool, data
