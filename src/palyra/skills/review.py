"""The audit of a skill: a list of checks over its manifest, what its modules declare, and what the host allows.

Rules: every check answers, with pass, warn or fail, so that a report says what was looked at and not only what was
found; nothing here compiles, reads or runs anything: the sights of each module are handed in. A fail keeps the skill in
quarantine; a warning is for the person who enables it.

Not here: signatures and digests (bundle, whose refusals become checks), reports (skills/store/reports).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from palyra.canon import Json
from palyra.model.wasm import PAGE_BYTES, GuestKind, ModuleFacts
from palyra.skills.capabilities import OWN_SCOPE, Capabilities
from palyra.skills.findings import Check, CheckStatus
from palyra.skills.manifest import SkillManifest
from palyra.skills.version import Version
from palyra.skills.words import described_anew, differences, loosened

PASS, WARN, FAIL = CheckStatus.PASS, CheckStatus.WARN, CheckStatus.FAIL
MAX_SHOWN = 16

_CORE_NEEDS = {
    "http-fetch": "http_egress_allowlist",
    "secret-get": "secrets.raw_key_names",
    "storage-get": "filesystem.read_roots",
    "storage-list": "filesystem.read_roots",
    "storage-put": "filesystem.write_roots",
    "storage-delete": "filesystem.write_roots",
    "channel-send": "channels",
}
"""Host functions that do something outside, and what a manifest must ask for to justify importing them."""
_INTERFACE_NEEDS = {
    "http": "http_egress_allowlist",
    "secrets": "secrets",
    "storage": "filesystem.read_roots",
    "channels": "channels",
}
_USUAL_EXPORTS = frozenset(
    {
        "run",
        "memory",
        "_initialize",
        "__heap_base",
        "__data_end",
        "__stack_pointer",
        "cabi_realloc",
        "__wasm_call_ctors",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSight:
    """What was seen of one module, without running it."""

    facts: ModuleFacts | None = None
    refused: str = ""
    """Why its shape was refused before any compiler saw it."""
    not_compiled: str = ""
    """Why the compiler's child gave nothing; empty when it did."""
    urls: tuple[str, ...] = ()
    secret_shapes: int = 0
    """Places in it that look like a key or a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What guests are offered: functions by import module, and interfaces of components."""

    functions: Mapping[str, frozenset[str]]
    interfaces: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What this host gives at most."""

    fuel: int
    component_fuel: int
    memory_bytes: int
    table_elements: int
    wall_ms: int
    capabilities: frozenset[str]
    palyra: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBad:
    """The local feed: payloads, modules and publishers that somebody warned of."""

    digests: frozenset[str] = frozenset()
    publishers: frozenset[str] = frozenset()
    unreadable: str = ""
    """Why a feed that is configured could not be used: then nothing passes this check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    manifest: SkillManifest
    payload_sha256: str
    key_id: str
    digests: Mapping[str, str]
    """Path → sha256 of every file."""
    modules: Mapping[str, ModuleSight]
    asset_secrets: int = 0
    previous: SkillManifest | None = None
    """The version that was active before, or the one installed last."""
    previous_key_id: str = ""
    known_bad: KnownBad = field(default_factory=KnownBad)


def review(subject: Subject, surface: Surface, ceilings: Ceilings) -> tuple[Check, ...]:
    manifest = subject.manifest
    checks: list[Check] = [_compat(manifest, ceilings), _known_bad(subject)]
    for path in manifest.modules:
        sight = subject.modules[path]
        checks += _module(path, sight, manifest.capabilities, surface, ceilings)
    checks += _requests(manifest, ceilings)
    checks += _content(subject)
    checks.append(_difference(subject))
    if subject.previous_key_id and subject.previous_key_id != subject.key_id:
        message = f"Signed by key {subject.key_id}; the version before by {subject.previous_key_id}."
        checks.append(_check("trust.key", WARN, message))
    return tuple(checks)


def _check(check_id: str, status: CheckStatus, message: str, **details: Json) -> Check:
    return Check(check_id=check_id, status=status, message=message, details=details)


def _compat(manifest: SkillManifest, ceilings: Ceilings) -> Check:
    if Version(manifest.min_palyra) > Version(ceilings.palyra):
        return _check("compat.palyra", FAIL, f"It needs Palyra {manifest.min_palyra}; this is {ceilings.palyra}.")
    return _check("compat.palyra", PASS, f"Made for Palyra {manifest.min_palyra} and later.")


def _known_bad(subject: Subject) -> Check:
    feed = subject.known_bad
    if feed.unreadable:
        return _check("feed.known_bad", FAIL, f"The list of known bad skills cannot be used: {feed.unreadable}")
    found = sorted({subject.payload_sha256, *subject.digests.values()} & feed.digests)
    if subject.manifest.publisher in feed.publishers or found:
        what = found or [subject.manifest.publisher]
        return _check("feed.known_bad", FAIL, "It is on the list of known bad skills.", found=what)
    return _check("feed.known_bad", PASS, "Neither the publisher nor any file is on the list of known bad skills.")


# ── modules ──


def _module(
    path: str, sight: ModuleSight, asked: Capabilities, surface: Surface, ceilings: Ceilings
) -> Iterator[Check]:
    if sight.facts is None:
        yield _check("module.shape", FAIL, f"{path}: {sight.refused}", module=path)
        return
    facts = sight.facts
    counts: dict[str, Json] = {
        "module": path,
        "kind": facts.kind.value,
        "bytes": facts.size_bytes,
        "functions": facts.functions,
        "memories": facts.memories,
        "tables": facts.tables,
    }
    yield _check("module.shape", PASS, f"{path} has an ordinary structure.", **counts)
    yield _imports(path, facts, asked, surface)
    yield _entry(path, facts)
    yield _size(path, facts, asked, ceilings)
    if sight.not_compiled:
        yield _check("module.compile", FAIL, f"{path}: {sight.not_compiled}", module=path)
    else:
        yield _check("module.compile", PASS, f"{path} compiles, with the entry a guest must have.", module=path)


def _imports(path: str, facts: ModuleFacts, asked: Capabilities, surface: Surface) -> Check:
    offered = _offered_core if facts.kind is GuestKind.CORE else _offered_component
    unknown = [f"{module} {name}".strip() for module, name in facts.imports if not offered(module, name, surface)]
    if unknown:
        return _check(
            "module.imports",
            FAIL,
            f"{path} imports what guests are not offered.",
            module=path,
            imports=unknown[:MAX_SHOWN],
        )
    missing = sorted({need for module, name in facts.imports if (need := _need(facts, module, name, asked))})
    if missing:
        # A component's world imports every interface, used or not; a core module imports what it calls.
        status = FAIL if facts.kind is GuestKind.CORE else WARN
        message = f"{path} imports functions that its capabilities do not justify."
        return _check("module.imports", status, message, module=path, missing=missing)
    return _check(
        "module.imports", PASS, f"{path} imports what its capabilities justify, and nothing else.", module=path
    )


def _offered_core(module: str, name: str, surface: Surface) -> bool:
    return name in surface.functions.get(module, frozenset())


def _offered_component(module: str, name: str, surface: Surface) -> bool:
    return module in surface.interfaces


def _need(facts: ModuleFacts, module: str, name: str, asked: Capabilities) -> str:
    """What the manifest would have to ask for, and does not."""
    if facts.kind is GuestKind.CORE:
        need = _CORE_NEEDS.get(name, "")
    else:
        need = _INTERFACE_NEEDS.get(module.rpartition("/")[2].partition("@")[0], "")
    given: Mapping[str, object] = {
        "http_egress_allowlist": asked.http_egress_allowlist,
        "secrets": asked.secrets,
        "secrets.raw_key_names": any(scope.raw_key_names for scope in asked.secrets),
        "filesystem.read_roots": asked.read_roots or asked.write_roots,
        "filesystem.write_roots": asked.write_roots,
        "channels": asked.channels,
    }
    return need if need and not given[need] else ""


def _entry(path: str, facts: ModuleFacts) -> Check:
    extra = sorted(name for name in facts.exports if name not in _USUAL_EXPORTS)
    if "run" not in facts.exports and facts.kind is GuestKind.CORE:
        return _check("module.entry", FAIL, f"{path} does not export run.", module=path)
    if facts.has_start or extra:
        message = f"{path} runs code before its entry, or exports more than a guest needs."
        return _check(
            "module.exports", WARN, message, module=path, exports=extra[:MAX_SHOWN], has_start=facts.has_start
        )
    return _check("module.exports", PASS, f"{path} exports its entry and little else.", module=path)


def _size(path: str, facts: ModuleFacts, asked: Capabilities, ceilings: Ceilings) -> Check:
    most = min(asked.quotas.max_memory_bytes, ceilings.memory_bytes)
    needed = facts.memory_min_pages * PAGE_BYTES
    if needed > most:
        message = f"{path} declares {needed} bytes of memory; it may have {most}."
        return _check("module.size", FAIL, message, module=path, declared=needed, most=most)
    if facts.table_min_elements > ceilings.table_elements:
        message = f"{path} declares {facts.table_min_elements} table elements; it may have {ceilings.table_elements}."
        declared = facts.table_min_elements
        return _check("module.size", FAIL, message, module=path, declared=declared, most=ceilings.table_elements)
    return _check("module.size", PASS, f"{path} declares no more memory and tables than it may have.", module=path)


# ── what is asked for ──


def _requests(manifest: SkillManifest, ceilings: Ceilings) -> Iterator[Check]:
    asked = manifest.capabilities
    forbidden = sorted(tag.value for tag in asked.tags if tag.value not in ceilings.capabilities)
    if forbidden:
        message = "It asks for capabilities that allowed_capabilities does not have."
        yield _check("capability.ceiling", FAIL, message, capabilities=forbidden)
    else:
        yield _ceiling(asked, ceilings)
    wild = [f"{family}: {item}" for family, item in asked.wildcards]
    if wild:
        message = "It asks for several things under one name; no handle is given for that."
        yield _check("capability.wildcard", FAIL, message, wildcards=wild[:MAX_SHOWN])
    else:
        yield _check("capability.wildcard", PASS, "Everything it asks for is named.")
    if asked.device_capabilities:
        message = "It asks for devices, which no guest is given here."
        yield _check("capability.device", FAIL, message, devices=list(asked.device_capabilities))
    else:
        yield _check("capability.device", PASS, "It asks for no device.")
    yield _secret_scopes(manifest)


def _ceiling(asked: Capabilities, ceilings: Ceilings) -> Check:
    quotas = asked.quotas
    above = {
        "wall_clock_timeout_ms": (quotas.wall_clock_timeout_ms, ceilings.wall_ms),
        "fuel_budget": (quotas.fuel_budget or 0, max(ceilings.fuel, ceilings.component_fuel)),
        "max_memory_bytes": (quotas.max_memory_bytes, ceilings.memory_bytes),
    }
    found = {name: {"asked": a, "most": most} for name, (a, most) in above.items() if a > most}
    if found:
        message = "It asks for more than this host grants; it will get less."
        return _check("capability.ceiling", WARN, message, **found)
    return _check("capability.ceiling", PASS, "What it asks for is within what this host grants.")


def _secret_scopes(manifest: SkillManifest) -> Check:
    own = f"{OWN_SCOPE}{manifest.skill_id}"
    others = [one.scope for one in manifest.capabilities.secrets if one.scope != own]
    if others:
        message = "It asks for secrets that are not its own."
        return _check("capability.secrets", FAIL, message, scopes=others[:MAX_SHOWN])
    raw = [name for one in manifest.capabilities.secrets for name in one.raw_key_names]
    if raw:
        message = "It wants to read the values of secrets, not only to have them added to requests."
        return _check("capability.secrets", WARN, message, raw_key_names=raw[:MAX_SHOWN])
    return _check("capability.secrets", PASS, "It asks for no secrets but its own.")


# ── what is in it ──


def _content(subject: Subject) -> Iterator[Check]:
    shapes = subject.asset_secrets + sum(sight.secret_shapes for sight in subject.modules.values())
    if shapes:
        yield _check("content.secrets", WARN, "Something in it looks like a key or a token.", places=shapes)
    else:
        yield _check("content.secrets", PASS, "Nothing in it looks like a key or a token.")
    named = sorted({url for sight in subject.modules.values() for url in sight.urls})
    granted = {host.rpartition("//")[2] for host in subject.manifest.capabilities.http_egress_allowlist}
    strange = [url for url in named if url.rpartition("//")[2] not in granted]
    if strange:
        message = "Its modules hold addresses that its capabilities do not name."
        yield _check("content.urls", WARN, message, urls=strange[:MAX_SHOWN])
    else:
        yield _check("content.urls", PASS, "Its modules hold no addresses but those it asks for.")


def _difference(subject: Subject) -> Check:
    before = subject.previous
    if before is None:
        return _check("capability.diff", PASS, "There is no version before this one.")
    asked, removed = differences(before.capabilities, subject.manifest.capabilities)
    added = (*asked, *loosened(before, subject.manifest))
    details: dict[str, Json] = {"from": before.version, "added": list(added), "removed": list(removed)}
    told = described_anew(before, subject.manifest)
    if told:
        details["described_anew"] = list(told)
    if added:
        message = f"It asks for more than version {before.version} did, or asks people less often."
        return _check("capability.diff", WARN, message, **details)
    if told:
        message = (
            f"It asks for no more than version {before.version} did; agents are told different things about its tools."
        )
        return _check("capability.diff", WARN, message, **details)
    return _check("capability.diff", PASS, f"It asks for no more than version {before.version} did.", **details)
