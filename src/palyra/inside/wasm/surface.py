"""What each host function does, whichever layer linked it: numbers in, one number out.

`Memory` is the caller's exported memory as it is at the time of this very call: it may have grown or moved since the
last one. Pointers and lengths are masked to u32 and checked against it; a length that is negative in the guest's eyes
is merely too large here. Nothing raises but `Refused` (an answer) and `Exceeded` (the guest's end).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from palyra.inside.wasm import abi
from palyra.inside.wasm.guest import EndKind, Exceeded, GuestCall, Refused

U32: Final = 0xFFFFFFFF
_KEY = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")
"""Names of a key-value space, never paths: no empty part, nothing absolute; dots alone are refused below."""


class Memory(Protocol):
    def read(self, pointer: int, count: int) -> bytes:
        """Raises `Refused(BAD_ARGUMENT)` outside the memory's present size."""

    def write(self, pointer: int, data: bytes) -> None: ...


Function = Callable[..., int]


def functions() -> dict[str, Function]:
    """name → function(call, memory, *numbers); counting functions take no memory but are given one all the same."""
    table: dict[str, Function] = {
        "input-len": lambda call, memory: len(call.input),
        "input-read": _input_read,
        "output": _output,
        "take": _take,
        "http-fetch": _http_fetch,
        "secret-get": _secret_get,
        "storage-get": partial(_storage, "storage-get"),
        "storage-put": _storage_put,
        "storage-list": partial(_storage, "storage-list"),
        "storage-delete": partial(_storage, "storage-delete"),
        "channel-send": _channel_send,
        "log": _log,
    }
    for family, base in abi.FAMILIES.items():
        table[f"{family}-count"] = partial(_count, family)
        table[f"{family}-handle"] = partial(_handle, family, base)
    return table


def answer(function: Function, call: GuestCall, memory: Memory, numbers: Sequence[int]) -> int:
    """The one way in: a refusal becomes its number. `Exceeded` is for the layer that can end the guest."""
    call.enter()
    try:
        return function(call, memory, *numbers)
    except Refused as refusal:
        return refusal.number


def _count(family: str, call: GuestCall, memory: Memory) -> int:
    return call.grants.count(family)


def _handle(family: str, base: int, call: GuestCall, memory: Memory, place: int) -> int:
    return base + place if 0 <= place < call.grants.count(family) else abi.NOT_GRANTED


def _input_read(call: GuestCall, memory: Memory, pointer: int, capacity: int) -> int:
    data = call.input[: capacity & U32]
    call.carry(len(data))
    memory.write(pointer, data)
    return len(data)


def _output(call: GuestCall, memory: Memory, pointer: int, count: int) -> int:
    count &= U32
    if count > call.bounds.output_bytes:
        raise Exceeded(EndKind.QUOTA, f"The guest's output is larger than {call.bounds.output_bytes} bytes.")
    call.output = memory.read(pointer, count)
    call.carry(count)
    return 0


def _take(call: GuestCall, memory: Memory, pointer: int, capacity: int) -> int:
    """As much as fits; the rest stays parked, so that a guest with a small buffer can go on."""
    data = call.parked[: capacity & U32]
    memory.write(pointer, data)
    call.parked = call.parked[len(data) :]
    return len(data)


def _park(call: GuestCall, data: bytes) -> int:
    call.parked = data
    return len(data)


def _sized(call: GuestCall, memory: Memory, pointer: int, count: int) -> bytes:
    count &= U32
    if count > call.bounds.host_bytes:
        raise Refused(abi.TOO_LARGE)
    return memory.read(pointer, count)


def _http_fetch(call: GuestCall, memory: Memory, handle: int, pointer: int, count: int) -> int:
    host = call.grants.http[call.place("http", handle)]
    return _park(call, call.ask("http-fetch", host, _sized(call, memory, pointer, count)))


def _secret_get(call: GuestCall, memory: Memory, handle: int) -> int:
    name = call.grants.secrets[call.place("secret", handle)]
    if name not in call.grants.readable_secrets:
        raise Refused(abi.NOT_GRANTED)
    return _park(call, call.ask("secret-get", name))


def _key(call: GuestCall, memory: Memory, pointer: int, count: int) -> str:
    if count & U32 > abi.MAX_KEY_BYTES:
        raise Refused(abi.BAD_ARGUMENT)
    try:
        key = memory.read(pointer, count & U32).decode("ascii")
    except UnicodeDecodeError:
        raise Refused(abi.BAD_ARGUMENT) from None
    return key


def check_key(key: str) -> str:
    if not _KEY.fullmatch(key) or any(part.strip(".") == "" for part in key.split("/")):
        raise Refused(abi.BAD_ARGUMENT)
    return key


def _storage(operation: str, call: GuestCall, memory: Memory, handle: int, pointer: int, count: int) -> int:
    root = call.grants.storage[call.place("storage", handle)]
    if operation == "storage-delete" and not root.writable:
        raise Refused(abi.NOT_GRANTED)
    key = _key(call, memory, pointer, count)
    if operation != "storage-list" or key:  # listing from the root itself names no key
        check_key(key)
    found = call.ask(operation, root.prefix, key.encode())
    return 0 if operation == "storage-delete" else _park(call, found)


def _storage_put(call: GuestCall, memory: Memory, handle: int, key: int, key_count: int, at: int, count: int) -> int:
    root = call.grants.storage[call.place("storage", handle)]
    if not root.writable:
        raise Refused(abi.NOT_GRANTED)
    name = check_key(_key(call, memory, key, key_count))
    value = _sized(call, memory, at, count)
    call.ask("storage-put", root.prefix, name.encode() + b"\0" + value)
    return 0


def _channel_send(call: GuestCall, memory: Memory, handle: int, pointer: int, count: int) -> int:
    name = call.grants.channels[call.place("channel", handle)]
    call.ask("channel-send", name, _sized(call, memory, pointer, count))
    return 0


def _log(call: GuestCall, memory: Memory, level: int, pointer: int, count: int) -> int:
    call.log_lines += 1
    if call.log_lines > call.bounds.log_lines:
        raise Exceeded(EndKind.QUOTA, f"The guest wrote more than {call.bounds.log_lines} log lines.")
    line = memory.read(pointer, min(count & U32, abi.MAX_LOG_BYTES))
    call.ask("log", str(min(max(level, 0), 4)), line)
    return 0
