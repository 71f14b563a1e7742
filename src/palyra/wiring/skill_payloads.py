"""Installed payloads as they are now: read again from their files, audited again, moved.

Rules: what is read is checked against its signatures and digests each time, and changed files put a payload into
quarantine before anything else is said. A move is judged inside the transaction that writes it. `Done` is what every
act of an operator answers with.

Not here: how packages come in (skill_intake), audits that are asked for (skill_audits), the acts (skill_acts).
"""

from __future__ import annotations

from dataclasses import dataclass

from palyra.canon import Json
from palyra.config.schema import Config
from palyra.engine.ports import Clock
from palyra.journal.acts import PALYRA
from palyra.skills.archive import write_zip
from palyra.skills.bundle import Skill, join, read_again
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.lifecycle import Move, Standing, Status
from palyra.skills.store.reports import Report
from palyra.skills.version import Version
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.wiring.skill_audit import Audited, Compiles, audit_skill
from palyra.wiring.skill_files import SkillFiles
from palyra.wiring.skill_lookup import SkillLookup
from palyra.wiring.skill_views import standing_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of an act: where the skill stands, and the audit that counts for it."""

    standing: Standing
    report: Report | None = None
    changed: bool = True
    pinned_key_id: str = ""
    """The key that was taken on first use."""

    def as_json(self) -> dict[str, Json]:
        return {
            **standing_json(self.standing),
            "changed": self.changed,
            "pinned_key_id": self.pinned_key_id or None,
            "audit": self.report.as_json() if self.report is not None else None,
        }


class SkillPayloads(SkillLookup):
    def __init__(self, writer: Writer, config: Config, clock: Clock, files: SkillFiles, compiler: Compiles) -> None:
        super().__init__(writer, clock)
        self._config = config
        self._files = files
        self._compiler = compiler

    def _move(self, target: Standing, kind: Move, *, by: str, reason: str) -> Done:
        def work(tx: Transaction) -> Done:
            stored, now = self._stored(tx, target), self._clock.now_unix_ms()
            return Done(standing=self._rows.move(tx, stored, kind, by=by, at_unix_ms=now, reason=reason))

        return self._writer.commit_now(work)[0]

    def _read_again(self, standing: Standing) -> Skill:
        bundle = self._rows.bundle(standing.sha256)
        archive = write_zip(self._files.read(standing.sha256))
        return read_again(join(bundle or b"", archive), self._pins.trust())

    def _read(self, standing: Standing) -> Skill:
        """The payload's files as they are now; changed ones put it into quarantine before this is refused."""
        try:
            return self._read_again(standing)
        except SkillRefused as refused:
            if refused.finding is Finding.TAMPERED and standing.status is not Status.QUARANTINED:
                self._move(standing, Move.QUARANTINE, by=PALYRA, reason=f"{refused.finding}: {refused.detail}")
            raise

    async def _audit(self, skill: Skill) -> Audited:
        """Compared with the newest version before it, whatever became of that one."""
        here = Version(skill.manifest.version)
        older = [one for one in self._rows.of_skill(skill.manifest.skill_id) if Version(one.version) < here]
        before = max(older, key=lambda one: (Version(one.version), one.entry)) if older else None
        return await audit_skill(
            skill,
            self._config,
            self._compiler,
            previous=self.manifest(before) if before is not None else None,
            previous_key_id=before.key_id if before is not None else "",
        )
