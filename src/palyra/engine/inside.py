"""palyra.fs.*: Palyra's own programs, run in a sandbox like any other, and what their answer becomes.

Before: which arguments are paths, and a job with the least it needs: no network, small limits, the workspace read-only
unless the tool writes. After: the answer is one JSON value made over foreign data, so it is bounded, checked against
the tool's output schema and redacted before anyone sees it; contents to undo a change with become an artifact.

Not here: the programs (inside/), whether the facts are allowed (policy), where the order stands (engine/walk).
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson

from palyra.canon import Json
from palyra.engine.created import created_before
from palyra.engine.ports import Ports
from palyra.engine.trip import Ending, Trip
from palyra.errors import Reason, Rejected, StateError
from palyra.guard.files import guard_inside
from palyra.guard.protected import PROTECTED_NAMES
from palyra.model.call import Tier, ToolCall
from palyra.model.job import Job
from palyra.model.limits import MIB, Limits
from palyra.model.net import NO_NETWORK
from palyra.model.outcome import Connection, Execution, Status, StreamName, Usage
from palyra.model.plan import ProcessPlan
from palyra.model.sights import LookRequest, PathCandidate, Sights
from palyra.model.tool import Capability
from palyra.protocol.schema import check_arguments
from palyra.redact.stream import Redactor
from palyra.redact.values import redact_json_counted
from palyra.sandbox.planner import needs_for
from palyra.sandbox.view import OWN_FOLDER

log = logging.getLogger("palyra.engine")

PYTHON = "python3"
SYSTEM_PATH = ("/usr/bin", "/bin", "/usr/local/bin")
CHECKPOINT = "checkpoint"
"""Name of the artifact that a change can be undone with."""
LIMITS = Limits(
    wall_ms=30_000,
    cpu_ms=10_000,
    memory_bytes=512 * MIB,
    processes=16,
    open_files=1024,
    file_bytes=16 * MIB,
    scratch_bytes=16 * MIB,
)
OUTPUT_BYTES = 8 * MIB
"""A page in JSON, or the contents that a patch replaced."""
_ENV = (("HOME", "/home/agent"), ("LANG", "C.UTF-8"), ("PATH", "/usr/bin:/bin"))
_BASE64 = frozenset({"base64", "body_base64"})
_HINTS = {
    "OUTSIDE_WORKSPACE": (
        'Name a file relative to the workspace: "path": "src/x.py". Links that lead out are not followed, nor is one '
        "by which the workspace itself is known."
    ),
    "HIDDEN": "It holds what agents must not see; ask its owner for what you need of it.",
    "PROTECTED": "The file tools write no hooks, CI files, .env or .git. A program may make one where there is none, "
    "and change it while nobody else does. An operator can change the others.",
    "CHANGED": "Read it again, and repeat the change with its new sha256.",
    "PATCH_FAILED": "Read the file again and make the patch from what it holds now. Nothing was changed.",
    "BAD_PATCH": "Send a unified diff as `git diff` writes it. Nothing was changed.",
    "LINK": "Name the file itself: links are not followed when something is written.",
    "NOT_FOUND": "palyra.fs.list shows what there is.",
    "EXISTS": "Leave out create_only, or give expected_sha256.",
}


def prepare_inside(trip: Trip, ports: Ports) -> None:
    """2 look, 3 guard — where the call's path really ends, and a job with the least it needs."""
    assert trip.call is not None
    assert trip.tool is not None
    path = trip.call.input.get("path")
    trip.sights = ports.look.look(
        LookRequest(
            workspace=trip.call.workspace,
            cwd="",
            command=PYTHON,
            search_path=SYSTEM_PATH,
            candidates=(PathCandidate(argument=0, text=path),) if isinstance(path, str) else (),
            created=created_before(trip, ports),
        )
    )
    trip.facts = guard_inside(trip.sights, written=_written(trip))
    trip.job = make_job(
        trip,
        ports,
        entry="files",
        stdin=None if "undo" in trip.call.input else orjson.dumps(_request(trip.call, trip.sights)),
        writable=Capability.FILESYSTEM_WRITE in trip.tool.spec.capabilities,
    )


def _written(trip: Trip) -> Sequence[str]:
    """Which files the call would change: read by the parser that applies the patch, so that no spelling of a name is
    one thing here and another there. What that one refuses changes nothing."""
    assert trip.call is not None
    assert trip.tool is not None
    given = trip.call.input
    if Capability.FILESYSTEM_WRITE not in trip.tool.spec.capabilities or "undo" in given:
        return ()
    if "patch" not in given:
        return (str(given.get("path", "")),)
    from palyra.inside.beneath import Refused
    from palyra.inside.patch import parse

    try:
        files = parse(given["patch"].encode("utf-8"))
    except Refused:
        return ()
    names = (name for one in files for name in (one.old, one.new) if name is not None)
    return tuple(name.decode("utf-8", "surrogateescape") for name in names)


def make_job(trip: Trip, ports: Ports, *, entry: str, stdin: bytes | None, writable: bool) -> Job:
    """`stdin` None: it is only known when the program runs."""
    assert trip.sights is not None
    python, workspace = trip.sights.executable, trip.sights.workspace
    needs, wants = needs_for(Tier.C, NO_NETWORK)
    return Job(
        program=python.found_at or python.path,
        program_file=python.path if python.found_at else "",
        program_sha256=python.sha256,
        argv=(PYTHON, "-I", "-S", f"{OWN_FOLDER}/{entry}.py"),
        env=_ENV,
        cwd=workspace.path,
        workspace=workspace,
        read_roots=(),
        limits=replace(trip.run.limits.narrow(LIMITS), output_bytes=OUTPUT_BYTES),
        net=NO_NETWORK,
        tier=Tier.C,
        needs=needs,
        wants=wants,
        stdin=stdin or b"",
        stdin_streamed=stdin is None,
        own_files=ports.own_files,
        workspace_writable=writable,
    )


def _request(call: ToolCall, sights: Sights) -> dict[str, Json]:
    top = len(sights.workspace.path) + 1
    return {
        "op": call.tool.rpartition(".")[2],
        "input": dict(call.input),
        "workspace": _text(sights.workspace.path),
        "hidden": [_text(path[top:]) for path in sights.workspace.masked],
        "protected": sorted(name.casefold() for name in PROTECTED_NAMES),
    }


def _text(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Kept:
    """The sink: everything, as it came. The quota bounds it."""

    def __init__(self) -> None:
        self.parts = {name: bytearray() for name in StreamName}

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        self.parts[stream] += chunk

    def reached(self, connections: Sequence[Connection]) -> None:
        """Nothing is granted to programs of ours."""


class Said:
    """A request that is only known now, as the program's stdin."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self) -> bytes:
        data, self._data = self._data, b""
        return data


async def run_inside(trip: Trip, plan: ProcessPlan, ports: Ports) -> Ending:
    """9, 10 — for a program of ours: run, read its answer, keep the checkpoint, redact, check."""
    source = await _undo(trip, ports) if plan.stdin_streamed else None
    execution, kept = await execute(trip, plan, ports, source)
    answer = read_answer(execution, bytes(kept.parts[StreamName.STDOUT]))
    if answer is None:
        return unanswered(trip, execution, bytes(kept.parts[StreamName.STDERR]))
    if "error" in answer:
        return _refused(trip, execution, ports, answer["error"])
    result = dict(answer["result"])
    if "before" in result:
        result["checkpoint"] = await _keep(trip, ports, result.pop("before"))
    output = clean(trip, ports, result)
    return Ending(status=Status.COMPLETED, success=True, execution=execution, output=output)


async def execute(trip: Trip, plan: ProcessPlan, ports: Ports, source: Said | None = None) -> tuple[Execution, Kept]:
    kept = Kept()
    try:
        return await ports.executor.run(plan, kept, source), kept
    except asyncio.CancelledError:
        wall = ports.clock.monotonic_us() - trip.started_us
        usage = Usage(wall_us=wall, cpu_us=None, max_rss_bytes=None)
        message = "The call was cancelled."
        return Execution(status=Status.CANCELLED, reason=Reason.CANCELLED, message=message, usage=usage), Kept()


async def _undo(trip: Trip, ports: Ports) -> Said:
    assert trip.call is not None
    assert trip.sights is not None
    ref, data = await ports.artifacts.read(trip.run.run_id, trip.call.input["undo"])
    if ref.name != CHECKPOINT:
        raise Rejected(Reason.BAD_ARGUMENTS, "That artifact is not a checkpoint.", "Give the `checkpoint` of a change.")
    return Said(orjson.dumps(_request(trip.call, trip.sights) | {"undo": orjson.loads(data)}))


def read_answer(execution: Execution, stdout: bytes) -> Mapping[str, Json] | None:
    if execution.status is not Status.COMPLETED or execution.exit_code not in (0, 1):
        return None
    try:
        answer = orjson.loads(stdout)
    except orjson.JSONDecodeError:
        return None
    shaped = (
        isinstance(answer, dict) and len(answer) == 1 and isinstance(answer.get("result", answer.get("error")), dict)
    )
    return answer if shaped else None


def unanswered(trip: Trip, execution: Execution, stderr: bytes) -> Ending:
    """Ended by a limit or a cancellation, or broken: then the log says where, and the caller that it was us."""
    status, reason, message = execution.status, execution.reason, execution.message
    if status is Status.COMPLETED and reason is None:
        log.error("call %s: our own program failed: %s", trip.call_id, stderr[-2000:].decode("utf-8", "replace"))
        status, reason, message = Status.FAILED, Reason.INTERNAL, "Palyra's own program failed; the log says where."
    return Ending(status=status, reason=reason, message=message, hint=execution.hint, execution=execution)


def _refused(trip: Trip, execution: Execution, ports: Ports, error: Mapping[str, Json]) -> Ending:
    code = str(error.get("code"))
    return Ending(
        status=Status.COMPLETED,
        reason=Reason.OUTSIDE_WORKSPACE if code == Reason.OUTSIDE_WORKSPACE else None,
        message=str(error.get("message")),
        hint=_HINTS.get(code),
        execution=execution,
        output=clean(trip, ports, {"error": dict(error)}),
    )


async def _keep(trip: Trip, ports: Ports, before: Json) -> str | None:
    try:
        ref = await ports.artifacts.put(trip.run.run_id, CHECKPOINT, orjson.dumps(before))
    except (Rejected, StateError) as error:
        log.warning("call %s: its checkpoint could not be kept: %s", trip.call_id, error)
        return None
    trip.artifacts += (ref,)
    return ref.artifact_id


def clean(trip: Trip, ports: Ports, output: dict[str, Json]) -> dict[str, Json]:
    """Held against the tool's schema, then redacted, also within base64. A misfit is an error of our own."""
    assert trip.tool is not None
    try:
        check_arguments(trip.tool.output_schema, output)
    except Rejected as error:
        raise RuntimeError(f"our own program's answer does not fit its schema: {error.detail}") from None
    secrets = ports.secrets.known_values(trip.run.run_id)
    for name in _BASE64 & output.keys():
        redactor = Redactor(secrets)
        data = base64.b64decode(output[name])
        output = output | {name: base64.b64encode(redactor.feed(data) + redactor.finish()).decode("ascii")}
    redacted, trip.redactions = redact_json_counted(output, secrets)
    return dict(redacted)
