"""Input and output schemas of palyra.process.status, list, output and stop: handles in, never pids."""

from __future__ import annotations

from palyra.canon import Json
from palyra.model.process import Lifetime, ProcessStatus

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_PAGE_BYTES = 16 * 1024
MAX_LISTED = 50

_HANDLE: dict[str, Json] = {
    "type": "string",
    "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$",
    "description": "As palyra.process.run returned it. Only processes of this run can be used.",
}
_COUNT: dict[str, Json] = {"type": "integer", "minimum": 0}
_MAYBE_COUNT: dict[str, Json] = {"type": ["integer", "null"], "minimum": 0}
_MAYBE_TEXT: dict[str, Json] = {"type": ["string", "null"]}

HANDLE_INPUT: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "required": ["process_id"],
    "additionalProperties": False,
    "properties": {"process_id": _HANDLE},
}

_PROCESS: dict[str, Json] = {
    "process_id": {"type": "string"},
    "call_id": {"type": "string", "description": "The call that started it."},
    "command": {"type": "string"},
    "status": {"enum": [status.value for status in ProcessStatus]},
    "pid": _COUNT,
    "lifetime": {"enum": [lifetime.value for lifetime in Lifetime]},
    "started_at_unix_ms": _COUNT,
    "expires_at_unix_ms": _COUNT,
    "ended_at_unix_ms": _MAYBE_COUNT,
    "exit_code": _MAYBE_COUNT,
    "signal": _MAYBE_COUNT,
    "reason": _MAYBE_TEXT | {"description": "The limit that ended it, if one did."},
    "stopped_by": _MAYBE_TEXT | {"description": "Who stopped it: a principal, its run, its keeper."},
    "stdout_bytes": _MAYBE_COUNT | {"description": "What it wrote; known at its end."},
    "stderr_bytes": _MAYBE_COUNT,
    "usage": {"type": ["object", "null"]},
    "protected_created": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Guarded names (hooks, CI files, .env) that were made while it ran; known at its end.",
    },
}

PROCESS_STATUS: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "required": list(_PROCESS),
    "additionalProperties": False,
    "properties": _PROCESS,
}

LIST_INPUT: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "additionalProperties": False,
    "properties": {"before": _HANDLE | {"description": "Only those older than this one: the last answer's `next`."}},
}
LIST_OUTPUT: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "required": ["items", "next"],
    "additionalProperties": False,
    "properties": {
        "items": {
            "type": "array",
            "maxItems": MAX_LISTED,
            "items": {
                "type": "object",
                "required": list(_PROCESS),
                "additionalProperties": False,
                "properties": _PROCESS,
            },
        },
        "next": _MAYBE_TEXT,
    },
}

OUTPUT_INPUT: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "required": ["process_id"],
    "additionalProperties": False,
    "properties": {
        "process_id": _HANDLE,
        "offset_bytes": {"type": "integer", "minimum": 0, "maximum": 2**53 - 1, "default": 0},
        "max_bytes": {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_BYTES, "default": MAX_PAGE_BYTES},
        "stream": {"enum": ["stdout", "stderr"], "description": "Default: both, in the order they were written."},
    },
}
OUTPUT_OUTPUT: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "required": [
        *("process_id", "status", "stream", "offset_bytes", "next_offset_bytes", "dropped_bytes", "total_bytes"),
        *("complete", "text", "encoding"),
    ],
    "additionalProperties": False,
    "properties": {
        "process_id": {"type": "string"},
        "status": {"enum": [status.value for status in ProcessStatus]},
        "stream": {"enum": ["stdout", "stderr", "both"]},
        "offset_bytes": _COUNT | {"description": "Where this page begins; later than asked when output was dropped."},
        "next_offset_bytes": _COUNT,
        "dropped_bytes": _COUNT | {"description": "Between the offset asked for and this page: gone for good."},
        "total_bytes": _COUNT | {"description": "Written so far, both streams, after redaction."},
        "complete": {"type": "boolean", "description": "The process has ended and this page is the last."},
        "text": {"type": "string"},
        "encoding": {"enum": ["utf-8", "utf-8-replaced"]},
    },
}
