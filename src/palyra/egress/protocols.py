"""The protocols that may pass on a granted port, by the first bytes of both sides. What is in no row is refused.

A client's first message is read whole and passed on. Nothing further of the client's follows until the host's first
bytes are of the same row: a mail server that skips lines it does not understand gets none behind the first message.

Rules: 80 and 443 take TLS and HTTP alone. No first message carries a line of the client's own choosing: SSH is one
line of safe letters, git's and PostgreSQL's have no control characters in their texts, MySQL's follows the host's
greeting, and Redis is asked PING by us before the client's first command leaves (`AUTH` and `SET` carry any text).

Not here: TLS hellos (egress/hello), HTTP (egress/exchange), when bytes are passed on (egress/conversation).
"""

from __future__ import annotations

import re
from enum import StrEnum

from palyra.values import dataclass

WEB_PORTS = (80, 443)
MAX_LINE = 16_384
MAX_STARTUP = 10_000
"""PostgreSQL's own bound of its first message."""
MAX_GIT = 4096
REDIS_PROBE = b"*1\r\n$4\r\nPING\r\n"

_HTTP_START = re.compile(rb"[A-Z][A-Z-]{0,39}(?: |\Z)")
_HTTP_LINE = re.compile(rb"[A-Z][A-Z-]{0,39} [\x21-\x7e\x80-\xff]+ HTTP/[0-9.]{1,8}\r\n")
_HTTP2 = b"PRI * HTTP/2.0\r\n"
_SSH_LINE = re.compile(rb"SSH-2\.0-[A-Za-z0-9._+-]{1,120}(?: [A-Za-z0-9._+-]{1,120})?\r?\n")
_REDIS = re.compile(rb"\*[1-9][0-9]{0,6}\r\n\$")
_GIT = re.compile(
    rb"git-(?:upload-pack|receive-pack|upload-archive) /[^\0-\x1f\x7f]*\0"
    rb"host=([\x21-\x7e]{1,260})\0(?:\0version=[12]\0)?"
)
_GIT_LENGTH = re.compile(rb"[0-9a-f]{0,3}\Z|[0-9a-f]{4}")
_PAIRS = re.compile(rb"(?:[a-zA-Z0-9_.]+\0[^\0-\x1f\x7f]*\0)*\0")
_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_MYSQL_TLS = 0x800
_MYSQL_BYTES = 36
"""Header and the fixed part of a client's first packet; a request for TLS is just that."""


class Protocol(StrEnum):
    TLS = "TLS"
    HTTP = "HTTP"
    SSH = "SSH"
    POSTGRESQL = "PostgreSQL"
    MYSQL = "MySQL"
    REDIS = "Redis"
    GIT = "git"


KNOWN = "TLS, HTTP, SSH, PostgreSQL, MySQL, Redis and git"


class UnknownProtocol(Exception):
    """First bytes that are in no row of the table, or of another row than the host's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A client's first message."""

    protocol: Protocol
    length: int = 0
    asks_tls: bool = False
    """PostgreSQL and MySQL: a TLS hello follows, if the host agrees."""
    named: str = ""
    """The host that git names in it."""


def read_opening(data: bytes, port: int, greeted: Protocol | None) -> Opening | None:
    """The first message in `data`; None: more bytes are needed. Raises `UnknownProtocol`.

    `greeted`: the protocol of a host that spoke first.
    """
    if greeted is Protocol.MYSQL:
        return _read_mysql(data)
    found = _read_first(data, port)
    if found is not None and greeted not in (None, found.protocol):
        raise UnknownProtocol(f"the program speaks {found.protocol}, the host {greeted}")
    return found


def read_greeting(data: bytes) -> Protocol | None:
    """The protocol of a host that speaks first; None: more bytes are needed. Raises `UnknownProtocol`."""
    if (is_ssh := _begins(data, b"SSH-2.0-", b"SSH-1.99-")) is not False:
        return Protocol.SSH if is_ssh else None
    if len(data) < 5 and data[3:4] in (b"", b"\0"):
        return None
    if data[3] == 0 and data[4] in (10, 0xFF):  # protocol version 10, or an error that ends the connection
        return Protocol.MYSQL
    raise UnknownProtocol("the host speaks first, and neither SSH nor MySQL")


def is_answered(protocol: Protocol, data: bytes) -> bool | None:
    """Whether the host's first bytes answer the client's first message; None: more bytes are needed."""
    match protocol:
        case Protocol.SSH:
            return _begins(data, b"SSH-2.0-", b"SSH-1.99-")
        case Protocol.REDIS:
            return _begins(data, b"+PONG\r\n", b"-NOAUTH ", b"-NOPERM ", b"-ERR ", b"-LOADING ", b"-DENIED ")
        case Protocol.GIT:
            if not _GIT_LENGTH.match(data):
                return False
            return data[:4] == b"0000" or _begins(data[4:8], b"ERR ", b"vers", b"ACK\n", b"NACK") or _is_hex(data[4:8])
        case _:
            # A type and a length of four bytes, of which no first answer needs the upper two.
            return _begins(data, *(kind + b"\0\0" for kind in (b"R", b"E", b"N", b"v")))


def _is_hex(data: bytes) -> bool | None:
    return None if len(data) < 4 else _GIT_LENGTH.match(data) is not None


def _begins(data: bytes, *starts: bytes) -> bool | None:
    if data.startswith(starts):
        return True
    return None if any(start.startswith(data) for start in starts) else False


def _read_first(data: bytes, port: int) -> Opening | None:
    if data[0] == 0x16:
        return Opening(protocol=Protocol.TLS)
    if port in WEB_PORTS:
        return _read_http(data)
    if data[0] == 0:
        return _read_postgresql(data)
    if data[:1] == b"*":
        return _read_redis(data)
    if _begins(data, b"SSH-") is not False:
        return _read_ssh(data)
    return _read_git(data) if data[:1] in b"0123456789abcdef" else _read_http(data)


def _read_http(data: bytes) -> Opening | None:
    """The request line alone tells: a method in capitals, a target and a version, single spaces, CR LF."""
    end = data.find(b"\n")
    if data.startswith(_HTTP2):
        raise UnknownProtocol("it speaks HTTP/2 without TLS, in place of HTTP/1.1")
    if end >= 0 and _HTTP_LINE.fullmatch(data, 0, end + 1):
        return Opening(protocol=Protocol.HTTP)
    if end >= 0 or not _HTTP_START.match(data):
        raise UnknownProtocol("its first bytes are none of theirs")
    return None if len(data) < MAX_LINE else Opening(protocol=Protocol.HTTP)


def _read_ssh(data: bytes) -> Opening | None:
    end = data.find(b"\n") + 1
    if not end and len(data) < 256:
        return None
    if not _SSH_LINE.fullmatch(data, 0, end):
        raise UnknownProtocol("its first line is not the version line of SSH 2")
    return Opening(protocol=Protocol.SSH, length=end)


def _read_redis(data: bytes) -> Opening | None:
    if _REDIS.match(data):
        return Opening(protocol=Protocol.REDIS)
    if len(data) < 12 and re.fullmatch(rb"\*(?:[1-9][0-9]{0,6}(?:\r\n?)?)?", data):
        return None
    raise UnknownProtocol("its first bytes are not a command of Redis, *N CR LF $")


def _read_git(data: bytes) -> Opening | None:
    if not _GIT_LENGTH.match(data) or _begins(data[4:8], b"git-") is False:
        raise UnknownProtocol("its first bytes are none of theirs")
    length = int(data[:4], 16) if len(data) >= 8 else MAX_GIT
    if len(data) < min(length, MAX_GIT):
        return None
    found = _GIT.fullmatch(data, 4, length)
    if found is None:
        raise UnknownProtocol("its first packet is not a request of git's that says host=")
    return Opening(protocol=Protocol.GIT, length=length, named=found[1].decode("ascii"))


def _read_postgresql(data: bytes) -> Opening | None:
    if len(data) < 8:
        return None
    length, code = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
    if (length, code) in ((8, _SSL), (8, _GSS)):
        return Opening(protocol=Protocol.POSTGRESQL, length=8, asks_tls=True)
    is_startup = code >> 16 == 3 and 8 < length <= MAX_STARTUP
    if not is_startup and (length, code) != (16, _CANCEL):
        raise UnknownProtocol("its first packet is not PostgreSQL's")
    if len(data) < length:
        return None
    if is_startup and not _PAIRS.fullmatch(data, 8, length):
        raise UnknownProtocol("PostgreSQL's first packet holds more than names and values")
    return Opening(protocol=Protocol.POSTGRESQL, length=length)


def _read_mysql(data: bytes) -> Opening | None:
    if data[3:4] not in (b"", b"\1"):
        raise UnknownProtocol("its first packet is not MySQL's")
    if len(data) < _MYSQL_BYTES:
        return None
    length, capabilities = int.from_bytes(data[:3], "little"), int.from_bytes(data[4:8], "little")
    asks_tls = bool(capabilities & _MYSQL_TLS)
    # 19 of the 23 bytes that are kept free; MariaDB uses the other four. Behind a request for TLS comes its hello.
    if length < 32 or any(data[13:32]) or (asks_tls and length != 32):
        raise UnknownProtocol("its first packet is not MySQL's")
    return Opening(protocol=Protocol.MYSQL, length=_MYSQL_BYTES, asks_tls=asks_tls)
