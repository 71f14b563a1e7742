"""Hosts as values: canonical names, patterns, and what kind of address an address is.

Rules: names are lower case, IDNA (UTS 46), without a trailing dot. An IPv4 address has one spelling, four decimal
numbers: decimal, hex, octal and short forms are refused, because readers disagree about them (`0x7f.1` is 127.0.0.1 to
some). A v4-mapped or v4-compatible IPv6 address is judged as the IPv4 address in it. Every range that is not plainly
public has a row in the tables below; what is in no row of global unicast space is not public either.

Not here: whether a host is granted (egress/rules), looking names up (egress/dial).
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from palyra.errors import Reason, Rejected
from palyra.late import late
from palyra.model.net import RAW, HostKind, HostPattern

Address = IPv4Address | IPv6Address

MAX_HOST = 253
_LABEL = late(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_IPV4 = late(r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)", re.ASCII)
_NUMBER = late(r"\d+|0x[0-9a-f]*", re.ASCII)


class AddressClass(StrEnum):
    PUBLIC = "public"
    PRIVATE = "private"
    """RFC 1918 and unique local."""
    LOOPBACK = "loopback"
    LINK_LOCAL = "link_local"
    METADATA = "metadata"
    """Where a cloud hands out credentials to whoever asks."""
    MULTICAST = "multicast"
    RESERVED = "reserved"
    """Everything else that is not plainly public: CGNAT, documentation, benchmarking, broadcast, and the transition
    forms (6to4, Teredo, NAT64, ISATAP), in which an IPv4 address hides that nobody judged."""


METADATA = frozenset(
    ip_address(text)
    for text in (
        *("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "168.63.129.16"),
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    )
)

_RANGES = (
    ("0.0.0.0/32", AddressClass.RESERVED),
    ("0.0.0.0/8", AddressClass.RESERVED),
    ("10.0.0.0/8", AddressClass.PRIVATE),
    ("100.64.0.0/10", AddressClass.RESERVED),
    ("127.0.0.0/8", AddressClass.LOOPBACK),
    ("169.254.0.0/16", AddressClass.LINK_LOCAL),
    ("172.16.0.0/12", AddressClass.PRIVATE),
    ("192.0.0.0/24", AddressClass.RESERVED),
    ("192.0.2.0/24", AddressClass.RESERVED),
    ("192.31.196.0/24", AddressClass.RESERVED),
    ("192.52.193.0/24", AddressClass.RESERVED),
    ("192.88.99.0/24", AddressClass.RESERVED),
    ("192.168.0.0/16", AddressClass.PRIVATE),
    ("192.175.48.0/24", AddressClass.RESERVED),
    ("198.18.0.0/15", AddressClass.RESERVED),
    ("198.51.100.0/24", AddressClass.RESERVED),
    ("203.0.113.0/24", AddressClass.RESERVED),
    ("224.0.0.0/4", AddressClass.MULTICAST),
    ("255.255.255.255/32", AddressClass.RESERVED),
    ("240.0.0.0/4", AddressClass.RESERVED),
    ("::/128", AddressClass.RESERVED),
    ("::1/128", AddressClass.LOOPBACK),
    ("::ffff:0:0:0/96", AddressClass.RESERVED),
    ("64:ff9b::/96", AddressClass.RESERVED),
    ("64:ff9b:1::/48", AddressClass.RESERVED),
    ("2001::/32", AddressClass.RESERVED),
    ("2001:2::/48", AddressClass.RESERVED),
    ("2001:db8::/32", AddressClass.RESERVED),
    ("2001::/23", AddressClass.RESERVED),
    ("2002::/16", AddressClass.RESERVED),
    ("2620:4f:8000::/48", AddressClass.RESERVED),
    ("3fff::/20", AddressClass.RESERVED),
    ("3ffe::/16", AddressClass.RESERVED),
    ("fc00::/7", AddressClass.PRIVATE),
    ("fe80::/10", AddressClass.LINK_LOCAL),
    ("fec0::/10", AddressClass.PRIVATE),
    ("ff00::/8", AddressClass.MULTICAST),
)
_TABLE = tuple(
    (net.version, int(net.network_address), int(net.netmask), kind)
    for net, kind in ((ip_network(text), kind) for text, kind in _RANGES)
)
_GLOBAL_UNICAST = 0x2000 >> 13
"""The top three bits of 2000::/3; all other IPv6 space is not public."""
_ISATAP = (0x00005EFE, 0x02005EFE)


def embedded(address: Address) -> Address:
    """The IPv4 address that a v4-mapped or v4-compatible one stands for; any other as it is."""
    if isinstance(address, IPv6Address):
        high, low = int(address) >> 32, int(address) & 0xFFFFFFFF
        if high == 0xFFFF or (high == 0 and low > 1):
            return IPv4Address(low)
    return address


def classify_address(address: Address | str) -> AddressClass:
    real = embedded(ip_address(address) if isinstance(address, str) else address)
    if real in METADATA:
        return AddressClass.METADATA
    number = int(real)
    for version, network, mask, kind in _TABLE:
        if version == real.version and number & mask == network:
            return kind
    if isinstance(real, IPv6Address):
        if number >> 125 != _GLOBAL_UNICAST:
            return AddressClass.RESERVED
        if (number >> 32) & 0xFFFFFFFF in _ISATAP:
            return AddressClass.RESERVED
    return AddressClass.PUBLIC


def read_address(text: str) -> Address | None:
    """A canonical IPv4 or any valid IPv6 literal without a zone, mapped forms as IPv4; None for anything else."""
    if _IPV4.fullmatch(text):
        return IPv4Address(text)
    if ":" not in text or "%" in text or not text.isascii():
        return None
    try:
        return embedded(IPv6Address(text))
    except ValueError:
        return None


def is_address(text: str) -> bool:
    return read_address(text) is not None


def parse_host(text: str) -> str:
    """The one spelling a host is compared by. Raises `Rejected(BAD_ARGUMENTS)` for what is no host."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    address = read_address(bare)
    if address is not None and (bare == text or isinstance(address, IPv6Address) or ":" in bare):
        return str(address)
    name = _encode(text[:-1] if text.endswith(".") else text)
    labels = name.split(".")
    if len(name) > MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise _refuse(text, "is not a host name")
    if _NUMBER.fullmatch(labels[-1]):
        raise _refuse(text, "is not an address in its usual spelling, four decimal numbers with dots")
    return name


def _encode(text: str) -> str:
    lower = text.lower() if text.isascii() else text
    if lower.isascii() and "xn--" not in lower:
        return lower
    if len(text) > MAX_HOST:
        raise _refuse(text, "is too long for a host name")
    # Imported here: it costs more than everything else in this room, and few hosts need it.
    import idna

    try:
        return idna.encode(lower, uts46=True, std3_rules=False).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError, ValueError, IndexError):
        raise _refuse(text, "is not a valid international host name") from None


_FORMS = "Write a host as example.com, example.com:8443, 203.0.113.7 or [2001:db8::1]."


def _refuse(text: str, what: str, hint: str = _FORMS) -> Rejected:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:80])
    return Rejected(Reason.BAD_ARGUMENTS, f"{shown!r} {what}.", hint)


def parse_pattern(text: str) -> HostPattern:
    """`host[:port]`, `.suffix`, `*.suffix`, an address, a CIDR or `[v6]:port`. A suffix means the names below it."""
    host, port = split_port(text)
    if port == 0:
        raise _refuse(text, "has a port that is not between 1 and 65535")
    if "://" in text:
        raise _refuse(text, "is a URL; a grant names a host", _of_url(text))
    if "/" in host:
        return HostPattern(HostKind.NETWORK, _parse_network(text, host.strip("[]")), port)
    if host.startswith(("*.", ".")):
        suffix = parse_host(host.lstrip("*")[1:])
        if "." not in suffix or ":" in suffix or read_address(suffix) is not None:
            raise _refuse(text, "is too wide: a wildcard needs a domain of at least two labels after it")
        return HostPattern(HostKind.SUFFIX, suffix, port)
    if "*" in host:
        raise _refuse(text, "is not a pattern: a wildcard stands for whole labels at the front, as in *.example.com")
    name = parse_host(host)
    address = read_address(name)
    if address is not None:
        return HostPattern(HostKind.NETWORK, str(ip_network(address)), port)
    return HostPattern(HostKind.EXACT, name, port)


def parse_grant(text: str) -> HostPattern:
    """What an operator grants: a pattern, or `HOST:PORT raw` for one host or address. Agents never write these."""
    head, _, word = text.rpartition(" ")
    if not head or word != RAW:
        return parse_pattern(text)
    pattern = parse_pattern(head)
    is_one = pattern.kind is HostKind.EXACT or (
        pattern.kind is HostKind.NETWORK and ip_network(pattern.value).num_addresses == 1
    )
    if pattern.port is None or not is_one:
        raise _refuse(head, "is not one host and port, which raw is for", "Write it as db.example.com:9042.")
    return replace(pattern, raw=True)


def split_port(text: str) -> tuple[str, int | None]:
    """(host, port). No port is None, one out of range is 0. A bare IPv6 literal has no port."""
    head, colon, tail = text.rpartition(":")
    if not colon or not tail.isascii() or not tail.isdigit():
        return text, None
    if ":" in head and not (head.startswith("[") and head.endswith("]")):
        return text, None
    number = int(tail) if len(tail) <= 5 else 0
    return head, number if number <= 65535 else 0


def _of_url(text: str) -> str:
    """`https://example.com:8443/x` → what to write instead."""
    authority = re.split(r"[/?#]", text.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
    try:
        return f"Write {parse_pattern(authority)} instead."
    except Rejected:
        return _FORMS


def _parse_network(text: str, cidr: str) -> str:
    address, _, length = cidr.partition("/")
    if read_address(address) is None or not (length.isascii() and length.isdigit() and len(length) <= 3):
        raise _refuse(text, "is not a network: an address, a slash and the number of bits")
    try:
        return str(ip_network(cidr))
    except ValueError:
        raise _refuse(
            text, "is not a network: bits beyond its prefix length are set, or the length is too large"
        ) from None
