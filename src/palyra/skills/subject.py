"""What an audit of a skill is given: the skill as it was read, what was seen of its modules, what the host allows.

Values only. Not here: looking (wiring/skill_audit), judging (review, review_modules).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from palyra.model.wasm import GuestKind, ModuleFacts
from palyra.skills.manifest import SkillManifest
from palyra.values import dataclass


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

    def fuel_of(self, kind: GuestKind) -> int:
        return self.component_fuel if kind is GuestKind.COMPONENT else self.fuel


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
