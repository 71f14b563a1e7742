"""palyra.fs.*: the specs of the file tools. Descriptions are read by models: short, exact, with what is refused."""

from __future__ import annotations

from collections.abc import Mapping

from palyra.canon import Json
from palyra.model.tool import Capability, Parallelism, Projection, ToolKind, ToolSpec
from palyra.protocol import files_schema as schema

KIB = 1024


def _tool(
    name: str,
    description: str,
    *,
    input: Mapping[str, Json],
    output: Mapping[str, Json],
    parallelism: Parallelism = Parallelism.READ_ONLY,
    max_input_bytes: int = 64 * KIB,
) -> ToolSpec:
    reads = parallelism is Parallelism.READ_ONLY
    return ToolSpec(
        name=f"palyra.fs.{name}",
        version="1.0.0",
        description=description,
        kind=ToolKind.INSIDE,
        input_schema=input,
        output_schema=output,
        capabilities=frozenset(
            {Capability.FILESYSTEM_READ} if reads else {Capability.FILESYSTEM_READ, Capability.FILESYSTEM_WRITE}
        ),
        parallelism=parallelism,
        projection=Projection.INLINE_UNLESS_LARGE,
        max_input_bytes=max_input_bytes,
    )


FILE_TOOLS: tuple[ToolSpec, ...] = (
    _tool(
        "read",
        "Reads a file of the workspace, whole or a part: by bytes (`offset_bytes`, `max_bytes`; continue with "
        "`next_offset_bytes`) or by lines (`start_line`, `max_lines`). Bytes that are not UTF-8 come as base64. "
        "`sha256` can be given to palyra.fs.write as `expected_sha256`.",
        input=schema.READ_INPUT,
        output=schema.READ_OUTPUT,
    ),
    _tool(
        "list",
        "Lists a folder of the workspace, sorted by name; with `recursive` everything below it. Continue with "
        "`cursor` = the last answer's `next` until that is null.",
        input=schema.LIST_INPUT,
        output=schema.LIST_OUTPUT,
    ),
    _tool(
        "search",
        "Finds lines in the files of the workspace that contain a text, or with `regex` match a regular expression. "
        "Binary files and .git are left out.",
        input=schema.SEARCH_INPUT,
        output=schema.SEARCH_OUTPUT,
    ),
    _tool(
        "write",
        "Writes a whole file of the workspace, in one step: it holds the old content or the new one, never a part. "
        "Its mode is kept. Hooks, CI files, .env and .git are refused. `checkpoint` can undo the change.",
        input=schema.WRITE_INPUT,
        output=schema.WRITE_OUTPUT,
        parallelism=Parallelism.PATH_SCOPED,
        max_input_bytes=256 * KIB,
    ),
    _tool(
        "apply_patch",
        "Applies a unified diff to one or more files of the workspace: all of it or nothing. Every context line must "
        "be in the file exactly; a hunk may have moved. New, deleted and renamed files as git writes them. "
        "`checkpoint` in the answer, given as `undo`, reverts it.",
        input=schema.PATCH_INPUT,
        output=schema.PATCH_OUTPUT,
        parallelism=Parallelism.EXCLUSIVE,
        max_input_bytes=256 * KIB,
    ),
)
