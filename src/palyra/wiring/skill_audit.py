"""Audits a skill: reads what its modules declare, compiles them in the limited child, and has it all judged.

Touches the compiler's child and the feed's file; what the findings mean is skills/review. Nothing of the skill runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from palyra.canon import sha256_hex
from palyra.config.schema import Config
from palyra.errors import Rejected
from palyra.inside.wasm import abi
from palyra.model.wasm import ModuleFacts
from palyra.redact.stream import Redactor
from palyra.sandbox.wasm_scan import scan
from palyra.skills.bundle import Skill
from palyra.skills.findings import Check, CheckStatus
from palyra.skills.manifest import SkillManifest
from palyra.skills.review import review
from palyra.skills.subject import Ceilings, KnownBad, ModuleSight, Subject, Surface
from palyra.version import __version__

INTERFACES = ("http", "secrets", "storage", "channels", "log")
SURFACE = Surface(
    functions={module: frozenset(names) for module, names in abi.IMPORTS.items()},
    interfaces=frozenset(f"palyra:plugins/{name}@0.1.0" for name in INTERFACES),
)
MAX_FEED_BYTES = 16 << 20
_URL = re.compile(rb"https?://[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?")
_TEXT = re.compile(rb"[\x20-\x7e]{16,4096}")
_MOST_TEXT = 1 << 20
_MOST_URLS = 64


class Compiles(Protocol):
    """wiring/guest_door fits."""

    async def compile(self, module_sha256: str, module: bytes) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    checks: tuple[Check, ...]
    facts: Mapping[str, ModuleFacts]


async def audit_skill(
    skill: Skill, config: Config, compiler: Compiles, *, previous: SkillManifest | None, previous_key_id: str = ""
) -> Audited:
    sights = {path: await _look(skill.files[path], compiler) for path in skill.manifest.modules}
    assets = [data for path, data in skill.files.items() if path.startswith("assets/")]
    subject = Subject(
        manifest=skill.manifest,
        payload_sha256=skill.payload_sha256,
        key_id=skill.key.key_id,
        digests=skill.digests,
        modules=sights,
        asset_secrets=await asyncio.to_thread(lambda: sum(map(_secrets_in, assets))),
        previous=previous,
        previous_key_id=previous_key_id,
        known_bad=read_feed(config.skills.known_bad_feed),
    )
    facts = {path: sight.facts for path, sight in sights.items() if sight.facts is not None}
    return Audited(checks=(*_whole(skill), *review(subject, SURFACE, ceilings_of(config))), facts=facts)


def ceilings_of(config: Config) -> Ceilings:
    runtime = config.tool_call.wasm_runtime
    return Ceilings(
        fuel=runtime.fuel_budget,
        component_fuel=runtime.component_fuel_budget,
        memory_bytes=runtime.max_memory_bytes,
        table_elements=runtime.max_table_elements,
        wall_ms=config.tool_call.execution_timeout_ms,
        capabilities=frozenset(config.tool_call.allowed_capabilities),
        palyra=__version__,
    )


def _whole(skill: Skill) -> tuple[Check, ...]:
    """What reading the package has shown: it would have been refused otherwise."""
    said = {
        "artifact.signature": f"Signed for {skill.manifest.publisher} by key {skill.key.key_id}.",
        "manifest.integrity": f"All {len(skill.files)} files have the digests that were signed.",
        "sbom.files": "The bill of materials lists every file.",
        "provenance.modules": "The provenance is about these modules.",
    }
    return tuple(Check(check_id=name, status=CheckStatus.PASS, message=text) for name, text in said.items())


async def _look(module: bytes, compiler: Compiles) -> ModuleSight:
    try:
        facts = await asyncio.to_thread(scan, module)
    except Rejected as refused:
        return ModuleSight(refused=refused.detail)
    not_compiled = ""
    try:
        await compiler.compile(sha256_hex(module), module)
    except Rejected as refused:
        not_compiled = refused.detail
    urls, shapes = await asyncio.to_thread(_content, module)
    return ModuleSight(facts=facts, not_compiled=not_compiled, urls=urls, secret_shapes=shapes)


def _content(module: bytes) -> tuple[tuple[str, ...], int]:
    urls = sorted({found.decode("ascii") for found in _URL.findall(module)})[:_MOST_URLS]
    return tuple(urls), _secrets_in(module)


def _secrets_in(data: bytes) -> int:
    """Runs of text that redaction would take for a key or a token."""
    text = b"\n".join(_TEXT.findall(data))[:_MOST_TEXT]
    redactor = Redactor(())
    redactor.feed(text)
    redactor.finish()
    return sum(redactor.counts.values())


def read_feed(file: str) -> KnownBad:
    """A feed that cannot be read lets nothing pass: an attacker must not be able to switch it off by breaking it."""
    if not file:
        return KnownBad()
    try:
        data = Path(file).read_bytes()
        if len(data) > MAX_FEED_BYTES:
            return KnownBad(unreadable="it is too large.")
        value = orjson.loads(data)
        digests, publishers = value["digests"], value["publishers"]
        texts = [*digests, *publishers]
    except OSError as error:
        return KnownBad(unreadable=f"{error.strerror}.")
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return KnownBad(unreadable='it is not JSON of the form {"digests": [...], "publishers": [...]}.')
    if not all(isinstance(text, str) for text in texts):
        return KnownBad(unreadable="it lists something that is not text.")
    return KnownBad(digests=frozenset(digests), publishers=frozenset(publishers))
