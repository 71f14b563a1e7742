"""Installed skills as calls see them: what is enabled now, checked against what was approved, each time it is asked.

Per call: 1 the sealed row says active, for just this payload · 2 the key that signed it is pinned and not revoked · 3
the files are those that were installed. The files are hashed once a process before the first call, and again when the
size or a time of any of them changed; what runs are the bytes that were hashed, never the file once more. Whatever does
not hold is `SKILL_TAMPERED`: quarantined and journaled before it is refused.

Nothing here looks at more than the one skill that is asked for: two hundred others cost a call nothing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson

from palyra.canon import sha256_hex
from palyra.engine.ports import Clock
from palyra.errors import Reason, Rejected, StateError
from palyra.journal.acts import PALYRA
from palyra.model.skill import SkillTool
from palyra.model.tool import ToolSpec
from palyra.model.wasm import GuestKind
from palyra.protocol.registry import RegisteredTool
from palyra.skills.bundle import check_members
from palyra.skills.capabilities import grants_of
from palyra.skills.findings import SkillRefused
from palyra.skills.lifecycle import Move, Standing, Status
from palyra.skills.manifest import SkillManifest, ToolEntry
from palyra.skills.store.life import EDITED, SkillRows
from palyra.skills.store.pins import PinRows
from palyra.skills.tool_spec import spec_of
from palyra.state.sqlite import SqliteDatabase
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.wiring.skill_files import CHANGED, Signature, SkillFiles

log = logging.getLogger("palyra.skills")

SETTLED_MS = 100
"""The kernel's times go by ticks of some milliseconds: two changes within one look like one."""
MOST_BYTES = 128 << 20
"""Modules that are kept in memory, the longest unused going first."""


@dataclass(slots=True)
class _Loaded:
    """A payload whose files were hashed and fitted."""

    standing: Standing
    manifest: SkillManifest
    modules: dict[str, bytes]
    names: tuple[str, ...]
    signature: Signature
    is_settled: bool
    """The files were last changed long enough before they were read: another change would show in their times."""
    tools: dict[str, SkillTool] = field(default_factory=dict)
    registered: dict[str, RegisteredTool] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.modules.values()))


class InstalledSkills:
    def __init__(self, writer: Writer, clock: Clock, files: SkillFiles) -> None:
        self._writer = writer
        self._clock = clock
        self._files = files
        self._rows = SkillRows(writer)
        self._pins = PinRows(writer)
        self._is_shared = not isinstance(writer.database, SqliteDatabase)
        """Several machines have these rows, each its own files: files that never came here are no tampering."""
        self._loaded: OrderedDict[str, _Loaded] = OrderedDict()
        self._listed: tuple[tuple[Standing, ...], Sequence[ToolSpec]] = ((), ())

    # ── the engine's port ──

    def find(self, skill_id: str, *, version: str, tool_id: str) -> SkillTool:
        standing = self._rows.active(skill_id) if skill_id else self._rows.active_with_tool(tool_id)
        if standing is None or (version and standing.version != version):
            raise self._not_active(skill_id or tool_id, version)
        loaded = self._load(standing)
        entry = _entry(loaded.manifest, tool_id)
        found = loaded.tools.get(entry.id)
        if found is None:
            found = loaded.tools[entry.id] = _skill_tool(loaded, entry)
        return found

    def module(self, tool: SkillTool) -> bytes:
        loaded = self._loaded.get(tool.payload_sha256)
        if loaded is None:  # pushed out by larger ones since `find`
            standing = self._rows.active(tool.skill_id)
            if standing is None or standing.sha256 != tool.payload_sha256:
                raise self._not_active(tool.skill_id, tool.version)
            loaded = self._load(standing)
        return loaded.modules[tool.module_sha256]

    def is_active(self, tool: SkillTool) -> bool:
        try:
            standing = self._rows.active(tool.skill_id)
        except StateError:
            return False
        return standing is not None and standing.sha256 == tool.payload_sha256

    def fail(self, tool: SkillTool, why: str) -> None:
        self._move(tool.payload_sha256, Move.FAIL, why)

    # ── the registry's source ──

    def tool(self, name: str) -> RegisteredTool | None:
        """A skill's tool under its own id; None when no installed skill has it."""
        standing = self._rows.active_with_tool(name)
        if standing is not None:
            return self._registered(self._load(standing), name)
        owners = self._rows.with_tool(name)
        if not owners and (edited := self._rows.edited_with_tool(name)):
            raise self._edited(edited)
        if not owners:
            return None
        raise self._not_active(owners[0].skill_id, "")

    def specs(self) -> Sequence[ToolSpec]:
        """Of every enabled skill. One that cannot be used any more is left out; its calls say why."""
        standings = self._rows.all_active()
        if standings != self._listed[0]:
            self._listed = (standings, self._specs(standings))
        return self._listed[1]

    def _specs(self, standings: Sequence[Standing]) -> Sequence[ToolSpec]:
        found: list[ToolSpec] = []
        for standing in standings:
            try:
                loaded = self._load(standing)
            except Rejected as refused:
                log.warning("%s is not listed: %s", standing.skill_id, refused.detail)
                continue
            tools = (self._registered(loaded, tool.id) for tool in loaded.manifest.tools)
            found += [tool.spec for tool in tools if tool is not None]
        return found

    def _registered(self, loaded: _Loaded, name: str) -> RegisteredTool | None:
        found = loaded.registered.get(name)
        if found is None:
            entry = next((tool for tool in loaded.manifest.tools if tool.id == name), None)
            if entry is None:  # the table of names was edited: the signed manifest has the say
                return None
            found = RegisteredTool(spec_of(loaded.manifest, entry, loaded.standing.sha256))
            loaded.registered[name] = found
        return found

    # ── checking ──

    def _load(self, standing: Standing) -> _Loaded:
        """1 is done: the row was read sealed. 2 the key. 3 the files."""
        pin = self._pins.find(standing.publisher, standing.key_id)
        if pin is None or pin.pinned.revoked_unix_ms is not None:
            raise self._stop(standing, "The key that signed it is no longer trusted.", Reason.SKILL_NOT_ACTIVE)
        loaded = self._loaded.get(standing.sha256)
        if loaded is not None and loaded.is_settled and loaded.signature == self._files.signature(loaded.names):
            loaded.standing = standing
            self._loaded.move_to_end(standing.sha256)
            return loaded
        return self._read(standing)

    def _read(self, standing: Standing) -> _Loaded:
        self._loaded.pop(standing.sha256, None)
        if self._is_shared and not self._files.is_here(standing.sha256):
            raise Rejected(
                Reason.SKILL_NOT_ACTIVE,
                f"{standing.skill_id} {standing.version} is enabled, and its files are not on this machine.",
                "Install the same package here too: palyra skills install FILE",
            )
        names = self._files.names(standing.sha256)
        before, now_ms = self._files.signature(names), self._clock.now_unix_ms()
        try:
            files = self._files.read(standing.sha256)
            manifest = check_members(files)
        except SkillRefused as refused:
            raise self._stop(standing, refused.detail, Reason.SKILL_TAMPERED) from None
        if (manifest.skill_id, manifest.version) != (standing.skill_id, standing.version):
            raise self._stop(standing, "Its files belong to another skill.", Reason.SKILL_TAMPERED)
        # A change while we read is seen by the next call: its signature is that of before.
        modules = {sha256_hex(files[path]): files[path] for path in manifest.modules}
        newest_ms = max((one[CHANGED] for one in before), default=0) // 1_000_000
        loaded = _Loaded(
            standing=standing,
            manifest=manifest,
            modules=modules,
            names=names,
            signature=before,
            is_settled=newest_ms + SETTLED_MS < now_ms,
        )
        self._keep(loaded)
        return loaded

    def _keep(self, loaded: _Loaded) -> None:
        self._loaded[loaded.standing.sha256] = loaded
        while len(self._loaded) > 1 and sum(one.size_bytes for one in self._loaded.values()) > MOST_BYTES:
            self._loaded.popitem(last=False)

    def _stop(self, standing: Standing, why: str, reason: Reason) -> Rejected:
        """Quarantine it, with its entry, before it is refused: nobody gets a second try at the same moment."""
        self._move(standing.sha256, Move.QUARANTINE, f"{reason}: {why}")
        return Rejected(
            reason,
            f"{standing.skill_id} {standing.version} is quarantined: {why}",
            f"palyra skills show {standing.skill_id}; install it again from its package.",
        )

    def _move(self, sha256: str, kind: Move, reason: str) -> None:
        def work(tx: Transaction) -> None:
            stored = self._rows.find(sha256, tx)
            if stored is not None and stored.status is Status.ACTIVE:
                now = self._clock.now_unix_ms()
                self._rows.move(tx, stored, kind, by=PALYRA, at_unix_ms=now, reason=reason)

        self._loaded.pop(sha256, None)
        try:
            self._writer.commit_now(work)
        except StateError as error:
            log.error("payload %s could not be disabled: %s", sha256[:12], error.detail)

    def _not_active(self, name: str, version: str) -> Rejected:
        if self._rows.has_edited(name):
            return self._edited(name)
        standings = self._rows.of_skill(name)
        wanted = [one for one in standings if not version or one.version == version]
        if wanted:
            newest = max(wanted, key=lambda one: one.changed_unix_ms)
            detail = f"{name} {newest.version} is {newest.status.value}, not enabled."
            return Rejected(Reason.SKILL_NOT_ACTIVE, detail, f"An operator enables it: palyra skills enable {name}")
        what = f"{name} {version}".strip()
        return Rejected(
            Reason.SKILL_NOT_ACTIVE,
            f"No skill {what[:120]} is installed and enabled here.",
            "palyra skills list shows those that are; palyra skills install FILE installs one.",
        )

    def _edited(self, skill_id: str) -> Rejected:
        now = self._clock.now_unix_ms()
        self._writer.commit_now(lambda tx: self._rows.mend(tx, by=PALYRA, at_unix_ms=now))
        return Rejected(
            Reason.SKILL_TAMPERED,
            f"{skill_id} is quarantined: {EDITED}.",
            f"palyra journal verify, then install {skill_id} again from its package.",
        )


def _entry(manifest: SkillManifest, tool_id: str) -> ToolEntry:
    found = [tool for tool in manifest.tools if tool_id in ("", tool.id)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(tool.id for tool in manifest.tools)
    raise Rejected(
        Reason.BAD_ARGUMENTS,
        f"{manifest.skill_id} has no such tool, or has several and none was named.",
        f"Name one of them as tool_id: {names[:400]}",
    )


def _skill_tool(loaded: _Loaded, entry: ToolEntry) -> SkillTool:
    manifest, standing = loaded.manifest, loaded.standing
    module_sha256 = dict(manifest.integrity)[entry.module]
    seen = orjson.loads(standing.facts).get(entry.module)
    if not isinstance(seen, dict):
        raise Rejected(Reason.SKILL_NOT_ACTIVE, f"{entry.module} of {manifest.skill_id} is not a module that can run.")
    guest = GuestKind(seen["kind"])
    return SkillTool(
        skill_id=manifest.skill_id,
        version=manifest.version,
        tool_id=entry.id,
        payload_sha256=standing.sha256,
        module_sha256=module_sha256,
        guest=guest,
        memories=seen["memories"],
        grants=grants_of(manifest.capabilities),
        limits=manifest.capabilities.quotas.limits(guest),
        capabilities=manifest.capabilities.tags,
        input_schema=entry.input_schema,
        output_schema=entry.output_schema,
        sensitive=entry.default_sensitive or entry.requires_approval,
    )
