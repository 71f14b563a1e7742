"""What each method of a component's resources does: words in, words out; an error is a sentence the guest can read.

`place` is the resource's number: where it stands among what was granted. Shapes are those of palyra/sdk/palyra.wit as
the wrapper takes them: a result whose two sides look alike is tagged, others are not.
"""

from __future__ import annotations

import json
from typing import Any

from wasmtime.component import Record, Variant

from palyra.inside.wasm import abi
from palyra.inside.wasm.guest import EndKind, Exceeded, GuestCall, Refused
from palyra.inside.wasm.surface import check_key

_SENTENCES = {
    abi.NOT_GRANTED: "not granted",
    abi.BAD_ARGUMENT: "not a proper key or argument",
    abi.ABSENT: "not there",
    abi.FAILED: "it failed",
    abi.TOO_LARGE: "too large",
}


def _said(refusal: Refused) -> str:
    return _SENTENCES.get(refusal.number, "it failed")


def fetch(call: GuestCall, place: int, request: Any) -> Any:
    sent = {
        "method": request.method,
        "path": request.path,
        "headers": [list(pair) for pair in request.headers],
        "body": request.body,
    }
    try:
        answer = json.loads(call.ask("http-fetch", call.grants.http[place], json.dumps(sent).encode()))
    except Refused as refusal:
        return _said(refusal)
    response = Record()
    response.status = answer["status"]  # type: ignore[attr-defined]
    response.headers = [tuple(pair) for pair in answer["headers"]]  # type: ignore[attr-defined]
    response.body = answer["body"]  # type: ignore[attr-defined]
    return response


def reveal(call: GuestCall, place: int) -> Variant:
    name = call.grants.secrets[place]
    try:
        if name not in call.grants.readable_secrets:
            raise Refused(abi.NOT_GRANTED)
        return Variant("ok", call.ask("secret-get", name).decode("utf-8"))
    except Refused as refusal:
        return Variant("err", _said(refusal))


def _root(call: GuestCall, place: int, *, writing: bool = False) -> str:
    root = call.grants.storage[place]
    if writing and not root.writable:
        raise Refused(abi.NOT_GRANTED)
    return root.prefix


def get(call: GuestCall, place: int, key: str) -> Variant:
    try:
        return Variant("ok", call.ask("storage-get", _root(call, place), check_key(key).encode()).decode("utf-8"))
    except Refused as refusal:
        return Variant("ok", None) if refusal.number == abi.ABSENT else Variant("err", _said(refusal))


def put(call: GuestCall, place: int, key: str, value: str) -> str | None:
    try:
        root = _root(call, place, writing=True)
        call.ask("storage-put", root, check_key(key).encode() + b"\0" + value.encode())
    except Refused as refusal:
        return _said(refusal)
    return None


def delete(call: GuestCall, place: int, key: str) -> str | None:
    try:
        call.ask("storage-delete", _root(call, place, writing=True), check_key(key).encode())
    except Refused as refusal:
        return _said(refusal)
    return None


def list_keys(call: GuestCall, place: int, prefix: str) -> list[str] | str:
    try:
        found = call.ask("storage-list", _root(call, place), (check_key(prefix) if prefix else "").encode())
    except Refused as refusal:
        return _said(refusal)
    return [key for key in found.decode("utf-8").split("\n") if key]


def send(call: GuestCall, place: int, text: str) -> str | None:
    try:
        call.ask("channel-send", call.grants.channels[place], text.encode())
    except Refused as refusal:
        return _said(refusal)
    return None


def emit(call: GuestCall, level: int, message: str) -> None:
    call.log_lines += 1
    if call.log_lines > call.bounds.log_lines:
        raise Exceeded(EndKind.QUOTA, f"The guest wrote more than {call.bounds.log_lines} log lines.")
    call.ask("log", str(min(level, 4)), message.encode()[: abi.MAX_LOG_BYTES])
