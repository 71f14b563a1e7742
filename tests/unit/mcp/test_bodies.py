"""Bodies of MCP over HTTP: whole, in time, not too large; whoever sends another is told so in JSON-RPC."""

from __future__ import annotations

import asyncio
import json

import pytest

from palyra.mcp.bodies import Bounds, Unread, read_whole, refusal

GONE = {"type": "http.disconnect"}


def piece(body: bytes, *, more: bool = True) -> dict[str, object]:
    return {"type": "http.request", "body": body, "more_body": more}


async def heard(*messages, headers=(), bounds=None, then_s: float = 0.0):
    left = list(messages)

    async def receive():
        await asyncio.sleep(0 if left else then_s)
        return left.pop(0) if left else GONE

    replay = await read_whole({"type": "http", "headers": list(headers)}, receive, bounds or Bounds(max_bytes=8))
    return [await replay(), await replay()]


def test_a_body_comes_in_one_piece_and_behind_it_the_client_itself():
    assert asyncio.run(heard(piece(b"{"), piece(b""), piece(b"}", more=False))) == [piece(b"{}", more=False), GONE]


def test_a_request_without_a_body_is_read_too():
    assert asyncio.run(heard({"type": "http.request"})) == [piece(b"", more=False), GONE]


@pytest.mark.parametrize(
    ("messages", "headers", "status", "reason"),
    [
        ([piece(b"{"), GONE], [], 400, "MALFORMED"),
        ([piece(b"123456789", more=False)], [], 413, "TOO_LARGE"),
        ([piece(b"12345678"), piece(b"9")], [], 413, "TOO_LARGE"),
        ([], [(b"content-length", b"9")], 413, "TOO_LARGE"),
        ([], [(b"content-length", "²".encode("latin-1"))], 413, "TOO_LARGE"),
    ],
)
def test_a_body_that_breaks_off_or_is_too_large_is_refused(messages, headers, status, reason):
    with pytest.raises(Unread) as unread:
        asyncio.run(heard(*messages, headers=headers))
    answer = unread.value.answer
    assert (answer.status_code, json.loads(answer.body)["error"]["data"]["reason"]) == (status, reason)


def test_a_body_that_does_not_come_to_its_end_is_refused_when_its_time_is_over():
    with pytest.raises(Unread) as unread:
        asyncio.run(heard(piece(b"{"), bounds=Bounds(timeout_s=0.01), then_s=60))
    answer = unread.value.answer
    assert (answer.status_code, answer.headers["connection"]) == (408, "close")
    assert json.loads(answer.body) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": -32600,
            "message": "The body took too long to arrive.",
            "data": {"reason": "SLOW", "hint": "Send it faster, or raise daemon.body_timeout_ms."},
        },
    }


def test_who_may_try_again_is_not_told_that_the_request_was_wrong():
    busy = refusal(429, "BUSY", "Later.", None, headers={"Retry-After": "5"})
    assert busy.headers["retry-after"] == "5"
    error = {"code": -32603, "message": "Later.", "data": {"reason": "BUSY", "hint": None}}
    assert json.loads(busy.body) == {"jsonrpc": "2.0", "id": None, "error": error}
