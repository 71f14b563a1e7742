"""A call's record as a page shows it: steps in time, what was decided, planned, reached, said and attested. Pure.

Everything in a record was chosen by somebody: a key may be missing or hold another kind of value than expected, and
the page must still come. Not here: reading the record (operators/calls), the page (console/calls).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from palyra.canon import Json
from palyra.daemon.console.plots import Step
from palyra.values import dataclass

STREAMS = ("stdout", "stderr")
MAX_CONNECTIONS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the output."""

    name: str
    text: str
    bytes: int | None
    source: str
    """As the API names it, for a download."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    host: str
    port: str
    verdict: str
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallView:
    call_id: str
    run_id: str
    tool: str
    principal: str
    status: str
    reason: str | None
    message: str
    hint: str
    exit_code: Json
    signal: Json
    truncated: bool
    steps: tuple[Step, ...]
    input: Json
    plan: Mapping[str, Json]
    parts: tuple[Part, ...]
    reached: tuple[Reached, ...]
    usage: Mapping[str, Json]
    attestation: Mapping[str, Json]
    enforcement: Mapping[str, Json]
    receipt: Mapping[str, Json]
    approval_id: str | None
    indexes: tuple[int, ...]
    redactions: Mapping[str, Json]


def call_view(record: Mapping[str, Json], tool: str, reason: str | None) -> CallView:
    outcome, details = _table(record.get("outcome")), _table(record.get("details"))
    output, attested = _table(outcome.get("output")), _table(outcome.get("attestation"))
    entries = [item for item in _list(record.get("entries")) if isinstance(item, Mapping)]
    return CallView(
        call_id=str(record.get("call_id")),
        run_id=str(record.get("run_id")),
        tool=tool,
        principal=str(record.get("principal")),
        status=str(record.get("status")),
        reason=reason,
        message=_text(outcome.get("message")),
        hint=_text(outcome.get("hint")),
        exit_code=output.get("exit_code"),
        signal=output.get("signal"),
        truncated=output.get("truncated") is True,
        steps=steps_of(entries, attested, outcome),
        input=details.get("input"),
        plan=_table(details.get("plan")),
        parts=parts_of(output),
        reached=reached_of(output),
        usage=_table(outcome.get("usage")),
        attestation=attested,
        enforcement=_table(attested.get("sandbox_enforcement")),
        receipt=_table(record.get("receipt")),
        approval_id=_text(attested.get("approval_id")) or None,
        indexes=tuple(item["index"] for item in entries if isinstance(item.get("index"), int)),
        redactions=_table(attested.get("redactions")),
    )


def parts_of(output: Mapping[str, Json]) -> tuple[Part, ...]:
    """A program's streams, or the result; never both in one."""
    streams = tuple(
        Part(name=name, text=_text(output.get(name)), bytes=_count(output.get(f"{name}_bytes")), source=name)
        for name in STREAMS
        if isinstance(output.get(name), str)
    )
    if streams:
        return streams
    if "result" in output:
        return (Part(name="result", text=_pretty(output["result"]), bytes=None, source="result"),)
    return (Part(name="output", text=_pretty(output), bytes=None, source=""),) if output else ()


def reached_of(output: Mapping[str, Json]) -> tuple[Reached, ...]:
    found = _list(_table(output.get("egress")).get("connections"))
    return tuple(
        Reached(
            host=_text(one.get("host")),
            port=str(one.get("port", "")),
            verdict=_text(one.get("verdict")),
            bytes_up=_count(one.get("bytes_up")) or 0,
            bytes_down=_count(one.get("bytes_down")) or 0,
        )
        for one in found[:MAX_CONNECTIONS]
        if isinstance(one, Mapping)
    )


def steps_of(
    entries: Sequence[Mapping[str, Json]], attested: Mapping[str, Json], outcome: Mapping[str, Json]
) -> tuple[Step, ...]:
    """From when it was received, by the times of its entries; what it used is drawn where it ran."""
    times = [_at(item) for item in entries]
    received = _count(attested.get("executed_at_unix_ms"))
    known = [at for at in times if at is not None]
    if received is None or not known:
        return ()
    if len(known) == 1:
        return (Step(name="decided, not run", begin_us=0, end_us=max(0, known[0] - received) * 1000, part="refused"),)
    opened, closed = (max(0, at - received) * 1000 for at in known[:2])
    wall = _count(_table(outcome.get("usage")).get("wall_us")) or 0
    ran = min(wall, max(0, closed - opened)) if closed > opened else wall
    end = max(closed, opened + ran)
    return (
        Step(name="decided and planned", begin_us=0, end_us=opened, part="wait"),
        Step(name="ran", begin_us=opened, end_us=opened + ran, part="run"),
        Step(name="attested, recorded", begin_us=opened + ran, end_us=end, part="wait"),
    )


def _at(item: Mapping[str, Json]) -> int | None:
    predicate = _table(_table(item.get("entry")).get("predicate"))
    return _count(_table(predicate.get("place")).get("at_unix_ms"))


def _table(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Json) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _pretty(value: Json) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
