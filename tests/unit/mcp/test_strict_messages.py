"""A message that cannot be understood is answered, with its id where that can be told; others are let through."""

from __future__ import annotations

import json

import mcp_types as types
import pytest

from palyra.mcp.strict_messages import check_message, too_long
from tests.promises import promise

pytestmark = promise("mcp.ambiguous-messages")

CALL = '"jsonrpc": "2.0", "id": 7, "method": "tools/call"'
DEEP = "[" * 40 + "]" * 40


@pytest.mark.parametrize(
    "message",
    [
        '{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
        '{"jsonrpc": "2.0", "id": "a", "method": "ping", "params": {}}',
        '{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        '{"jsonrpc": "2.0", "id": 1, "result": {}}',
        '{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}',
        '{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "x"}}',
        "{" + CALL + ', "params": {"name": "x", "arguments": ' + '{"a":' * 31 + "{}" + "}" * 31 + "}}",
    ],
)
def test_a_message_that_keeps_every_rule_is_let_through(message):
    assert check_message(message.encode()) is None


@pytest.mark.parametrize(
    ("message", "code", "request_id", "is_call"),
    [
        (b"not json", types.PARSE_ERROR, None, False),
        (b"", types.PARSE_ERROR, None, False),
        (b"\xef\xbb\xbf{}", types.PARSE_ERROR, None, False),
        (b"[" * 100_000, types.PARSE_ERROR, None, False),
        ("{" + CALL + ', "params": {"name": "x", "arguments": {"a": "\\ud800"}}}', types.PARSE_ERROR, 7, True),
        ('{"jsonrpc": "2.0", "id": "\\udfff", "method": "tools/call"}', types.PARSE_ERROR, None, True),
        ("{" + CALL + ', "params": {"name": "x", "arguments": {"a": 1, "a": 2}}}', types.PARSE_ERROR, 7, True),
        ('{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "ping"}', types.PARSE_ERROR, None, False),
        (b"{" + CALL.encode() + b', "params": {"name": "x\xff"}}', types.PARSE_ERROR, 7, True),
        ("{" + CALL + ', "params": {"name": "x", "arguments": {"a": ' + DEEP + "}}}", types.PARSE_ERROR, 7, True),
        ("{" + CALL + ', "params": {"a": NaN}}', types.PARSE_ERROR, 7, True),
        ("[{" + CALL + "}]", types.INVALID_REQUEST, None, False),
        ("[]", types.INVALID_REQUEST, None, False),
        ("7", types.INVALID_REQUEST, None, False),
        ('{"jsonrpc": "2.0", "id": 7}', types.INVALID_REQUEST, 7, False),
        ('{"jsonrpc": "2.0", "id": 7, "method": 7}', types.INVALID_REQUEST, 7, False),
        ('{"jsonrpc": "1.0", "id": 7, "method": "ping"}', types.INVALID_REQUEST, 7, False),
        ('{"id": 7, "method": "ping"}', types.INVALID_REQUEST, 7, False),
        ('{"jsonrpc": "2.0", "id": null, "method": "ping"}', types.INVALID_REQUEST, None, False),
        ('{"jsonrpc": "2.0", "id": true, "method": "ping"}', types.INVALID_REQUEST, None, False),
        ('{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', types.INVALID_REQUEST, None, False),
        ('{"jsonrpc": "2.0", "id": 7, "method": "ping", "params": []}', types.INVALID_REQUEST, 7, False),
        ("{" + CALL + ', "result": {}}', types.INVALID_REQUEST, 7, True),
        ("{" + CALL + ', "error": {}}', types.INVALID_REQUEST, 7, True),
        ('{"jsonrpc": "2.0", "id": 7, "result": {}, "error": {}}', types.INVALID_REQUEST, 7, False),
        ('{"jsonrpc": "2.0", "result": {}}', types.INVALID_REQUEST, None, False),
    ],
)  # fmt: skip
def test_any_other_is_answered_with_an_error_and_its_id(message, code, request_id, is_call):
    found = check_message(message if isinstance(message, bytes) else message.encode())
    assert found is not None
    assert (found.code, found.request_id, found.is_call) == (code, request_id, is_call)
    answer = json.loads(found.answer().model_dump_json())
    assert answer["id"] == request_id
    assert answer["error"]["code"] == code
    assert answer["error"]["data"]["reason"] in ("MALFORMED", "TOO_LARGE")


def test_a_line_that_is_too_long_is_answered_without_its_id():
    answer = too_long(4 << 20).answer()
    assert answer.id is None
    assert answer.error.data["reason"] == "TOO_LARGE"
