"""Audits of installed payloads, asked for by an operator or due by the clock.

Rules: every audit is kept with its report, whatever it found; what fails while it is enabled is quarantined, or marked
failed where it only no longer compiles. A failure that an operator overrode for this very payload stays overridden, but
not one of its files, its signatures or its trust.

Not here: the checks themselves (skill_audit, skills.review), packages that are not installed (skill_intake).
"""

from __future__ import annotations

from palyra.journal.acts import PALYRA
from palyra.skills.findings import CheckStatus, SkillRefused, failed
from palyra.skills.lifecycle import Move, Standing, Status
from palyra.skills.store.reports import Report
from palyra.state.transaction import Transaction
from palyra.wiring.skill_payloads import Done, SkillPayloads


class SkillAudits(SkillPayloads):
    async def audit(self, skill_id: str, *, by: str, version: str = "") -> Done:
        """Look again at an installed payload. What fails is quarantined, or failed where it only no longer compiles."""
        target = self._chosen(skill_id, version) if version else self._current(skill_id)
        try:
            self._check_history(target)
            checks = (await self._audit(self._read_again(target))).checks
        except SkillRefused as refused:
            checks = (failed(refused),)

        def work(tx: Transaction) -> Done:
            stored, now = self._stored(tx, target), self._clock.now_unix_ms()
            report = Report(sha256=stored.sha256, at_unix_ms=now, by=by, checks=checks)
            self._reports.keep(tx, report)
            if (
                report.verdict is not CheckStatus.FAIL
                or stored.status is not Status.ACTIVE
                or _is_accepted(stored, report)
            ):
                return Done(standing=stored, report=report, changed=False)
            kind = Move.FAIL if set(report.failures) == {"module.compile"} else Move.QUARANTINE
            reason = f"audit failed: {', '.join(report.failures)}"
            return Done(
                standing=self._rows.move(tx, stored, kind, by=PALYRA, at_unix_ms=now, reason=reason), report=report
            )

        return self._writer.commit_now(work)[0]

    async def audit_due(self) -> tuple[Done, ...]:
        """Every enabled skill whose newest audit is older than `audit_hours`. The daemon calls this now and then."""
        hours, now = self._config.skills.audit_hours, self._clock.now_unix_ms()
        found = []
        for one in self._rows.all_active() if hours else ():
            report = self._reports.newest(one.sha256)
            if report is None or now - report.at_unix_ms >= hours * 3_600_000:
                found.append(await self.audit(one.skill_id, by=PALYRA))
        return tuple(found)


def _is_accepted(standing: Standing, report: Report) -> bool:
    """An operator overrode the audit of this very payload; what is found in its files or its trust is another thing."""
    own = {"module.imports", "module.entry", "module.size", "compat.palyra"}
    wishes = ("capability.",)
    return bool(standing.override) and all(name in own or name.startswith(wishes) for name in report.failures)
