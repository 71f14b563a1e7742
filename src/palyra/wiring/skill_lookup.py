"""What is known of installed skills, for every door: lists, one skill whole, its reports; which payload is meant."""

from __future__ import annotations

from palyra.canon import Json
from palyra.engine.ports import Clock
from palyra.journal.acts import PALYRA, ActKind
from palyra.journal.entry import parse_entry
from palyra.skills.bundle import check_manifest_text
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.lifecycle import Standing, Status, newest_first
from palyra.skills.manifest import SkillManifest
from palyra.skills.store.life import SkillRows
from palyra.skills.store.pins import PinRows
from palyra.skills.store.reports import ReportRows
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.wiring.skill_trust import TrustDesk
from palyra.wiring.skill_views import manifest_json, standing_json

PAGE = 2000
"""Entries that are looked through at a time."""


class SkillLookup(TrustDesk):
    def __init__(self, writer: Writer, clock: Clock) -> None:
        super().__init__(writer, clock, rows=SkillRows(writer), pins=PinRows(writer))
        self._reports = ReportRows(writer)

    def list_skills(self, *, removed: bool = False) -> list[dict[str, Json]]:
        """One row a skill: the active payload, or the one changed last."""
        self._mend()
        by_skill: dict[str, list[Standing]] = {}
        for one in self._rows.all():
            if removed or one.status is not Status.REMOVED:
                by_skill.setdefault(one.skill_id, []).append(one)
        found = []
        for standings in by_skill.values():
            first = newest_first(tuple(standings))[0]
            report = self._reports.newest(first.sha256)
            waiting = [s.version for s in standings if s.status is Status.QUARANTINED and s.sha256 != first.sha256]
            verdict = report.verdict.value if report is not None else None
            found.append({**standing_json(first), "audit": verdict, "waiting_versions": sorted(waiting)})
        return found

    def show_skill(self, skill_id: str, *, version: str = "") -> dict[str, Json]:
        """All of it: what it is, what it asks for in words, every version, the newest audit; or so of one version."""
        standings = newest_first(self._known(skill_id, removed=True))
        first = next((one for one in standings if version in ("", one.version)), None)
        if first is None:
            raise absent(f"{skill_id} {version}")
        report = self._reports.newest(first.sha256)
        return {
            **standing_json(first),
            **manifest_json(self.manifest(first)),
            "audit": report.as_json() if report is not None else None,
            "versions": [standing_json(one) for one in standings],
        }

    def reports(self, skill_id: str) -> list[dict[str, Json]]:
        """Audit reports of every payload of the skill, the newest first."""
        found = [report for one in self._known(skill_id, removed=True) for report in self._reports.history(one.sha256)]
        return [report.as_json() for report in sorted(found, key=lambda r: -r.at_unix_ms)]

    def manifest(self, standing: Standing) -> SkillManifest:
        text, bundle = self._rows.manifest_text(standing.sha256), self._rows.bundle(standing.sha256)
        if text is None or bundle is None:
            raise absent(standing.skill_id)
        return check_manifest_text(bundle, text, payload_sha256=standing.sha256, key_id=standing.key_id)

    # ── which payload ──

    def _known(self, skill_id: str, *, removed: bool = False) -> tuple[Standing, ...]:
        self._mend()
        found = tuple(s for s in self._rows.of_skill(skill_id) if removed or s.status is not Status.REMOVED)
        if not found:
            raise absent(skill_id)
        return found

    def _mend(self) -> None:
        """Rows that somebody edited are put into quarantine before anything is decided by them."""
        if self._rows.has_edited():
            now = self._clock.now_unix_ms()
            self._writer.commit_now(lambda tx: self._rows.mend(tx, by=PALYRA, at_unix_ms=now))

    def _current(self, skill_id: str) -> Standing:
        return newest_first(self._known(skill_id))[0]

    def _chosen(self, skill_id: str, version: str) -> Standing:
        found = [one for one in self._known(skill_id) if not version or one.version == version]
        if not found:
            raise absent(f"{skill_id} {version}")
        return max(found, key=lambda one: (one.installed_unix_ms, one.entry))

    def _next(self, skill_id: str, version: str) -> Standing:
        """The payload that `enable` without a version means: a newer one that was never enabled, else the one enabled
        last. So one that was rolled back from comes back only by its version."""
        found = self._known(skill_id)
        enabled = [one for one in found if one.enabled_by]
        if version or not enabled:
            return self._chosen(skill_id, version)
        last = max(enabled, key=lambda one: (one.enabled_unix_ms, one.entry))
        newer = [one for one in found if not one.enabled_by and one.installed_unix_ms >= last.installed_unix_ms]
        return max(newer, key=lambda one: (one.installed_unix_ms, one.entry), default=last)

    def _stored(self, tx: Transaction, standing: Standing) -> Standing:
        found = self._rows.find(standing.sha256, tx)
        if found is None:
            raise changed_meanwhile(standing.skill_id)
        return found

    def _check_history(self, standing: Standing) -> None:
        """A row that is signed can still be an old one, put back: then a later entry tells of this payload."""
        wanted, after = standing.sha256.encode(), standing.entry
        sql = "SELECT idx, body FROM entries WHERE idx > ? ORDER BY idx LIMIT ?"
        while rows := self._writer.rows(sql, (after, PAGE)):
            after = rows[-1][0]
            for _, body in rows:
                if body is None or wanted not in (data := bytes(body)):
                    continue
                said = parse_entry(data).predicate
                if said.get("act") == ActKind.SKILL_CHANGED and said["details"]["sha256"] == standing.sha256:
                    raise SkillRefused(
                        Finding.TAMPERED,
                        f"The row of {standing.skill_id} is an old one that was restored: a later entry differs.",
                        "palyra journal verify, then install the skill again from its package.",
                    )


def absent(skill_id: str) -> SkillRefused:
    return SkillRefused(Finding.LIFE_ABSENT, f"No skill {skill_id[:120]} is installed.", "palyra skills list")


def changed_meanwhile(skill_id: str) -> SkillRefused:
    return SkillRefused(Finding.LIFE_MOVE, f"{skill_id} was changed in the meantime.", f"palyra skills show {skill_id}")
