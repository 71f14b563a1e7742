"""A request's body and query: bounded, timed, strict, then checked by a model.

Rules: a declared length that is too large is refused before a byte is read; what is not declared is counted; a sender
that takes too long is refused. JSON is read by the one strict parser (no duplicate keys: two readers, two meanings).

Not here: who may send it (daemon/auth comes first).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request

from palyra.daemon.bodies import Share
from palyra.daemon.patience import within
from palyra.daemon.routes import WHOLE_BODY, Refused, heads_of
from palyra.errors import Reason, Rejected
from palyra.protocol.parse import MAX_DEPTH, parse_value

MAX_FIELDS = 20
MAX_QUERY_FIELDS = 64
MAX_VALUES = 65_536
"""In one body, texts and numbers, lists and objects together: while one is read, nobody else is answered."""


async def read_body(request: Request, share: Share, *, max_bytes: int, timeout_s: float) -> bytes:
    whole: bytes | None = request.scope.get(WHOLE_BODY)
    if whole is not None:
        if len(whole) > max_bytes:
            raise too_large(max_bytes)
        share.add(len(whole))
        return whole
    chunks: list[bytes] = []

    def take(chunk: bytes) -> None:
        share.add(len(chunk))
        chunks.append(chunk)

    await take_body(request, take, max_bytes=max_bytes, timeout_s=timeout_s)
    return b"".join(chunks)


async def take_body(request: Request, take: Callable[[bytes], object], *, max_bytes: int, timeout_s: float) -> None:
    """Piece by piece, for whoever need not have it whole; never more than `max_bytes`, and not for longer."""
    if declared_too_large(request, max_bytes):
        raise too_large(max_bytes)
    try:
        await within(_take_all(request, take, max_bytes), timeout_s)
    except TimeoutError:
        raise too_slow() from None


async def _take_all(request: Request, take: Callable[[bytes], object], max_bytes: int) -> None:
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] != "http.request":
            raise broken_off()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise too_large(max_bytes)
        if chunk:
            take(chunk)
        more = message.get("more_body", False)


def declared_too_large(request: Request, max_bytes: int) -> bool:
    declared = heads_of(request).get("content-length")
    return declared is not None and (not declared.isascii() or not declared.isdigit() or int(declared) > max_bytes)


def too_slow() -> Refused:
    hint = "Send it faster, or raise daemon.body_timeout_ms."
    return Refused(408, "SLOW", "The body took too long to arrive.", hint, headers={"Connection": "close"})


def broken_off() -> Refused:
    return Refused(400, "MALFORMED", "The body ended early.", None)


def parse_json(data: bytes) -> Any:
    try:
        return parse_value(
            data, max_depth=MAX_DEPTH + 2, max_values=MAX_VALUES
        )  # a call's input, in a body, in a batch
    except Rejected as error:
        status = 413 if error.reason is Reason.TOO_LARGE else 400
        raise Refused(status, error.reason, error.detail.replace("The input", "The body"), error.hint) from None


def parse_form(data: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            data.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS, errors="strict"
        )
    except (UnicodeDecodeError, ValueError):
        raise Refused(400, "MALFORMED", "The form cannot be read.", "Send UTF-8 fields.") from None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused(400, "MALFORMED", "A field appears twice in the form.", "Send each once.")
    return found


def checked(kind: TypeAdapter[Any], value: Any, *, words: bool = False) -> Any:
    """`words`: the values came as text, so a number may be read out of one."""
    try:
        return kind.validate_python(value, strict=not words)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        places = ((_place(one["loc"], value), f"{one['msg']}.") for one in found)
        fields = tuple((_path(place), said) for place, said in places if place is not None)[:MAX_FIELDS]
        raise Refused(
            422, "BAD_ARGUMENTS", "The request does not have the documented form.", "See /openapi.json.", fields=fields
        ) from None


def checked_query(kind: TypeAdapter[Any], request: Request) -> Any:
    pairs = request.query_params.multi_items()
    found: Mapping[str, str] = dict(pairs)
    if len(found) != len(pairs):
        raise Refused(422, "BAD_ARGUMENTS", "A parameter appears twice in the query.", "Send each once.")
    return checked(kind, found, words=True)


def _place(place: tuple[int | str, ...], value: Any) -> tuple[int | str, ...] | None:
    """Where one or a list of them may be sent, an error names the kind first: our own class. Of the kind that was sent
    the rest is told, of the other nothing."""
    kind = str(place[0]) if place else ""
    if not kind.removeprefix("list[").removesuffix("]").endswith("Body"):
        return place
    return place[1:] if kind.startswith("list[") is isinstance(value, list) else None


def _path(place: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in place)


def too_large(max_bytes: int) -> Refused:
    return Refused(
        413,
        "TOO_LARGE",
        f"The body has more than {max_bytes} bytes.",
        "Send less, or raise daemon.max_body_bytes.",
    )
