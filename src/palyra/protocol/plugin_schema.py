"""Schemas of palyra.plugin.run, and its input as a value."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.values import dataclass

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_MODULE_BYTES = 320 * 1024
"""Of an inline module; in base64 it still fits the input's 448 KiB beside its own input."""

PLUGIN_INPUT: dict[str, Json] = {
    "$schema": DIALECT,
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "skill_id": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,63}(\\.[a-z0-9][a-z0-9-]{0,63})+$"},
        "tool_id": {"type": "string", "maxLength": 128},
        "version": {"type": "string", "maxLength": 64},
        "module_base64": {"type": "string"},
        "input": {},
    },
}
PLUGIN_OUTPUT: dict[str, Json] = {
    "$schema": DIALECT,
    "type": "object",
    "required": ["result", "exit_code", "host_calls"],
    "additionalProperties": False,
    "properties": {
        "result": {},
        "exit_code": {"type": ["integer", "null"]},
        "host_calls": {
            "type": "object",
            "required": ["counts", "list_sha256"],
            "additionalProperties": False,
            "properties": {
                "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
                "list_sha256": {"type": "string"},
            },
        },
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInput:
    """Either a skill's tool or an inline module; never both, never neither."""

    skill_id: str
    tool_id: str
    version: str
    module: bytes
    input: Json


def check_plugin_input(given: Mapping[str, Json]) -> PluginInput:
    skill, inline = given.get("skill_id", ""), given.get("module_base64")
    if bool(skill) == (inline is not None):
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "palyra.plugin.run takes a skill or a module, one of the two.",
            "Send skill_id (and tool_id where it has several tools), or module_base64.",
        )
    if inline is not None and ("tool_id" in given or "version" in given):
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "tool_id and version belong to a skill, not to an inline module.",
            "Leave them out.",
        )
    return PluginInput(
        skill_id=skill,
        tool_id=given.get("tool_id", ""),
        version=given.get("version", ""),
        module=b"" if inline is None else _module(inline),
        input=given.get("input"),
    )


def _module(text: str) -> bytes:
    try:
        module = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Rejected(
            Reason.BAD_ARGUMENTS, "module_base64 is not base64.", "Encode the module's bytes as standard base64."
        ) from None
    if len(module) > MAX_MODULE_BYTES:
        raise Rejected(
            Reason.TOO_LARGE,
            f"The module has {len(module)} bytes; an inline one may have {MAX_MODULE_BYTES}.",
            "Install it as a skill.",
        )
    return module
