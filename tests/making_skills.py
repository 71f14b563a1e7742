"""Skills for tests: a small honest one, its parts, and keys that are the same in every run."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from wasmtime import wat2wasm

from palyra.signing import SigningKey
from palyra.skills.bundle import pack
from palyra.skills.manifest import SkillManifest, ToolEntry
from palyra.skills.trust import PinnedKey, Trust

ACME = SigningKey.from_seed(b"acme" * 8)
EVIL = SigningKey.from_seed(b"evil" * 8)
NOW = 1_800_000_000_000
OBJECT: dict[str, Any] = {"type": "object"}

ECHO = """(module
  (import "palyra:plugins/host@0.1.0" "input-len" (func $len (result i32)))
  (import "palyra:plugins/host@0.1.0" "input-read" (func $read (param i32 i32) (result i32)))
  (import "palyra:plugins/host@0.1.0" "output" (func $output (param i32 i32) (result i32)))
  (memory (export "memory") 8)
  (func (export "run") (result i32) (local $n i32)
    (local.set $n (call $read (i32.const 0) (call $len)))
    (drop (call $output (i32.const 0) (local.get $n)))
    (i32.const 0)))"""


@lru_cache
def module(text: str = ECHO) -> bytes:
    return bytes(wat2wasm(text))


def tool(tool_id: str = "acme.echo", **changes: Any) -> ToolEntry:
    given = {"name": "Echo", "description": "Gives back what it is given.", "module": "modules/echo.wasm"}
    return ToolEntry(**{"id": tool_id, "input_schema": OBJECT, "output_schema": OBJECT, **given, **changes})


def manifest(skill_id: str = "acme.echo", version: str = "0.1.0", **changes: Any) -> SkillManifest:
    publisher = skill_id.partition(".")[0]
    plain = SkillManifest(
        skill_id=skill_id,
        name="Echo",
        version=version,
        publisher=publisher,
        tools=(tool(skill_id),),
        review_required=False,
    )
    return replace(plain, **changes)


def files(text: str = ECHO) -> dict[str, bytes]:
    return {"modules/echo.wasm": module(text)}


def package(
    skill_id: str = "acme.echo",
    version: str = "0.1.0",
    *,
    key: SigningKey = ACME,
    text: str = ECHO,
    at_unix_ms: int = NOW,
    **changes: Any,
) -> bytes:
    return pack(manifest(skill_id, version, **changes), files(text), key, at_unix_ms=at_unix_ms)


def trust(**keys: SigningKey) -> Trust:
    return Trust(publishers={name: (PinnedKey(key=key.public),) for name, key in (keys or {"acme": ACME}).items()})
