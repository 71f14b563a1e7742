"""What a skill asks for, under the one spelling that manifest, handles, policies and people share.

`http_egress_allowlist` ↔ http handles ↔ `network`; `secrets` ↔ secret handles ↔ `secrets_read`; `read_roots` and
`write_roots` ↔ storage handles ↔ `filesystem_read`, `filesystem_write`; `channels` ↔ channel handles.

Asking is not getting: handles are given for what is asked, granted and enabled; see `grants_of`.
"""

from __future__ import annotations

import re
from dataclasses import field
from ipaddress import IPv6Address

from palyra.canon import Json
from palyra.model.tool import Capability
from palyra.model.wasm import CapabilityGrants, GuestKind, StorageGrant, WasmLimits
from palyra.skills.fields import Table, bad, check_match
from palyra.values import dataclass

WILDCARD = "*"
MAX_ITEMS = 64
OWN_SCOPE = "skill:"
VAULT_SCOPE = "vault"
"""The operator's own secrets, by their names: more than a skill's own, and an audit says so."""
CORE_FUEL, COMPONENT_FUEL = 10_000_000, 1_000_000_000

_HOST = re.compile(
    r"(?P<plain>http://)?(?P<wild>\*\.)?"
    r"(?:(?P<name>(?=.{1,253}(?::|$))[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*)"
    r"|\[(?P<six>[0-9a-f:.]{2,45})\])"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_ROOT = re.compile(r"[a-z0-9_-][a-z0-9._-]{0,62}(?:/[a-z0-9_-][a-z0-9._-]{0,62}){0,3}")
_CHANNEL = re.compile(r"[a-z][a-z0-9-]{0,31}|\*")
_DEVICE = re.compile(r"[a-z][a-z0-9_.-]{0,63}|\*")
_SCOPE = re.compile(r"skill:[a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9][a-z0-9-]{0,62}){1,3}|vault")
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}|\*")
_FAMILIES = ("channels", "device_capabilities", "http_egress_allowlist", "secrets")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretScope:
    scope: str
    """`skill:ID` for secrets kept for a skill, `vault` for any other."""
    key_names: tuple[str, ...]
    raw_key_names: tuple[str, ...] = ()
    """Of them, those whose very value the skill wants to read: a louder wish of its own."""

    def vault_name(self, key: str) -> str:
        """`ID.KEY` in the vault for a skill's own."""
        return key if self.scope == VAULT_SCOPE else f"{self.scope.removeprefix(OWN_SCOPE)}.{key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    wall_clock_timeout_ms: int = 30_000
    fuel_budget: int | None = None
    """None: the default of the module's kind."""
    max_memory_bytes: int = 64 << 20

    def limits(self, guest: GuestKind) -> WasmLimits:
        default = COMPONENT_FUEL if guest is GuestKind.COMPONENT else CORE_FUEL
        return WasmLimits(
            fuel=self.fuel_budget or default, memory_bytes=self.max_memory_bytes, wall_ms=self.wall_clock_timeout_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    http_egress_allowlist: tuple[str, ...] = ()
    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    secrets: tuple[SecretScope, ...] = ()
    channels: tuple[str, ...] = ()
    device_capabilities: tuple[str, ...] = ()
    wildcard_opt_in: tuple[str, ...] = ()
    quotas: Quotas = field(default_factory=Quotas)

    def as_json(self) -> dict[str, Json]:
        return {
            "http_egress_allowlist": list(self.http_egress_allowlist),
            "filesystem": {"read_roots": list(self.read_roots), "write_roots": list(self.write_roots)},
            "secrets": [
                {"scope": s.scope, "key_names": list(s.key_names), "raw_key_names": list(s.raw_key_names)}
                for s in self.secrets
            ],
            "channels": list(self.channels),
            "device_capabilities": list(self.device_capabilities),
            "wildcard_opt_in": list(self.wildcard_opt_in),
            "quotas": {
                "wall_clock_timeout_ms": self.quotas.wall_clock_timeout_ms,
                "fuel_budget": self.quotas.fuel_budget,
                "max_memory_bytes": self.quotas.max_memory_bytes,
            },
        }

    @property
    def tags(self) -> frozenset[Capability]:
        """What policies judge the skill's tools by."""
        found = {
            Capability.NETWORK: self.http_egress_allowlist,
            Capability.SECRETS_READ: self.secrets,
            Capability.FILESYSTEM_READ: self.read_roots or self.write_roots,
            Capability.FILESYSTEM_WRITE: self.write_roots,
        }
        return frozenset(tag for tag, asked in found.items() if asked)

    @property
    def wildcards(self) -> tuple[tuple[str, str], ...]:
        """(family, what) of every wish that names more than one thing."""
        named = {
            "http_egress_allowlist": self.http_egress_allowlist,
            "channels": self.channels,
            "device_capabilities": self.device_capabilities,
            "secrets": tuple(key for scope in self.secrets for key in scope.key_names),
        }
        return tuple((family, item) for family in _FAMILIES for item in named[family] if WILDCARD in item)


def grants_of(asked: Capabilities) -> CapabilityGrants:
    """The handles a guest gets. A wildcard gives none: a handle stands for one thing."""
    named = [(one, key) for one in asked.secrets for key in one.key_names if key != WILDCARD]
    secrets = {one.vault_name(key): key in one.raw_key_names for one, key in named}
    roots = dict.fromkeys(asked.read_roots, False) | dict.fromkeys(asked.write_roots, True)
    return CapabilityGrants(
        http=tuple(sorted(host for host in asked.http_egress_allowlist if WILDCARD not in host)),
        secrets=tuple(sorted(secrets)),
        readable_secrets=frozenset(name for name, raw in secrets.items() if raw),
        storage=tuple(StorageGrant(prefix=root, writable=roots[root]) for root in sorted(roots)),
        channels=tuple(sorted(name for name in asked.channels if name != WILDCARD)),
    )


def parse_capabilities(table: Table) -> Capabilities:
    files = table.table("filesystem")
    found = Capabilities(
        http_egress_allowlist=table.items("http_egress_allowlist", check_host, most=MAX_ITEMS),
        read_roots=files.items("read_roots", _root, most=MAX_ITEMS),
        write_roots=files.items("write_roots", _root, most=MAX_ITEMS),
        secrets=_parse_secrets(table),
        channels=table.items("channels", lambda v, p: check_match(v, p, _CHANNEL, "a channel's name"), most=MAX_ITEMS),
        device_capabilities=table.items(
            "device_capabilities", lambda v, p: check_match(v, p, _DEVICE, "a device capability"), most=MAX_ITEMS
        ),
        wildcard_opt_in=table.items("wildcard_opt_in", _family, most=len(_FAMILIES)),
        quotas=_parse_quotas(table.table("quotas")),
    )
    files.done()
    table.done()
    for family, item in found.wildcards:
        if family not in found.wildcard_opt_in:
            raise bad(table.at(family), f"holds {item!r} and wildcard_opt_in does not name {family}")
    return found


def check_host(value: object, path: str) -> str:
    """`host`, `host:port`, `http://host…` in the clear; the default port is not written, and there is one spelling."""
    found = _HOST.fullmatch(value) if isinstance(value, str) else None
    if found is None or not isinstance(value, str):
        raise bad(path, "is not a host in lower case such as api.example.com or api.example.com:8443")
    port, name = found["port"], found["name"]
    if port is not None and (int(port) > 65535 or int(port) == (80 if found["plain"] else 443)):
        raise bad(path, "names an invalid port, or the default one")
    # Readers take a name whose last label is a number, decimal or hex, for an address; they disagree about which.
    if name is not None and re.fullmatch(r"[0-9]+|0x[0-9a-f]*", name.rpartition(".")[2]) and not _is_ipv4(name):
        raise bad(path, "is not an address in its canonical spelling")
    if found["six"] is not None and not _is_ipv6(found["six"]):
        raise bad(path, "is not an address in its canonical spelling")
    return value


def _is_ipv4(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(part.isdigit() and str(int(part)) == part and int(part) < 256 for part in parts)


def _is_ipv6(text: str) -> bool:
    try:
        return IPv6Address(text).compressed == text
    except ValueError:
        return False


def _root(value: object, path: str) -> str:
    found = check_match(value, path, _ROOT, "a place below the skill's own storage, such as cache or state/v1")
    if any(part.strip(".") == "" for part in found.split("/")):
        raise bad(path, "has a part made of dots only")
    return found


def _family(value: object, path: str) -> str:
    if value not in _FAMILIES:
        raise bad(path, f"is not one of {', '.join(_FAMILIES)}")
    return str(value)


def _parse_secrets(table: Table) -> tuple[SecretScope, ...]:
    found = []
    for one in table.tables("secrets", most=16):
        scope = one.matching("scope", _SCOPE, "skill:ID or vault")
        names = one.items("key_names", _key_name, most=MAX_ITEMS)
        raw = one.items("raw_key_names", _key_name, most=MAX_ITEMS)
        one.done()
        if not names or not set(raw) <= set(names):
            raise bad(one.at("key_names"), "names no secret, or fewer than raw_key_names")
        found.append(SecretScope(scope=scope, key_names=names, raw_key_names=raw))
    if [one.scope for one in found] != sorted({one.scope for one in found}):
        raise bad(table.at("secrets"), "are not sorted by scope, or one scope appears twice")
    return tuple(found)


def _key_name(value: object, path: str) -> str:
    return check_match(value, path, _KEY_NAME, "a secret's name")


def _parse_quotas(table: Table) -> Quotas:
    quotas = Quotas(
        wall_clock_timeout_ms=table.number("wall_clock_timeout_ms", default=30_000),
        fuel_budget=table.number("fuel_budget") if table.has("fuel_budget") else None,
        max_memory_bytes=table.number("max_memory_bytes", default=64 << 20, least=1 << 16),
    )
    table.done()
    return quotas
