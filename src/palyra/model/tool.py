"""What a tool is: its name, schemas, capabilities and how its calls behave beside each other.

`ToolSpec` is the `ToolRegistryEntry` of the glossary. Not here: the built-in specs (protocol/catalog), checking
an input against a schema (protocol/schema).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from palyra.canon import Json, digest
from palyra.values import dataclass


class Capability(StrEnum):
    PROCESS_EXEC = "process_exec"
    NETWORK = "network"
    SECRETS_READ = "secrets_read"
    FILESYSTEM_READ = "filesystem_read"
    FILESYSTEM_WRITE = "filesystem_write"
    ARTIFACTS_READ = "artifacts_read"


class Parallelism(StrEnum):
    """`ToolParallelismPolicy`: which calls of one run may go on together."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    PATH_SCOPED = "path_scoped"
    EXCLUSIVE = "exclusive"


class Projection(StrEnum):
    """`ToolResultProjectionPolicy`: what a model sees of a large result; the rest becomes an artifact."""

    INLINE_UNLESS_LARGE = "inline_unless_large"
    SUMMARIZE_AND_ARTIFACT = "summarize_and_artifact"
    REDACTED_PREVIEW_AND_ARTIFACT = "redacted_preview_and_artifact"


class ToolKind(StrEnum):
    """Which road a tool's calls take through the walk."""

    BUILTIN = "builtin"
    """Answered by the engine itself; touches no foreign code or data."""
    PROCESS = "process"
    """A native program in tier B or C."""
    PLUGIN = "plugin"
    """A WebAssembly guest in tier A."""
    INSIDE = "inside"
    """A program of Palyra's own in tier C: it touches foreign data, so it runs behind the same walls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    name: str
    version: str
    description: str
    kind: ToolKind
    input_schema: Mapping[str, Json]
    output_schema: Mapping[str, Json]
    capabilities: frozenset[Capability]
    parallelism: Parallelism
    projection: Projection
    max_input_bytes: int
    sensitive: bool = False
    provenance: str = "builtin"
    """`builtin`, or the sha256 of the skill payload that brought the tool."""

    @property
    def schema_sha256(self) -> str:
        return digest({"input": self.input_schema, "output": self.output_schema})
