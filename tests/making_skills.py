"""Skills for tests: a small honest one, its parts, and keys that are the same in every run."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from wasmtime import wat2wasm

from palyra.config.schema import Config
from palyra.errors import Rejected
from palyra.journal.entry import parse_entry
from palyra.signing import SigningKey
from palyra.skills.bundle import pack
from palyra.skills.manifest import SkillManifest, ToolEntry
from palyra.skills.trust import PinnedKey, Trust
from palyra.state.writer import Writer
from palyra.wiring.clock import SystemClock
from palyra.wiring.skill_acts import SkillDesk
from palyra.wiring.skill_files import SkillFiles
from palyra.wiring.skill_payloads import Done
from palyra.wiring.skills import InstalledSkills
from tests.stores import open_writer

ACME = SigningKey.from_seed(b"acme" * 8)
EVIL = SigningKey.from_seed(b"evil" * 8)
NOW = 1_700_000_000_000
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


class NoCompiler:
    """Compiles nothing: for what is not about modules. `refuses` is what it says of every one."""

    def __init__(self, refuses: Rejected | None = None) -> None:
        self.refuses = refuses
        self.compiled: list[str] = []

    async def compile(self, module_sha256: str, module: bytes) -> None:
        self.compiled.append(module_sha256)
        if self.refuses is not None:
            raise self.refuses


class Ticking:
    """A clock that goes on by one at each look, so that the order of things shows."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def now_unix_ms(self) -> int:
        self.now += 1
        return self.now

    def monotonic_us(self) -> int:
        return self.now * 1000


@dataclass
class House:
    """A home with a desk for its operator and the port that calls go through."""

    writer: Writer
    desk: SkillDesk
    skills: InstalledSkills
    files: SkillFiles
    clock: Ticking
    compiler: NoCompiler

    def status(self, skill_id: str = "acme.echo") -> dict[str, str]:
        """Version → where it stands."""
        rows = self.writer.rows("SELECT version, status FROM skills WHERE skill_id = ?", (skill_id,))
        return dict(rows)

    def acts(self) -> list[tuple[str, str | None, str | None, str]]:
        """(act, before, after, by) of every entry about skills and trust."""
        said = [parse_entry(bytes(body)).predicate for (body,) in self.writer.rows("SELECT body FROM entries")]
        return [
            (one["act"], one["details"].get("before"), one["details"].get("after"), one["actor"])
            for one in said
            if one.get("act", "").startswith(("skill.", "trust."))
        ]

    def install(self, data: bytes, *, by: str = "user:alice", **how: bool) -> Done:
        return asyncio.run(self.desk.install(data, by=by, **how))

    def enable(self, skill_id: str = "acme.echo", *, by: str = "user:alice", **how: str) -> Done:
        return asyncio.run(self.desk.enable(skill_id, by=by, **how))

    def do(self, act: str, *arguments: Any, **how: Any) -> Any:
        return asyncio.run(getattr(self.desk, act)(*arguments, **how))

    def trust_acme(self) -> House:
        self.do("trust_add", "acme", base64.b64encode(ACME.public.raw).decode(), by="user:alice")
        return self


def open_house(root: Path, config: Config | None = None) -> House:
    writer, clock, files, compiler = open_writer(root), Ticking(), SkillFiles(root), NoCompiler()
    desk = SkillDesk(writer, config or Config(), clock, files, compiler)
    skills = InstalledSkills(writer, SystemClock(), files)
    return House(writer=writer, desk=desk, skills=skills, files=files, clock=clock, compiler=compiler)
