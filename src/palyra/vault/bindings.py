"""What may be a secret and where it may go: checks of values and places, and which host a binding means.

Pure: values in, values or ConfigError out. Not here: the file and its key (store, box, keys).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palyra.config.credentials import check_binding
from palyra.egress.hosts import parse_host, parse_pattern
from palyra.egress.rules import judge_host
from palyra.errors import ConfigError, Rejected
from palyra.model.credential import Binding, Scope, SecretFacts
from palyra.model.net import EgressMode, HostKind, NetGrant

SHORTEST_VALUE, LONGEST_VALUE = 6, 64 * 1024


def parse_facts(name: str, value: Mapping[str, Any]) -> SecretFacts:
    scope, bound = value["scope"], value["credential"]
    return SecretFacts(
        name=name,
        version=value["version"],
        created_unix_ms=value["created_unix_ms"],
        scope=Scope(principals=tuple(scope["principals"]), tools=tuple(scope["tools"])),
        binding=Binding(**bound) if bound else None,
    )


def checked(host: str, header: str, prefix: str) -> Binding:
    check_binding(host, header, prefix)
    try:
        pattern = parse_pattern(host)
    except Rejected as error:
        raise ConfigError(error.detail, error.hint) from None
    if pattern.kind is HostKind.SUFFIX or (pattern.kind is HostKind.NETWORK and "/" in host):
        raise ConfigError(f"A credential belongs to one host, not to {host}.", "Write host or host:port, exactly.")
    return Binding(host=host, header=header, prefix=prefix)


def is_for(bound: str, host: str, port: int, *, encrypted: bool) -> bool:
    """Without a port of its own it goes over TLS alone: asking for http must not send it in the clear."""
    pattern = parse_pattern(bound)
    if pattern.port is None and not (encrypted and port == 443):
        return False
    return judge_host(NetGrant(EgressMode.STRICT, (pattern,)), parse_host(host), port).allowed


def check_value(name: str, value: bytes) -> None:
    if not SHORTEST_VALUE <= len(value) <= LONGEST_VALUE:
        raise ConfigError(
            f"The value of {name} has {len(value)} bytes.",
            f"A secret has at least {SHORTEST_VALUE} bytes, or redaction could not tell it from ordinary text, and at "
            f"most {LONGEST_VALUE}.",
        )


def line_of(name: str, value: bytes) -> bytes:
    if not all(32 <= letter < 127 for letter in value):
        raise ConfigError(
            f"The value of {name} cannot be sent in a header.", "A header holds printable ASCII on one line."
        )
    return value


def set_hint(name: str) -> str:
    return f"palyra secrets set {name} (the value on stdin), or remove it from [[credentials]]."
