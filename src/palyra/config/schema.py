"""The configuration as a value: defaults, caps, and `parse` from a mapping.

Rules: frozen, compared with `==`, hashed with `canon.digest` (the digest is in every attestation), replaced whole.
An unknown key is an error that names its path. A run may narrow any of it for its session, never widen.

Not here: files, the environment, line numbers (config/load).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, is_dataclass
from typing import Any, get_args, get_type_hints

from palyra.canon import Json, digest
from palyra.config.budget import BudgetConfig
from palyra.config.cluster import RANGES as CLUSTER_RANGES
from palyra.config.cluster import ClusterConfig, complain
from palyra.config.credentials import KEY_SOURCES, CredentialConfig, VaultConfig, check_credential
from palyra.config.daemon import RANGES as DAEMON_RANGES
from palyra.config.daemon import DaemonConfig
from palyra.config.egress import RANGES as EGRESS_RANGES
from palyra.config.egress import EgressConfig, parse_resolve
from palyra.config.gc import RANGES as GC_RANGES
from palyra.config.gc import GcConfig
from palyra.config.hooks import HooksConfig
from palyra.config.principals import PrincipalsConfig
from palyra.config.skills import RANGES as SKILLS_RANGES
from palyra.config.skills import SkillsConfig
from palyra.config.tool_call import PINNED_IMAGE, ToolCallConfig
from palyra.config.tool_call import RANGES as TOOL_CALL_RANGES
from palyra.config.tool_call import WORDS as TOOL_CALL_WORDS
from palyra.errors import ConfigError
from palyra.model.budget import Allowance, Quota
from palyra.model.limits import Limits
from palyra.model.tool import Capability
from palyra.values import dataclass, is_value, names_of

POSTURES = ("locked", "standard", "developer")


class ConfigKeyError(ConfigError):
    """A key that is unknown or holds a wrong value; `path` lets the loader find its line."""

    def __init__(self, path: tuple[str, ...], detail: str, hint: str | None = None) -> None:
        super().__init__(
            detail, hint or f"docs/reference/config.md says what {'.'.join(path)} may be, and its default."
        )
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """`[policy]`."""

    mode: str = "enforce"
    """enforce: the policies in use decide. shadow: they still decide, and those of `candidate` are evaluated beside
    them; where the two differ, the call's record says so."""
    candidate: str = ""
    """An absolute folder of policies that replace the operator's own in shadow mode."""
    strict: bool = False
    """Refuse every call while the operator's policies cannot be used as they are written. Otherwise the last ones that
    could stay in force, which every outcome says; policies that cannot be read at all refuse every call anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalsConfig:
    """`[approvals]`: how people are asked, and how long questions and answers hold."""

    request_ms: int = 3_600_000
    """A request that nobody decided by then is denied: APPROVAL_TIMEOUT."""
    grant_ms: int = 3_600_000
    """How long an approval of scope `once` or `run` is valid; `until` names its own time."""
    max_pending: int = 100
    """Requests of one principal that may wait at once; calls that would ask beyond that are refused with BUSY."""
    console_url: str = ""
    """Where people decide, if there is such a place: the `url` of a pending outcome begins with it."""
    webhook_url: str = ""
    """Notified of every new request, signed. Empty: no notification."""
    webhook_secret: str = ""
    """The name of the secret that signs it."""
    webhook_secret_file: str = ""
    """Or a file that holds it, which nobody else may read. Without a secret nothing is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """`[journal]`: the key that signs it, and how long what is kept beside it stays."""

    passphrase_file: str = ""
    """A file with the passphrase of the installation's key, readable only by its owner. Empty: none."""
    keep_records_days: int = 0
    """Redacted inputs, plans and outcomes older than this may be removed by `palyra journal retain`. 0 keeps them."""
    keep_entries_days: int = 0
    """Entries older than this may be sealed and removed; their hashes stay. 0 keeps them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    posture: str = "standard"
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    principals: PrincipalsConfig = field(default_factory=PrincipalsConfig)
    tool_call: ToolCallConfig = field(default_factory=ToolCallConfig)
    egress: EgressConfig = field(default_factory=EgressConfig)
    approvals: ApprovalsConfig = field(default_factory=ApprovalsConfig)
    vault: VaultConfig = field(default_factory=VaultConfig)
    credentials: tuple[CredentialConfig, ...] = ()
    """Which secret belongs to which host: a header that Palyra adds outside the sandbox, for that host only."""
    journal: JournalConfig = field(default_factory=JournalConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    skills: SkillsConfig = field(default_factory=SkillsConfig)
    daemon: DaemonConfig = field(default_factory=DaemonConfig)
    hooks: HooksConfig = field(default_factory=HooksConfig)
    gc: GcConfig = field(default_factory=GcConfig)

    @property
    def digest(self) -> str:
        return _derived(self).sha256

    @property
    def limits(self) -> Limits:
        return _derived(self).limits

    @property
    def allowance(self) -> Allowance:
        """Of a run."""
        return _derived(self).allowance

    @property
    def quota(self) -> Quota:
        """Of a principal's day."""
        return _derived(self).quota


@dataclass(frozen=True, slots=True)
class _Derived:
    config: Config
    sha256: str
    limits: Limits
    allowance: Allowance
    quota: Quota


_DERIVED: dict[int, _Derived] = {}


def _derived(config: Config) -> _Derived:
    """Every run and every record asks several times, and a configuration lives for thousands of calls: known by being
    the same value, because comparing or hashing all of it costs more than what it is asked for."""
    known = _DERIVED.get(id(config))
    if known is None or known.config is not config:
        if len(_DERIVED) >= 8:
            _DERIVED.clear()
        known = _DERIVED[id(config)] = _Derived(
            config,
            digest(as_json(config)),
            config.tool_call.limits,
            config.budget.run.allowance,
            config.budget.principal_day.quota,
        )
    return known


# path -> what it must be: (allowed words) or (smallest, largest)
_WORDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("posture",): POSTURES,
    ("policy", "mode"): ("enforce", "shadow"),
    **TOOL_CALL_WORDS,
    ("vault", "key"): KEY_SOURCES,
}
_RANGES: dict[str, tuple[int, int]] = {
    **TOOL_CALL_RANGES,
    **EGRESS_RANGES,
    **SKILLS_RANGES,
    **DAEMON_RANGES,
    **GC_RANGES,
    **CLUSTER_RANGES,
    "request_ms": (1000, 30 * 24 * 3600 * 1000),
    "grant_ms": (1000, 30 * 24 * 3600 * 1000),
    "max_pending": (1, 100_000),
    "keep_records_days": (0, 36_500),
    "keep_entries_days": (0, 36_500),
}
MOST = (0, 1 << 43)
"""Of every limit in [budget]: in microseconds it still fits the journal's integers."""
_FOLDERS = ("path", "read_roots")
_URLS = ("console_url", "webhook_url")


def parse_config(mapping: Mapping[str, Any]) -> Config:
    config: Config = _parse_table(Config, mapping, ())
    for name in config.tool_call.allowed_capabilities:
        if name not in set(Capability):
            raise ConfigKeyError(("tool_call", "allowed_capabilities"), f"There is no capability {name!r}.")
    try:
        parse_resolve(config.egress.resolve)
    except ValueError as error:
        raise ConfigKeyError(("egress", "resolve"), str(error), 'Write resolve = ["NAME=ADDRESS"].') from error
    for key in ("known", "operators"):
        for pattern in getattr(config.principals, key):
            if not pattern.startswith(("agent:", "user:")):
                raise ConfigKeyError(("principals", key), f"{pattern!r} is neither agent:NAME nor user:NAME.")
    if config.policy.mode == "shadow" and not config.policy.candidate.startswith("/"):
        raise ConfigKeyError(("policy", "mode"), "policy.mode is shadow: policy.candidate must be an absolute folder.")
    if config.vault.passphrase_file and not config.vault.passphrase_file.startswith("/"):
        raise ConfigKeyError(("vault", "passphrase_file"), "vault.passphrase_file must be an absolute path.")
    if (complaint := complain(config.cluster)) is not None:
        raise ConfigKeyError(("cluster", complaint[0]), complaint[1])
    for credential in config.credentials:
        try:
            check_credential(credential)
        except ConfigError as error:
            raise ConfigKeyError(("credentials",), error.detail, error.hint) from None
    return config


def as_json(value: object) -> Json:
    if is_value(value):
        return {name: as_json(getattr(value, name)) for name in names_of(value.__class__)}
    return [as_json(item) for item in value] if isinstance(value, tuple) else value


def _nearest(key: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, known, n=1)
    return f"{f'Did you mean {near[0]}? ' if near else ''}Known keys here: {', '.join(known)}."


def _parse_table(kind: type[Any], mapping: Mapping[str, Any], at: tuple[str, ...]) -> Any:
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, raw in mapping.items():
        path = (*at, key)
        if key not in hints:
            raise ConfigKeyError(path, f"Unknown key {'.'.join(path)}.", _nearest(key, sorted(hints)))
        hint = hints[key]
        if (item := table_of(hint)) is not None:
            if not (isinstance(raw, list) and all(isinstance(one, Mapping) for one in raw)):
                raise ConfigKeyError(path, f"{'.'.join(path)} must be tables: [[{'.'.join(path)}]].")
            values[key] = tuple(_parse_table(item, one, path) for one in raw)
        elif is_dataclass(hint):
            if not isinstance(raw, Mapping):
                raise ConfigKeyError(path, f"{'.'.join(path)} must be a table.")
            values[key] = _parse_table(hint, raw, path)  # type: ignore[arg-type]  # a dataclass type by the line above
        else:
            values[key] = _parse_value(hint, raw, path)
    return kind(**values)


def table_of(hint: Any) -> type[Any] | None:
    """The dataclass of a list of tables; None for any other kind of key."""
    first = next(iter(get_args(hint)), None)
    return first if isinstance(first, type) and is_dataclass(first) else None


def _parse_value(hint: Any, raw: Any, path: tuple[str, ...]) -> Any:
    name = ".".join(path)
    if hint is bool or hint is int or hint is str:
        if type(raw) is not hint:
            raise ConfigKeyError(path, f"{name} must be {_KINDS[hint]}.")
        _check_scalar(raw, path)
        return raw
    if path[-1] == "allowed_egress_hosts" and isinstance(raw, list):
        raw = [parse_host_entry(item, path) if isinstance(item, Mapping) else item for item in raw]
    if not (isinstance(raw, list) and all(isinstance(item, str) for item in raw)):
        raise ConfigKeyError(path, f"{name} must be a list of strings.")
    if path[-1] in _FOLDERS and not all(item.startswith("/") for item in raw):
        raise ConfigKeyError(path, f"{name} must list absolute folders.")
    return tuple(raw)


def parse_host_entry(entry: Mapping[str, Any], path: tuple[str, ...]) -> str:
    """`{ host = "db.example.com", port = 9042, raw = true }` → `db.example.com:9042 raw`."""
    host, port, is_raw = entry.get("host"), entry.get("port"), entry.get("raw", False)
    if {*entry} - {"host", "port", "raw"} or type(host) is not str or type(port) is not int or type(is_raw) is not bool:
        raise ConfigKeyError(
            path,
            f"A table in {'.'.join(path)} has a host, a port and raw, nothing else.",
            'Write { host = "db.example.com", port = 9042, raw = true }.',
        )
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{authority} raw" if is_raw else authority


_KINDS = {bool: "true or false", int: "a whole number", str: "a string"}


def _check_scalar(raw: object, path: tuple[str, ...]) -> None:
    words = _WORDS.get(path)
    if words is not None and raw not in words:
        spelled = ", ".join(repr(w) for w in words)
        raise ConfigKeyError(path, f"{'.'.join(path)} = {raw!r} is not one of {spelled}.")
    if path[-1] == "container_image" and raw and not PINNED_IMAGE.fullmatch(str(raw)):
        raise ConfigKeyError(
            path,
            f"{'.'.join(path)} = {raw!r} is not pinned: a name or tag alone can mean another image tomorrow.",
            "Write NAME@sha256:DIGEST, or the image's ID as sha256:ID: podman image inspect NAME --format '{{.Id}}'.",
        )
    if path[-1] in _URLS and raw and not str(raw).startswith(("https://", "http://")):
        raise ConfigKeyError(path, f"{'.'.join(path)} = {raw!r} is not an http:// or https:// address.")
    bounds = MOST if path[0] == "budget" else _RANGES.get(".".join(path[-2:])) or _RANGES.get(path[-1])
    if bounds is not None and isinstance(raw, int) and not bounds[0] <= raw <= bounds[1]:
        raise ConfigKeyError(path, f"{'.'.join(path)} = {raw} is outside {bounds[0]} to {bounds[1]}.")
