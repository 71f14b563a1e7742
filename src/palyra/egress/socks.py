"""SOCKS5 (RFC 1928) as far as it is spoken: no authentication, CONNECT, by name or by address.

Rules: BIND and UDP are refused with their own code, as are unknown address kinds; a name is ASCII and in its usual
spelling. SOCKS4 is refused in its own words.

Not here: whether the host may be reached (egress/conversation).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from palyra.egress.events import Command, SendClient
from palyra.egress.grammar import Malformed, Target, parse_name
from palyra.egress.hosts import embedded

SUCCEEDED, GENERAL, NOT_ALLOWED, UNREACHABLE, NO_COMMAND, NO_ADDRESS_KIND = 0, 1, 2, 4, 7, 8
ANYONE = b"\x05\x00"
NO_METHOD = b"\x05\xff"
SOCKS4_REFUSED = b"\x00\x5b" + bytes(6)
_CONNECT = 1
_LENGTHS = {1: 4, 4: 16}


class SocksRefused(Malformed):
    def __init__(self, why: str, code: int) -> None:
        super().__init__(why, words=write_reply(code))
        self.code = code


class SocksTalk:
    """A client's side of the protocol until it has said where it wants to go."""

    def __init__(self) -> None:
        self._is_greeted = False

    def advance(self, inbox: bytearray, out: list[Command]) -> Target | None:
        """None: more bytes are needed. Raises `Malformed`."""
        if not self._is_greeted:
            greeting = read_greeting(inbox)
            if greeting is None:
                return None
            del inbox[: greeting[0]]
            if not greeting[1]:
                raise Malformed(
                    "the program wants to authenticate to the proxy, which is not supported", words=NO_METHOD
                )
            self._is_greeted = True
            out.append(SendClient(ANYONE))
        request = read_request(inbox)
        if request is None:
            return None
        del inbox[: request[0]]
        return request[1]


def refuse_socks4() -> Malformed:
    return Malformed("SOCKS4 is not supported, SOCKS5 is", words=SOCKS4_REFUSED)


def read_greeting(buffer: bytearray) -> tuple[int, bool] | None:
    """(its length, whether it offers to go without authentication); None: more bytes are needed."""
    if len(buffer) < 2 or len(buffer) < 2 + buffer[1]:
        return None
    return 2 + buffer[1], 0 in buffer[2 : 2 + buffer[1]]


def read_request(buffer: bytearray) -> tuple[int, Target] | None:
    """(its length, what is asked for); None: more bytes are needed. Raises `SocksRefused`."""
    if len(buffer) < 5:
        return None
    kind, is_name = buffer[3], buffer[3] == 3
    if buffer[0] != 5 or buffer[2] != 0:
        raise SocksRefused("the SOCKS request is malformed", GENERAL)
    if not is_name and kind not in _LENGTHS:
        raise SocksRefused("the SOCKS request has an unknown kind of address", NO_ADDRESS_KIND)
    start = 5 if is_name else 4
    end = start + (buffer[4] if is_name else _LENGTHS[kind])
    if len(buffer) < end + 2:
        return None
    if buffer[1] != _CONNECT:
        raise SocksRefused("SOCKS is supported for CONNECT only, not for BIND or UDP", NO_COMMAND)
    port = int.from_bytes(buffer[end : end + 2], "big")
    if not port:
        raise SocksRefused("the SOCKS request names port 0", GENERAL)
    return end + 2, Target(_host(kind, bytes(buffer[start:end])), port)


def write_reply(code: int) -> bytes:
    return bytes((5, code, 0, 1)) + bytes(6)


def _host(kind: int, data: bytes) -> str:
    if kind == 1:
        return str(IPv4Address(data))
    if kind == 4:
        return str(embedded(IPv6Address(data)))
    try:
        return parse_name(data.decode("latin-1"))
    except Malformed as bad:
        raise SocksRefused(bad.why, GENERAL) from None
