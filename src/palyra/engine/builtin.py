"""Palyra's own trivial tools, answered by the engine: no foreign code, no foreign data, label `builtin`.

One function a tool and one table. A tool that touches untrusted data does not belong here: it runs as a program of
ours inside tier C.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from palyra.artifacts.names import slice_text
from palyra.canon import Json
from palyra.engine.ports import Ports
from palyra.model.call import ToolCall

Handler = Callable[[ToolCall, Ports], Awaitable[Mapping[str, Json]]]

DEFAULT_PAGE_BYTES = 16 * 1024


async def echo(call: ToolCall, ports: Ports) -> Mapping[str, Json]:
    """The same object out; for trying things."""
    return dict(call.input)


async def read_artifact(call: ToolCall, ports: Ports) -> Mapping[str, Json]:
    """A page of an artifact of this run; the store checks scope and digest, the walk journals the read."""
    ref, data = await ports.artifacts.read(call.run_id, call.input["artifact_id"])
    page = slice_text(data, call.input.get("offset_bytes", 0), call.input.get("max_bytes", DEFAULT_PAGE_BYTES))
    return {"artifact_id": ref.artifact_id, "sha256": ref.sha256, **page}


HANDLERS: Mapping[str, Handler] = {"palyra.echo": echo, "palyra.artifact.read": read_artifact}
