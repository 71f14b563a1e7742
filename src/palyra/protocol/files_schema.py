"""Input and output schemas of palyra.fs.*, with their caps."""

from __future__ import annotations

from palyra.canon import Json

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_HEX = "^[0-9a-f]{64}$"
_MAX_INT = 2**53 - 1

_PATH: dict[str, Json] = {
    "type": "string",
    "minLength": 1,
    "x-maxBytes": 4096,
    "pattern": "^[^\\u0000]*$",
    "description": "Relative to the workspace. `..` is not followed, nor any link that leads out.",
}
_COUNT: dict[str, Json] = {"type": "integer", "minimum": 0}
_MAYBE_COUNT: dict[str, Json] = {"type": ["integer", "null"], "minimum": 0}
_TEXT: dict[str, Json] = {"type": "string"}
_SHA256: dict[str, Json] = {"type": ["string", "null"]}
_FLAG: dict[str, Json] = {"type": "boolean", "default": False}
_ERROR: dict[str, Json] = {
    "type": "object",
    "description": "Why it was not done; nothing was changed then.",
    "required": ["code", "message"],
    "additionalProperties": False,
    "properties": {"code": _TEXT, "message": _TEXT, "path": _TEXT, "hunk": _COUNT, "line": _COUNT},
}
_CHECKPOINT: dict[str, Json] = {
    "type": ["string", "null"],
    "description": "Give it to palyra.fs.apply_patch as `undo` to revert the change. Null: it could not be kept.",
}


def _input(required: list[Json], **properties: dict[str, Json]) -> dict[str, Json]:
    return {
        "$schema": _DIALECT,
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
    }


def _output(required: list[Json], **properties: dict[str, Json]) -> dict[str, Json]:
    return {
        "$schema": _DIALECT,
        "type": "object",
        "anyOf": [{"required": required}, {"required": ["error"]}],
        "additionalProperties": False,
        "properties": {**properties, "error": _ERROR},
    }


READ_INPUT = _input(
    ["path"],
    path=_PATH,
    offset_bytes={"type": "integer", "minimum": 0, "maximum": _MAX_INT, "default": 0},
    max_bytes={"type": "integer", "minimum": 1, "maximum": 256 * 1024, "default": 64 * 1024},
    start_line={"type": "integer", "minimum": 1, "maximum": _MAX_INT, "description": "Read lines from this one on."},
    max_lines={"type": "integer", "minimum": 1, "maximum": 20_000, "default": 2000},
)
READ_OUTPUT = _output(
    ["path", "encoding", "offset_bytes", "bytes", "total_bytes", "next_offset_bytes", "sha256"],
    path=_TEXT,
    encoding={"enum": ["utf-8", "base64"]},
    text=_TEXT,
    base64=_TEXT,
    offset_bytes=_COUNT,
    bytes=_COUNT,
    total_bytes=_COUNT,
    next_offset_bytes=_MAYBE_COUNT,
    sha256=_SHA256 | {"description": "Of the whole file; null when it is larger than 8 MiB."},
    first_line=_COUNT,
    lines=_COUNT,
    total_lines=_COUNT,
)

LIST_INPUT = _input(
    [],
    path=_PATH | {"default": "."},
    recursive=_FLAG | {"description": "Everything below, depth first; links and .git are shown and not entered."},
    max_entries={"type": "integer", "minimum": 1, "maximum": 1000, "default": 200},
    cursor={"type": "string", "x-maxBytes": 65536, "description": "`next` of the previous page."},
)
LIST_OUTPUT = _output(
    ["path", "entries", "next", "incomplete"],
    path=_TEXT,
    entries={
        "type": "array",
        "items": {
            "type": "object",
            "required": ["path", "type"],
            "additionalProperties": False,
            "properties": {
                "path": _TEXT,
                "type": {"enum": ["file", "folder", "link", "other"]},
                "size_bytes": _COUNT,
                "executable": {"type": "boolean"},
                "target": _TEXT,
                "hidden": {"const": True, "description": "It is hidden from agents."},
                "encoding": {"const": "utf-8-replaced", "description": "Bytes of the name that are not UTF-8."},
            },
        },
    },
    next={"type": ["string", "null"]},
    incomplete={"type": "boolean", "description": "Some folders could not be entered: no permission, or too deep."},
)

SEARCH_INPUT = _input(
    ["pattern"],
    pattern={"type": "string", "minLength": 1, "x-maxBytes": 1024, "description": "A text; see `regex`."},
    path=_PATH | {"default": "."},
    regex=_FLAG | {"description": "The pattern is a regular expression of Python's, applied to each line."},
    ignore_case=_FLAG,
    glob={"type": "string", "minLength": 1, "x-maxBytes": 256, "description": "Only files whose name or path matches."},
    max_matches={"type": "integer", "minimum": 1, "maximum": 1000, "default": 100},
)
SEARCH_OUTPUT = _output(
    ["matches", "files_searched", "files_skipped", "truncated"],
    matches={
        "type": "array",
        "items": {
            "type": "object",
            "required": ["path", "line", "column", "text"],
            "additionalProperties": False,
            "properties": {"path": _TEXT, "line": _COUNT, "column": _COUNT, "text": _TEXT},
        },
    },
    files_searched=_COUNT,
    files_skipped=_COUNT | {"description": "Binary, larger than 8 MiB, or unreadable."},
    truncated={"type": "boolean"},
)

WRITE_INPUT: dict[str, Json] = _input(
    ["path"],
    path=_PATH,
    text=_TEXT,
    base64=_TEXT | {"description": "Bytes, instead of `text`."},
    expected_sha256=_TEXT | {"pattern": _HEX, "description": "Refused unless the file holds exactly this now."},
    create_only=_FLAG | {"description": "Refused when the file exists."},
    create_dirs=_FLAG | {"description": "Create missing parent folders."},
) | {
    "oneOf": [{"required": ["text"]}, {"required": ["base64"]}],
    "not": {"required": ["expected_sha256", "create_only"], "properties": {"create_only": {"const": True}}},
}
WRITE_OUTPUT = _output(
    ["path", "created", "bytes", "sha256", "previous_sha256", "checkpoint"],
    path=_TEXT,
    created={"type": "boolean"},
    bytes=_COUNT,
    sha256=_TEXT,
    previous_sha256=_SHA256,
    checkpoint=_CHECKPOINT,
)

PATCH_INPUT: dict[str, Json] = _input(
    [],
    patch={"type": "string", "minLength": 1, "description": "A unified diff over one or more files."},
    undo={
        "type": "string",
        "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$",
        "description": "Instead of a patch: the `checkpoint` of a change of this run, which is then reverted.",
    },
) | {"oneOf": [{"required": ["patch"]}, {"required": ["undo"]}]}
PATCH_OUTPUT = _output(
    ["files", "checkpoint"],
    files={
        "type": "array",
        "items": {
            "type": "object",
            "required": ["path", "change", "sha256", "previous_sha256"],
            "additionalProperties": False,
            "properties": {
                "path": _TEXT,
                "change": {"enum": ["created", "modified", "deleted"]},
                "sha256": _SHA256,
                "previous_sha256": _SHA256,
                "moved_lines": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "description": "By how many lines each hunk was off from where the patch says.",
                },
            },
        },
    },
    checkpoint=_CHECKPOINT,
)
