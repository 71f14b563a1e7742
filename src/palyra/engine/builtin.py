"""Palyra's own trivial tools, answered by the engine: no foreign code, no foreign data, label `builtin`.

One function a tool and one table. A tool that touches untrusted data does not belong here: it runs as a program of
ours inside tier C.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from palyra.artifacts.names import slice_text
from palyra.canon import Json
from palyra.engine.inside import CHECKPOINT
from palyra.engine.ports import Ports
from palyra.errors import Reason, Rejected
from palyra.model.call import ToolCall
from palyra.model.outcome import StreamName
from palyra.model.process import BackgroundProcess, LogPage, ProcessOwner
from palyra.protocol.background_schema import MAX_LISTED, MAX_PAGE_BYTES

Handler = Callable[[ToolCall, Ports], Awaitable[Mapping[str, Json]]]

DEFAULT_PAGE_BYTES = 16 * 1024


async def echo(call: ToolCall, ports: Ports) -> Mapping[str, Json]:
    """The same object out; for trying things."""
    return dict(call.input)


async def read_artifact(call: ToolCall, ports: Ports) -> Mapping[str, Json]:
    """A page of an artifact of this run; the store checks scope and digest, the walk journals the read."""
    ref, data = await ports.artifacts.read(call.run_id, call.input["artifact_id"])
    if ref.name == CHECKPOINT:  # contents of files as they were, which redaction could not look into
        raise Rejected(
            Reason.BAD_ARGUMENTS, "A checkpoint cannot be read.", "Give it to palyra.fs.apply_patch as undo."
        )
    page = slice_text(data, call.input.get("offset_bytes", 0), call.input.get("max_bytes", DEFAULT_PAGE_BYTES))
    return {"artifact_id": ref.artifact_id, "sha256": ref.sha256, **page}


async def process_status(call: ToolCall, ports: Ports) -> Mapping[str, Json]:
    process = await ports.background.status(_owner(call), call.input["process_id"])
    return process.as_json()


async def list_processes(call: ToolCall, ports: Ports) -> Mapping[str, Json]:
    found = await ports.background.list(_owner(call), before=call.input.get("before"), count=MAX_LISTED)
    following = found[-1].process_id if len(found) == MAX_LISTED else None
    return {"items": [process.as_json() for process in found], "next": following}


async def read_process_output(call: ToolCall, ports: Ports) -> Mapping[str, Json]:
    stream = call.input.get("stream")
    process, page = await ports.background.output(
        _owner(call),
        call.input["process_id"],
        offset_bytes=call.input.get("offset_bytes", 0),
        max_bytes=call.input.get("max_bytes", MAX_PAGE_BYTES),
        stream=StreamName(stream) if stream else None,
    )
    return {"process_id": process.process_id, "stream": stream or "both", **_page(process, page)}


async def stop_process(call: ToolCall, ports: Ports) -> Mapping[str, Json]:
    principal = str(call.context.principal)
    process = await ports.background.stop(_owner(call), call.input["process_id"], by=principal)
    return process.as_json()


def _owner(call: ToolCall) -> ProcessOwner:
    return ProcessOwner(call.run_id, str(call.context.principal))


def _page(process: BackgroundProcess, page: LogPage) -> dict[str, Json]:
    data = b"".join(chunk.data for chunk in page.chunks)
    try:
        text, encoding = data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = data.decode("utf-8", "replace"), "utf-8-replaced"
    return {
        "status": process.status.value,
        "offset_bytes": page.offset_bytes,
        "next_offset_bytes": page.next_offset_bytes,
        "dropped_bytes": page.dropped_bytes,
        "total_bytes": page.total_bytes,
        "complete": not process.is_running and page.next_offset_bytes >= page.total_bytes,
        "text": text,
        "encoding": encoding,
    }


HANDLERS: Mapping[str, Handler] = {
    "palyra.echo": echo,
    "palyra.artifact.read": read_artifact,
    "palyra.process.status": process_status,
    "palyra.process.list": list_processes,
    "palyra.process.output": read_process_output,
    "palyra.process.stop": stop_process,
}
