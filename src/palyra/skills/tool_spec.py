"""A skill's tool as every tool is described: listed, shown and judged like Palyra's own, under its own id."""

from __future__ import annotations

from collections.abc import Mapping

from palyra.canon import Json
from palyra.model.tool import Parallelism, Projection, ToolKind, ToolSpec
from palyra.skills.manifest import SkillManifest, ToolEntry

MAX_INPUT_BYTES = 448 << 10


def spec_of(manifest: SkillManifest, tool: ToolEntry, payload_sha256: str) -> ToolSpec:
    writes = bool(manifest.capabilities.write_roots)
    return ToolSpec(
        name=tool.id,
        version=manifest.version,
        description=tool.description,
        kind=ToolKind.PLUGIN,
        input_schema=tool.input_schema,
        output_schema=_output(tool.output_schema),
        capabilities=manifest.capabilities.tags,
        parallelism=Parallelism.EXCLUSIVE if writes else Parallelism.READ_ONLY,
        projection=Projection.INLINE_UNLESS_LARGE,
        max_input_bytes=MAX_INPUT_BYTES,
        sensitive=tool.default_sensitive or tool.requires_approval,
        provenance=payload_sha256,
    )


def _output(result: Mapping[str, Json]) -> dict[str, Json]:
    """What a call returns: the skill's schema judges `result`, and its references lead to where it stands now."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["result", "exit_code", "host_calls"],
        "properties": {
            "result": {"anyOf": [_moved(dict(result), "#/properties/result/anyOf/0"), {"type": "null"}]},
            "exit_code": {"type": ["integer", "null"]},
            "host_calls": {"type": "object"},
        },
    }


def _moved(value: Json, root: str) -> Json:
    if isinstance(value, Mapping):
        return {
            key: root + item[1:] if key in ("$ref", "$dynamicRef") and isinstance(item, str) else _moved(item, root)
            for key, item in value.items()
            if key != "$schema"
        }
    return [_moved(item, root) for item in value] if isinstance(value, list) else value
