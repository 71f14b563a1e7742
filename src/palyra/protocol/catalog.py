"""The tools Palyra brings itself. Descriptions are read by models: short, exact, with what is refused."""

from __future__ import annotations

from palyra.canon import Json
from palyra.model.tool import Capability, Parallelism, Projection, ToolKind, ToolSpec
from palyra.protocol.background_schema import (
    HANDLE_INPUT,
    LIST_INPUT,
    LIST_OUTPUT,
    OUTPUT_INPUT,
    OUTPUT_OUTPUT,
    PROCESS_STATUS,
)
from palyra.protocol.fetch_catalog import FETCH_TOOL
from palyra.protocol.files_catalog import FILE_TOOLS
from palyra.protocol.plugin_schema import PLUGIN_INPUT, PLUGIN_OUTPUT
from palyra.protocol.process_schema import PROCESS_INPUT, PROCESS_OUTPUT

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KIB = 1024

ANY_OBJECT: dict[str, Json] = {"$schema": DIALECT, "type": "object"}

ARTIFACT_INPUT: dict[str, Json] = {
    "$schema": DIALECT,
    "type": "object",
    "required": ["artifact_id"],
    "additionalProperties": False,
    "properties": {
        "artifact_id": {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"},
        "offset_bytes": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1, "default": 0},
        "max_bytes": {"type": "integer", "minimum": 1, "maximum": 16 * KIB, "default": 16 * KIB},
    },
}
ARTIFACT_OUTPUT: dict[str, Json] = {
    "$schema": DIALECT,
    "type": "object",
    "required": ["artifact_id", "sha256", "offset_bytes", "bytes", "total_bytes", "next_offset_bytes", "encoding"],
    "additionalProperties": False,
    "properties": {
        "artifact_id": {"type": "string"},
        "sha256": {"type": "string"},
        "offset_bytes": {"type": "integer"},
        "bytes": {"type": "integer"},
        "total_bytes": {"type": "integer"},
        "next_offset_bytes": {"type": ["integer", "null"]},
        "encoding": {"enum": ["utf-8", "base64"]},
        "text": {"type": "string"},
        "base64": {"type": "string"},
    },
}


def _background_tool(
    name: str, description: str, *, input: dict[str, Json], output: dict[str, Json], parallelism: Parallelism
) -> ToolSpec:
    """Of a run's own background processes. No capability: whoever could start one may look at it and stop it."""
    return ToolSpec(
        name=f"palyra.process.{name}",
        version="1.0.0",
        description=description,
        kind=ToolKind.BUILTIN,
        input_schema=input,
        output_schema=output,
        capabilities=frozenset(),
        parallelism=parallelism,
        projection=Projection.INLINE_UNLESS_LARGE,
        max_input_bytes=4 * KIB,
    )


BUILTIN_TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        name="palyra.echo",
        version="1.0.0",
        description="Returns the object it was given. For trying things out.",
        kind=ToolKind.BUILTIN,
        input_schema=ANY_OBJECT,
        output_schema=ANY_OBJECT,
        capabilities=frozenset(),
        parallelism=Parallelism.READ_ONLY,
        projection=Projection.INLINE_UNLESS_LARGE,
        max_input_bytes=64 * KIB,
    ),
    ToolSpec(
        name="palyra.process.run",
        version="1.0.0",
        description=(
            "Runs one program in a sandbox and returns its exit code and output. `command` is a program name without "
            "folder or arguments; the arguments go into `args`, one each, without quoting. There is no shell: pipes, "
            "globs, `&&` and redirections are not interpreted. Only the workspace can be written; there is no network "
            "unless it was granted. A non-zero exit code is a normal result. With `background` it returns a "
            "process_id at once, for palyra.process.status, .output and .stop. Each call has a localhost of its own: "
            "a server and its client run in one call."
        ),
        kind=ToolKind.PROCESS,
        input_schema=PROCESS_INPUT,
        output_schema=PROCESS_OUTPUT,
        capabilities=frozenset({Capability.PROCESS_EXEC, Capability.FILESYSTEM_READ, Capability.FILESYSTEM_WRITE}),
        parallelism=Parallelism.EXCLUSIVE,
        projection=Projection.REDACTED_PREVIEW_AND_ARTIFACT,
        max_input_bytes=448 * KIB,
    ),
    _background_tool(
        "status",
        "How a background process of this run is doing: running, exited, stopped, expired or lost; exit code, times, "
        "usage.",
        input=HANDLE_INPUT,
        output=PROCESS_STATUS,
        parallelism=Parallelism.READ_ONLY,
    ),
    _background_tool(
        "list",
        "The background processes of this run, the newest first.",
        input=LIST_INPUT,
        output=LIST_OUTPUT,
        parallelism=Parallelism.READ_ONLY,
    ),
    _background_tool(
        "output",
        "Reads a page of what a background process wrote. Continue with `offset_bytes` = the last answer's "
        "`next_offset_bytes`; while it runs, ask again later. Its log keeps the last MiB: `dropped_bytes` says what is "
        "gone.",
        input=OUTPUT_INPUT,
        output=OUTPUT_OUTPUT,
        parallelism=Parallelism.READ_ONLY,
    ),
    _background_tool(
        "stop",
        "Ends a background process of this run and everything it started: SIGTERM, two seconds later SIGKILL. One "
        "that has already ended is left as it is.",
        input=HANDLE_INPUT,
        output=PROCESS_STATUS,
        parallelism=Parallelism.IDEMPOTENT,
    ),
    ToolSpec(
        name="palyra.plugin.run",
        version="1.0.0",
        description=(
            "Runs a tool of an installed skill in a WebAssembly sandbox: `skill_id`, `tool_id` where the skill has "
            "several, and its `input`. Where inline modules are allowed, `module_base64` instead of a skill. The "
            "guest reaches nothing but what was granted to it."
        ),
        kind=ToolKind.PLUGIN,
        input_schema=PLUGIN_INPUT,
        output_schema=PLUGIN_OUTPUT,
        capabilities=frozenset(),
        parallelism=Parallelism.READ_ONLY,
        projection=Projection.INLINE_UNLESS_LARGE,
        max_input_bytes=448 * KIB,
    ),
    ToolSpec(
        name="palyra.artifact.read",
        version="1.0.0",
        description=(
            "Reads a page of a large result that was kept as an artifact of this run. Continue with `offset_bytes` = "
            "the last answer's `next_offset_bytes` until that is null."
        ),
        kind=ToolKind.BUILTIN,
        input_schema=ARTIFACT_INPUT,
        output_schema=ARTIFACT_OUTPUT,
        capabilities=frozenset({Capability.ARTIFACTS_READ}),
        parallelism=Parallelism.READ_ONLY,
        projection=Projection.INLINE_UNLESS_LARGE,
        max_input_bytes=64 * KIB,
    ),
    *FILE_TOOLS,
    FETCH_TOOL,
)
