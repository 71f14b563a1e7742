"""What an operator does with skills, for every door: enable, disable, quarantine, review, roll back, remove; with what
comes in (skill_intake) and the audits (skill_audits) one desk.

Rules: every move is judged inside the transaction that writes it, against what is stored then, and commits with its
journal entry. What is enabled is read again from its files first.

`SkillRefused` says why not; nothing was changed then. Not here: who is an operator (the doors), trust (skill_trust).
"""

from __future__ import annotations

from dataclasses import replace

from palyra.skills.findings import CheckStatus, Finding, SkillRefused
from palyra.skills.lifecycle import EnableTerms, Move, Status, check_enable, newest_first, rollback_target
from palyra.skills.manifest import SkillManifest
from palyra.state.transaction import Transaction
from palyra.wiring.skill_audits import SkillAudits
from palyra.wiring.skill_intake import SkillIntake
from palyra.wiring.skill_lookup import absent, changed_meanwhile
from palyra.wiring.skill_payloads import Done


class SkillDesk(SkillIntake, SkillAudits):
    async def enable(self, skill_id: str, *, by: str, override_reason: str = "", version: str = "") -> Done:
        """The payload that waits, or the one of `version`, instead of the one that is active."""
        target = self._next(skill_id, version)
        skill = self._read(target)
        self._pins.trust().still_counts(target.publisher, target.key_id)
        terms = EnableTerms(
            verdict=None,
            review_required=skill.manifest.review_required,
            four_eyes=self._config.skills.four_eyes,
            override=override_reason.strip()[:200],
        )

        def work(tx: Transaction) -> Done:
            stored = self._stored(tx, target)
            report = self._reports.newest(stored.sha256, tx)
            check_enable(stored, by, replace(terms, verdict=report.verdict if report else None))
            self._check_tools(tx, skill.manifest)
            now = self._clock.now_unix_ms()
            before = next((s for s in self._rows.of_skill(skill_id, tx) if s.status is Status.ACTIVE), None)
            if before is not None and before.sha256 != stored.sha256:
                reason = f"replaced by version {stored.version}"
                self._rows.move(tx, before, Move.DISABLE, by=by, at_unix_ms=now, reason=reason)
                stored = replace(stored, previous=before.sha256)
            wanted = replace(stored, override=terms.override)
            reason = f"override: {terms.override}" if terms.override else "enabled"
            return Done(
                standing=self._rows.move(tx, wanted, Move.ENABLE, by=by, at_unix_ms=now, reason=reason), report=report
            )

        return self._writer.commit_now(work)[0]

    async def disable(self, skill_id: str, *, by: str, reason: str = "") -> Done:
        return self._move(self._current(skill_id), Move.DISABLE, by=by, reason=reason or "disabled")

    async def quarantine(self, skill_id: str, *, by: str, reason: str = "") -> Done:
        """What runs of it is stopped."""
        return self._move(self._current(skill_id), Move.QUARANTINE, by=by, reason=reason or "quarantined by hand")

    async def review(self, skill_id: str, *, by: str, notes: str, version: str = "") -> Done:
        """Record that a person reviewed this payload; `[trust] review_required` asks for it."""
        target = self._next(skill_id, version)

        def work(tx: Transaction) -> Done:
            stored, now = self._stored(tx, target), self._clock.now_unix_ms()
            said = replace(stored, reviewed_by=by, reviewed_unix_ms=now, reason=f"reviewed: {notes}"[:300])
            said = replace(said, changed_by=by, changed_unix_ms=now)
            return Done(standing=self._rows.put(tx, said, before=stored.status))

        return self._writer.commit_now(work)[0]

    async def rollback(self, skill_id: str, *, by: str) -> Done:
        """Back to the payload that was enabled before the present one."""
        _, target = rollback_target(self._known(skill_id))
        skill = self._read(target)
        self._pins.trust().still_counts(target.publisher, target.key_id)

        def work(tx: Transaction) -> Done:
            active, stored = rollback_target(self._rows.of_skill(skill_id, tx))
            if stored.sha256 != target.sha256:
                raise changed_meanwhile(skill_id)
            report = self._reports.newest(stored.sha256, tx)
            if (report is None or report.verdict is CheckStatus.FAIL) and not stored.override:
                raise SkillRefused(Finding.LIFE_AUDIT, f"{skill_id} {stored.version} has failed its audit since.")
            self._check_tools(tx, skill.manifest)
            now = self._clock.now_unix_ms()
            if active is not None:
                reason = f"rolled back to version {stored.version}"
                self._rows.move(tx, active, Move.DISABLE, by=by, at_unix_ms=now, reason=reason)
            moved = self._rows.move(tx, stored, Move.ROLL_BACK, by=by, at_unix_ms=now, reason="rolled back to this one")
            return Done(standing=moved, report=report)

        return self._writer.commit_now(work)[0]

    async def remove(self, skill_id: str, *, by: str) -> Done:
        """All versions, their files and what the skill kept. Rows, statements and reports stay: they are history."""
        self._known(skill_id)
        with self._files.writing(self._rows.known_folders):

            def work(tx: Transaction) -> Done:
                here = [s for s in self._rows.of_skill(skill_id, tx) if s.status is not Status.REMOVED]
                if not here:
                    raise absent(skill_id)
                now = self._clock.now_unix_ms()
                gone = [self._rows.move(tx, one, Move.REMOVE, by=by, at_unix_ms=now, reason="removed") for one in here]
                tx.execute("DELETE FROM guest_values WHERE skill_id = ?", (skill_id,))
                return Done(standing=newest_first(tuple(gone))[0])

            done = self._writer.commit_now(work)[0]
            for one in self._rows.of_skill(skill_id):
                self._files.remove(one.sha256)
        return done

    def _check_tools(self, tx: Transaction, manifest: SkillManifest) -> None:
        """A tool's id means one tool: another enabled skill of the publisher may have it already."""
        sql = """SELECT s.skill_id FROM skill_tools t JOIN skills s ON s.sha256 = t.sha256
                 WHERE t.tool_id = ? AND s.status = 'active' AND s.skill_id != ?"""
        for tool in manifest.tools:
            rows = tx.rows(sql, (tool.id, manifest.skill_id))
            if rows:
                raise SkillRefused(
                    Finding.TOOL_TAKEN,
                    f"The tool {tool.id} belongs to {rows[0][0]}, which is enabled.",
                    f"Disable it first: palyra skills disable {rows[0][0]}",
                )
