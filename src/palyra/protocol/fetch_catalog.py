"""palyra.http.fetch: its spec, its schemas, and which headers go out and come back."""

from __future__ import annotations

from palyra.canon import Json
from palyra.model.tool import Capability, Parallelism, Projection, ToolKind, ToolSpec

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
KIB = 1024
MAX_BYTES, DEFAULT_BYTES = 1024 * KIB, 256 * KIB
MAX_TIMEOUT_MS, DEFAULT_TIMEOUT_MS = 60_000, 30_000
MAX_REDIRECTS, DEFAULT_REDIRECTS = 10, 5

REQUEST_HEADERS = (
    *("accept", "accept-language", "content-type", "if-match", "if-modified-since", "if-none-match", "prefer", "range"),
    *("x-github-api-version", "x-requested-with"),
)
"""What a call may send. Credentials, cookies and everything that says where a request goes or ends are not among it."""
ANSWER_HEADERS = frozenset(
    """
    age allow cache-control content-disposition content-encoding content-language content-length content-range
    content-type date etag expires last-modified link location retry-after vary x-ratelimit-limit x-ratelimit-remaining
    x-ratelimit-reset
    """.split()
)
"""What a call is told. Cookies and challenges stay out."""

_TEXT: dict[str, Json] = {"type": "string"}
_COUNT: dict[str, Json] = {"type": "integer", "minimum": 0}
_HOP: dict[str, Json] = {
    "type": "object",
    "required": ["url", "status"],
    "additionalProperties": False,
    "properties": {"url": _TEXT, "status": _COUNT},
}

FETCH_INPUT: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "required": ["url"],
    "additionalProperties": False,
    "properties": {
        "url": {
            "type": "string",
            "minLength": 1,
            "x-maxBytes": 8192,
            "description": "http or https, without a password.",
        },
        "method": {"enum": ["GET", "HEAD", "POST"], "default": "GET"},
        "headers": {
            "type": "object",
            "maxProperties": 16,
            "propertyNames": {"enum": list(REQUEST_HEADERS)},
            "additionalProperties": {"type": "string", "x-maxBytes": 1024, "pattern": "^[\\x20-\\x7e]*$"},
            "description": "Lower case. Credentials are added by Palyra, for hosts they are bound to.",
        },
        "body": _TEXT | {"description": "Of a POST, as text."},
        "body_base64": _TEXT | {"description": "Of a POST, as bytes."},
        "format": {
            "enum": ["text", "raw"],
            "default": "text",
            "description": "`text` makes readable text of HTML; `raw` leaves it as it is.",
        },
        "max_bytes": {"type": "integer", "minimum": 1, "maximum": MAX_BYTES, "default": DEFAULT_BYTES},
        "timeout_ms": {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS, "default": DEFAULT_TIMEOUT_MS},
        "max_redirects": {"type": "integer", "minimum": 0, "maximum": MAX_REDIRECTS, "default": DEFAULT_REDIRECTS},
    },
    "not": {"required": ["body", "body_base64"]},
    "if": {"properties": {"method": {"enum": ["GET", "HEAD"]}}},
    "then": {"properties": {"body": False, "body_base64": False}},
}
FETCH_OUTPUT: dict[str, Json] = {
    "$schema": _DIALECT,
    "type": "object",
    "required": ["redirects", "egress"],
    "anyOf": [{"required": ["status", "url", "headers", "content_type", "truncated"]}, {"required": ["error"]}],
    "additionalProperties": False,
    "properties": {
        "status": _COUNT | {"description": "Of the answer. 404 and 500 are normal results."},
        "url": _TEXT | {"description": "Where the answer came from, redirects followed."},
        "headers": {"type": "object", "additionalProperties": _TEXT},
        "content_type": _TEXT,
        "text": _TEXT,
        "body_base64": _TEXT | {"description": "Where the body is not text."},
        "truncated": {"type": "boolean", "description": "The body was longer than `max_bytes`, packed or unpacked."},
        "redirects": {"type": "array", "items": _HOP, "description": "The redirects that were followed, in order."},
        "egress": {
            "type": "object",
            "required": ["mode", "allowed_hosts", "connections"],
            "properties": {
                "mode": {"enum": ["none", "preflight", "strict"]},
                "allowed_hosts": {"type": "array", "items": _TEXT},
                "connections": {"type": "array", "items": {"type": "object"}},
            },
        },
        "error": {
            "type": "object",
            "description": "Why there is no answer.",
            "required": ["code", "message"],
            "additionalProperties": False,
            "properties": {"code": _TEXT, "message": _TEXT},
        },
    },
}

FETCH_TOOL = ToolSpec(
    name="palyra.http.fetch",
    version="1.0.0",
    description=(
        "Fetches a URL of a granted host and returns its status and text; HTML becomes readable text. Only hosts that "
        "were granted can be reached, redirects included, and no private address behind a public name. Credentials "
        "are added by Palyra for hosts they are bound to and never shown. 404 and 500 are normal results."
    ),
    kind=ToolKind.INSIDE,
    input_schema=FETCH_INPUT,
    output_schema=FETCH_OUTPUT,
    capabilities=frozenset({Capability.NETWORK}),
    parallelism=Parallelism.EXCLUSIVE,
    projection=Projection.REDACTED_PREVIEW_AND_ARTIFACT,
    max_input_bytes=64 * KIB,
)
