"""What a client says and hears, as values: bodies of calls and runs, outcomes, refusals, events. No I/O.

Rules: what was refused at the door comes back as the same exceptions that the library raises; an outcome is parsed by
the one codec. A grant is sent as the operator's own words and read there again: the daemon decides who may say them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from palyra.canon import Json
from palyra.errors import PalyraError, Reason, Rejected
from palyra.model.call import OperatorGrant
from palyra.model.outcome import Outcome, StreamName
from palyra.protocol.parse import check_input, parse_value
from palyra.protocol.wire import parse_outcome

MAX_INPUT_BYTES = 2 << 20


class DaemonError(PalyraError):
    """The daemon refused a request, for a reason that is not one of a call's."""

    def __init__(self, status: int, code: str, message: str, hint: str | None) -> None:
        super().__init__(f"{code}: {message}")
        self.status = status
        self.code = code
        self.advise(hint)


def input_of(given: Mapping[str, Json] | bytes | None) -> Json:
    """Bytes are read here, strictly, and written again: what came from elsewhere must not become words of ours."""
    if isinstance(given, bytes):
        return parse_value(given)
    return check_input({} if given is None else given, max_bytes=MAX_INPUT_BYTES)


def grant_words(grant: OperatorGrant | None) -> dict[str, Json]:
    if grant is None:
        return {}
    egress = "block_all" if grant.block_all else grant.egress.value if grant.egress is not None else None
    words: dict[str, Json] = {
        "allow": list(grant.executables) or None,
        "allow_interpreters": grant.interpreters or None,
        "allow_host": [str(host) for host in grant.hosts] or None,
        "read": list(grant.read_roots) or None,
        "env": dict(grant.env) or None,
        "egress": egress,
        "tier": grant.tier.value if grant.tier is not None else None,
        "allow_root_tier_b": grant.root_tier_b or None,
    }
    return {name: value for name, value in words.items() if value is not None}


def outcome_of(value: object) -> Outcome:
    try:
        return parse_outcome(value)
    except ValueError as error:
        raise PalyraError(f"The daemon's answer is not an outcome: {error}") from error


def loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise PalyraError("The daemon's answer is not JSON.") from error


def refused(status: int, value: object) -> PalyraError:
    """What an error answer means, as an exception."""
    error: Any = value.get("error") if isinstance(value, Mapping) else None
    if not isinstance(error, Mapping):
        return PalyraError(f"The daemon answered {status}, and not in the documented form.")
    code, message, hint = str(error.get("code")), str(error.get("message")), error.get("hint")
    if code in set(Reason):
        fields = tuple((str(one["path"]), str(one["message"])) for one in error.get("fields", ()))
        return Rejected(Reason(code), message, hint, fields=fields)
    return DaemonError(status, code, message, hint)


def events(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """(name, data) of each server-sent event; comments and ids are skipped. `DaemonError` where the daemon cut it."""
    name, data = "", b""
    for line in lines:
        if not line:
            if name == "closed":
                told = loads(data)
                raise DaemonError(401, str(told["reason"]).upper(), str(told["message"]), "Use a valid one.")
            if name:
                yield name, data
            name, data = "", b""
        elif line.startswith(b"event: "):
            name = line[7:].decode()
        elif line.startswith(b"data: "):
            data = line[6:]


def output_of(data: bytes) -> tuple[StreamName, bytes]:
    value = loads(data)
    chunk = value["text"].encode() if "text" in value else base64.b64decode(value["base64"])
    return StreamName(value["stream"]), chunk
