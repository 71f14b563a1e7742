"""Bodies of MCP over HTTP, read whole before a message is made of them, and what is said to whoever is not let so far.

Rules: a body has a size and a time; a declared length that is too large is refused before a byte is read. A refusal has
the status that the daemon's other doors give it, and in its body a JSON-RPC error with the code, the sentence and the
hint: a client of MCP shows these, and of any other shape only that something was wrong. The SDK gets whole bodies
alone: what breaks off in the middle is an error of its own to it, with a traceback in the log.

Not here: who may ask (identify), how much of everybody's is in memory at once (daemon/bodies).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import mcp_types as types
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from palyra.values import dataclass

MAX_BODY_BYTES = 1 << 20
"""One call, whose input has 448 KiB at most. While one is read, nobody else is answered."""
BODY_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    max_bytes: int = MAX_BODY_BYTES
    timeout_s: float = BODY_TIMEOUT_S


class Unread(Exception):
    """The request does not become a message; `answer` says why."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer.status_code)
        self.answer = answer


def refusal(
    status: int, reason: str, message: str, hint: str | None, *, headers: Mapping[str, str] | None = None
) -> Response:
    """For a request whose id nobody read: with `null` for one, clients take it for the answer to what they sent."""
    code = types.INVALID_REQUEST if status < 429 else types.INTERNAL_ERROR
    error = types.ErrorData(code=code, message=message, data={"reason": reason, "hint": hint})
    body = types.JSONRPCError(jsonrpc="2.0", id=None, error=error).model_dump_json()
    return Response(body, status_code=status, media_type="application/json", headers=dict(headers or {}))


async def read_whole(scope: Scope, receive: Receive, bounds: Bounds) -> Receive:
    """What the application is given to receive from: the body in one piece, then whatever comes behind it.

    Raises Unread: TOO_LARGE, SLOW, or MALFORMED for one that broke off."""
    declared = Headers(scope=scope).get("content-length", "0")
    if not declared.isascii() or not declared.isdigit() or int(declared) > bounds.max_bytes:
        raise Unread(_too_large(bounds))
    try:
        async with asyncio.timeout(bounds.timeout_s):
            body = await _read(receive, bounds)
    except TimeoutError:
        raise Unread(_too_slow()) from None
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


async def _read(receive: Receive, bounds: Bounds) -> bytes:
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Unread(refusal(400, "MALFORMED", "The body ended early.", "Send it again."))
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > bounds.max_bytes:
            raise Unread(_too_large(bounds))
        more = message.get("more_body", False)
    return b"".join(chunks)


def _too_slow() -> Response:
    hint = "Send it faster, or raise daemon.body_timeout_ms."
    return refusal(408, "SLOW", "The body took too long to arrive.", hint, headers={"Connection": "close"})


def _too_large(bounds: Bounds) -> Response:
    hint = f"Send less: MCP takes {MAX_BODY_BYTES} bytes at most, and no more than daemon.max_body_bytes."
    return refusal(413, "TOO_LARGE", f"The body has more than {bounds.max_bytes} bytes.", hint)
