"""What an engine and its keeper say to each other: one greeting, one request, one answer, then the line is closed.

A frame is four bytes of length and one strict JSON object. The keeper greets first, so a client knows that its request
was not sent into a closing keeper and may be repeated elsewhere. Every request carries the token that the keeper wrote
into the home: reaching the socket is not enough, its home must be readable too (a confined child of the same uid may
reach a socket whose folder it cannot read).

Not here: sockets (keeper, keeper_client).
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Mapping
from typing import Any

import orjson

from palyra.canon import Json
from palyra.errors import PalyraError, Reason, Rejected, StateError
from palyra.model.process import NotStarted
from palyra.protocol.parse import parse_input

PROTOCOL = 2
SOCKET, TOKEN, LOCK, START_LOCK = "keeper.sock", "keeper.token", "keeper.lock", "keeper.start"
MAX_FRAME_BYTES = 4 << 20
_LENGTH = struct.Struct("!I")


class BrokenLine(Exception):
    """The other side went away, or does not speak as we do."""


async def read_frame(reader: asyncio.StreamReader) -> dict[str, Json]:
    try:
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if size > MAX_FRAME_BYTES:
            raise BrokenLine(f"a frame of {size} bytes")
        return parse_input(await reader.readexactly(size), max_bytes=MAX_FRAME_BYTES)
    except (asyncio.IncompleteReadError, OSError) as error:
        raise BrokenLine("the line was closed") from error
    except Rejected as error:
        raise BrokenLine(error.detail) from error


async def write_frame(writer: asyncio.StreamWriter, message: Mapping[str, Json]) -> None:
    data = orjson.dumps(message)
    if len(data) > MAX_FRAME_BYTES:
        raise BrokenLine(f"a frame of {len(data)} bytes")
    try:
        writer.write(_LENGTH.pack(len(data)) + data)
        await writer.drain()
    except OSError as error:
        raise BrokenLine("the line was closed") from error


def peer_uid(sock: Any) -> int:
    """Who is at the other end, as the kernel saw them when they connected or listened."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(uid)


def error_json(error: Exception) -> dict[str, Json]:
    """An answer that says why not. What we did not foresee is told without its details: the keeper's log has them."""
    match error:
        case Rejected():
            body = {"kind": "rejected", "reason": error.reason.value, "detail": error.detail, "hint": error.hint}
        case StateError():
            body = {"kind": "state", "reason": None, "detail": error.detail, "hint": error.hint}
        case NotStarted():
            body = {"kind": "not_started", "reason": None, "detail": error.detail, "hint": error.hint}
        case _:
            sentence = f"The keeper failed: {type(error).__name__}."
            body = {"kind": "not_started", "reason": None, "detail": sentence, "hint": "Its log is logs/keeper.log."}
    return {"error": body}


def error_from(body: Json) -> PalyraError:
    if not isinstance(body, Mapping) or not isinstance(body.get("detail"), str):
        return NotStarted("The keeper's answer cannot be read.")
    detail, hint = body["detail"], body.get("hint")
    hint = hint if isinstance(hint, str) else None
    if body.get("kind") == "state":
        return StateError(detail, hint)
    if body.get("kind") == "rejected" and body.get("reason") in set(Reason):
        return Rejected(Reason(body["reason"]), detail, hint)
    return NotStarted(detail, hint)
