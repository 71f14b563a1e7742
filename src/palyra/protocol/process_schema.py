"""Input and output schema of palyra.process.run, with the caps of the contract (in bytes where they are bytes)."""

from __future__ import annotations

from palyra.canon import Json

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NO_NUL = "^[^\\u0000]*$"
MAX_STDIN_BYTES = 64 * 1024
MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""The kernel's own limit of one argument (MAX_ARG_STRLEN), without the byte that ends it."""

_TEXT_4K: dict[str, Json] = {"type": "string", "x-maxBytes": 4096, "pattern": _NO_NUL}

PROCESS_INPUT: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "required": ["command"],
    "additionalProperties": False,
    "properties": {
        "command": {
            "type": "string",
            "minLength": 1,
            "x-maxBytes": 256,
            "pattern": _NO_NUL,
            "description": "One program name, such as git. No folder, no arguments.",
        },
        "args": {
            "type": "array",
            "maxItems": 128,
            "items": _TEXT_4K | {"x-maxBytes": MAX_ARGUMENT_BYTES},
            "description": "Its arguments, one each.",
        },
        "cwd": _TEXT_4K | {"description": "Working folder below the workspace. Default: the workspace."},
        "env": {
            "type": "object",
            "maxProperties": 32,
            "propertyNames": {"maxLength": 128, "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            "additionalProperties": _TEXT_4K,
            "description": "Additional environment variables: CI, NODE_ENV, TZ, LANG, NO_COLOR and a few more, and "
            "those that the operator made settable.",
        },
        "stdin": {"type": "string", "x-maxBytes": MAX_STDIN_BYTES, "description": "Text for its standard input."},
        "timeout_ms": {
            "type": "integer",
            "minimum": 1,
            "description": "When it is ended; more than a call may take here is refused.",
        },
        "background": {
            "type": "boolean",
            "default": False,
            "description": "Start it and return at once with a process_id; timeout_ms does not end it.",
        },
        "lifetime": {
            "enum": ["run_owned", "detached"],
            "default": "run_owned",
            "description": "Of a background process: it ends with this run, or outlives it; at its expiry either way.",
        },
        "requested_egress_hosts": {
            "type": "array",
            "maxItems": 64,
            "items": {"type": "string", "minLength": 1, "x-maxBytes": 512, "pattern": _NO_NUL},
            "description": "Hosts it will want to reach; refused at once when one is not granted.",
        },
    },
}

_COUNT: dict[str, Json] = {"type": "integer", "minimum": 0}
_MAYBE_COUNT: dict[str, Json] = {"type": ["integer", "null"], "minimum": 0}

PROCESS_OUTPUT: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "anyOf": [
        {
            "required": [
                *("exit_code", "signal", "stdout", "stderr", "stdout_bytes", "stderr_bytes"),
                *("truncated", "tier", "backend", "egress"),
            ]
        },
        {"required": ["process_id", "pid", "lifetime", "expires_at_unix_ms"]},
    ],
    "additionalProperties": False,
    "properties": {
        "exit_code": _MAYBE_COUNT,
        "signal": _MAYBE_COUNT,
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "stdout_bytes": _COUNT,
        "stderr_bytes": _COUNT,
        "truncated": {"type": "boolean"},
        "tier": {"enum": ["B", "C", "unsandboxed"]},
        "backend": {"type": "string"},
        "egress": {
            "type": "object",
            "required": ["mode", "allowed_hosts", "connections"],
            "properties": {
                "mode": {"enum": ["none", "preflight", "strict"]},
                "allowed_hosts": {"type": "array", "items": {"type": "string"}},
                "connections": {"type": "array", "items": {"type": "object"}},
            },
        },
        "encoding": {"const": "utf-8-replaced", "description": "Bytes that were not UTF-8 were replaced."},
        "protected_created": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Hooks, CI files, .env and the like that did not exist before this call. Check them "
            "before use.",
        },
        "changes": {
            "type": "object",
            "description": "What changed in the workspace: created, modified, deleted (the first 200 "
            "of each), counts, whether everything was seen (complete), and the digest of the whole lists.",
        },
        "learned": {
            "type": "object",
            "description": "Of palyra run --learn: paths and hosts the program asked for and was denied, and the "
            "smallest grant that would help.",
        },
        "node": {
            "type": "object",
            "required": ["node_id", "key_id", "envelope"],
            "description": "In a cluster: the node that ran it, and what that node signed.",
        },
        "stdin_bytes": _COUNT,
        "stdin_sha256": {"type": "string"},
        "projection": {"type": "object", "description": "What was left out, and the artifacts that hold it."},
        "process_id": {"type": "string", "description": "Of a background process: its handle."},
        "pid": _COUNT,
        "lifetime": {"enum": ["run_owned", "detached"]},
        "expires_at_unix_ms": _COUNT,
    },
}
