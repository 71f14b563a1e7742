"""The name a TLS client asks for: ClientHello read out of its records, however they are cut, and nothing after it.

Rules: bounded; records and lengths must fit exactly; a name stands in one extension, in one entry. With Encrypted
ClientHello the outer name is all there is to see. A server may answer with HelloRetryRequest, after which the client
says ClientHello again: that one is read too, or a second name would slip through behind the first.

Not here: whether the name may be reached (egress/hello). Nothing is decrypted here.
"""

from __future__ import annotations

from palyra.egress.grammar import Malformed, parse_name
from palyra.values import dataclass

MAX_HELLO = 32_768
MAX_RECORDS = 49_152
"""Of raw bytes, headers included, until the hello is whole."""
HANDSHAKE, CHANGE_CIPHER, ALERT, APPLICATION = 22, 20, 21, 23
_ALERT_START, _HANDSHAKE_START = b"\x15\x03", b"\x16\x03"
_ALERT_LEVEL, _FATAL = 5, 2
_NO_TLS = "the host does not answer as TLS does"
_CLIENT_HELLO, _SERVER_HELLO = 1, 2
_SNI, _ECH = 0, 0xFE0D
_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random of a ServerHello that is a HelloRetryRequest (RFC 8446, 4.1.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    name: str | None
    is_encrypted: bool = False
    """There is an inner hello that only the host can read."""


class HandshakeReader:
    """The bytes of the first handshake message of one side. `skips` are record types that may come before it."""

    def __init__(self, skips: tuple[int, ...] = ()) -> None:
        self._skips = skips
        self._at = 0
        self._message = bytearray()
        self._skipped = 0

    def read(self, buffer: bytearray, *, need: int | None = None) -> bytes | None:
        """The message whole, or its first `need` bytes; None: more bytes are needed. Raises `Malformed`."""
        while True:
            whole = self._length() if need is None else need
            if whole is not None and len(self._message) >= whole:
                return bytes(self._message[:whole])
            if not self._take_record(buffer):
                return None

    @property
    def end(self) -> int:
        """How far the buffer was read: behind the record that completed the message."""
        return self._at

    @property
    def is_exact(self) -> bool:
        return len(self._message) == self._length()

    def _length(self) -> int | None:
        if len(self._message) < 4:
            return None
        length = 4 + int.from_bytes(self._message[1:4], "big")
        if length > MAX_HELLO:
            raise Malformed("the TLS hello is too long")
        return length

    def _take_record(self, buffer: bytearray) -> bool:
        at = self._at
        if len(buffer) - at < 5:
            return False
        kind, length = buffer[at], int.from_bytes(buffer[at + 3 : at + 5], "big")
        if buffer[at + 1] != 3 or buffer[at + 2] > 4 or not 1 <= length <= 16_640:
            raise Malformed("this does not begin as TLS does")
        if kind != HANDSHAKE and (kind not in self._skips or self._message):
            raise Malformed("another TLS record comes where a ClientHello should")
        if at + 5 + length - self._skipped > MAX_RECORDS:
            raise Malformed("the TLS hello is split into too many records")
        if len(buffer) < at + 5 + length:
            return False
        if kind == HANDSHAKE:
            self._message += buffer[at + 5 : at + 5 + length]
        else:
            self._skipped += 5 + length
        self._at = at + 5 + length
        return True


def read_hello(reader: HandshakeReader, buffer: bytearray) -> Hello | None:
    """None: more bytes are needed. Raises `Malformed`."""
    message = reader.read(buffer)
    if message is None:
        return None
    if not reader.is_exact:
        raise Malformed("something follows the TLS hello in its record")
    return parse_hello(message)


def is_retry(reader: HandshakeReader, buffer: bytearray) -> bool | None:
    """Whether the host asks for another ClientHello; None: more bytes are needed. Raises `Malformed` for an answer that
    is not TLS: a host that skips what it does not understand would read what follows the hello."""
    if buffer[:2] == _ALERT_START:
        if len(buffer) < _ALERT_LEVEL + 1:
            return None
        if buffer[_ALERT_LEVEL] == _FATAL:
            return False  # nothing that a second hello could follow; behind a warning comes the answer itself
    if not any(start.startswith(bytes(buffer[:2])) for start in (_ALERT_START, _HANDSHAKE_START)):
        raise Malformed(_NO_TLS)
    try:
        start = reader.read(buffer, need=38)
    except Malformed:
        start = b"\0"
    if start is None:
        return None
    if start[0] != _SERVER_HELLO:
        raise Malformed(_NO_TLS)
    return start[6:38] == _RETRY


def parse_hello(message: bytes) -> Hello:
    """A ClientHello with its four bytes of header. Raises `Malformed`."""
    if message[0] != _CLIENT_HELLO:
        raise Malformed("the first TLS message is not a ClientHello")
    cut = _Cut(message[4:])
    cut.take(34)
    cut.block(1)
    cut.block(2)
    cut.block(1)
    extensions = _Cut(cut.block(2) if cut.left else b"")
    cut.finish()
    names: list[str] = []
    is_encrypted = False
    while extensions.left:
        kind = int.from_bytes(extensions.take(2), "big")
        content = extensions.block(2)
        if kind == _SNI:
            names.append(_server_name(content))
        is_encrypted |= kind == _ECH
    if len(names) > 1:
        raise Malformed("the TLS hello names its host twice")
    return Hello(name=names[0] if names else None, is_encrypted=is_encrypted)


def _server_name(content: bytes) -> str:
    outer = _Cut(content)
    entries = _Cut(outer.block(2))
    outer.finish()
    if entries.take(1) != b"\0":
        raise Malformed("the TLS hello names its host in an unknown way")
    name = entries.block(2)
    entries.finish()
    return parse_name(name.decode("latin-1"))


class _Cut:
    """Bytes taken from the front, each length checked."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise Malformed("a length in the TLS hello is wrong")
        self._at += count
        return self._data[self._at - count : self._at]

    def block(self, width: int) -> bytes:
        return self.take(int.from_bytes(self.take(width), "big"))

    def finish(self) -> None:
        if self.left:
            raise Malformed("a length in the TLS hello is wrong")
