"""What an operator does with skills, for every door: install, enable, disable, quarantine, roll back, remove, audit.

Rules: an installation writes the files first and then everything else in one transaction, so that a crash at any point
leaves either nothing or a skill in quarantine; what a crash left is swept by the next one. Every move is judged inside
the transaction that writes it, against what is stored then, and commits with its journal entry. New and updated skills
land in quarantine, whatever stood there before.

`SkillRefused` says why not; nothing was changed then. Not here: who is an operator (the doors), trust (skill_trust).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from palyra.canon import Json, canonical
from palyra.config.schema import Config
from palyra.engine.ports import Clock
from palyra.journal.acts import PALYRA
from palyra.signing import PublicKey
from palyra.skills.archive import write_zip
from palyra.skills.bundle import Parcel, Skill, join, open_parcel, read, read_again, read_parcel, read_untrusted
from palyra.skills.findings import Check, CheckStatus, Finding, SkillRefused, failed
from palyra.skills.lifecycle import (
    EnableTerms,
    Move,
    Standing,
    Status,
    check_enable,
    newest_first,
    rollback_target,
)
from palyra.skills.manifest import SkillManifest
from palyra.skills.store.pins import Pin
from palyra.skills.store.reports import Report
from palyra.skills.trust import PinnedKey
from palyra.skills.version import Version
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.wiring.skill_audit import Audited, Compiles, audit_skill
from palyra.wiring.skill_files import SkillFiles
from palyra.wiring.skill_lookup import SkillLookup, absent, changed_meanwhile
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


class SkillDesk(SkillLookup):
    def __init__(self, writer: Writer, config: Config, clock: Clock, files: SkillFiles, compiler: Compiles) -> None:
        super().__init__(writer, clock)
        self._config = config
        self._files = files
        self._compiler = compiler

    # ── coming in ──

    async def install(self, file_bytes: bytes, *, by: str, tofu: bool = False, allow_downgrade: bool = False) -> Done:
        """A package into quarantine, audited. `tofu`: take the key of a publisher who has none here yet."""
        parcel, tofu_by = open_parcel(file_bytes), by if tofu else ""
        key = self._key_for(parcel, tofu_by=tofu_by)[0]
        skill = await asyncio.to_thread(read_parcel, parcel, key)  # a large one takes its time, and calls go on
        self._check_version(skill, self._rows.of_skill(skill.manifest.skill_id), allow_downgrade=allow_downgrade)
        audited = await self._audit(skill)
        with self._files.writing(self._rows.known_folders):
            replaced = self._files.write(skill.payload_sha256, skill.files)

            def work(tx: Transaction) -> Done:
                self._check_version(
                    skill, self._rows.of_skill(skill.manifest.skill_id, tx), allow_downgrade=allow_downgrade
                )
                _, pin = self._key_for(parcel, tofu_by=tofu_by, tx=tx)
                done = self._take_in(tx, skill, audited, by=by, pin=pin, replaced=replaced)
                return done if pin is None else replace(done, pinned_key_id=pin.pinned.key_id)

            return self._writer.commit_now(work)[0]

    async def update(self, file_bytes: bytes, *, by: str, allow_downgrade: bool = False) -> Done:
        """The same for a skill that is installed; the version that is active goes on until another is enabled."""
        skill_id = open_parcel(file_bytes).claimed.skill_id
        if not any(one.status is not Status.REMOVED for one in self._rows.of_skill(skill_id)):
            raise absent(skill_id)
        return await self.install(file_bytes, by=by, allow_downgrade=allow_downgrade)

    def _take_in(
        self, tx: Transaction, skill: Skill, audited: Audited, *, by: str, pin: Pin | None, replaced: bool
    ) -> Done:
        now = self._clock.now_unix_ms()
        report = Report(sha256=skill.payload_sha256, at_unix_ms=now, by=by, checks=audited.checks)
        if pin is not None:
            self._pins.put(tx, pin, by=by, at_unix_ms=now, before=None, after="trusted", reason="taken on first use")
        stored = self._rows.find(skill.payload_sha256, tx)
        fresh = self._fresh(skill, audited, by=by, now=now)
        if stored is not None and stored.status is not Status.REMOVED:
            edited = stored.facts != fresh.facts
            same = stored.key_id == fresh.key_id and not replaced and not edited
            self._reports.keep(tx, report)
            if same:
                return Done(standing=stored, report=report, changed=False)
            reason = f"signed anew by key {fresh.key_id}"
            reason = "installed again: it had been changed" if replaced or edited else reason
            self._keep_payload(tx, skill, fresh)
            again = replace(
                stored,
                key_id=fresh.key_id,
                facts=fresh.facts,
                status=Status.QUARANTINED,
                reason=reason,
                changed_by=by,
                changed_unix_ms=now,
            )
            return Done(standing=self._rows.put(tx, again, before=stored.status), report=report)
        self._keep_payload(tx, skill, fresh)
        ingested = self._rows.move(tx, fresh, Move.INGEST, by=by, at_unix_ms=now, reason="installed")
        self._reports.keep(tx, report)
        reason = f"audit failed: {', '.join(report.failures)}" if report.failures else "new, not enabled yet"
        landed = self._rows.move(tx, ingested, Move.QUARANTINE, by=PALYRA, at_unix_ms=now, reason=reason)
        return Done(standing=landed, report=report)

    def _keep_payload(self, tx: Transaction, skill: Skill, standing: Standing) -> None:
        tools = [tool.id for tool in skill.manifest.tools]
        text = skill.files["skill.toml"]
        self._rows.keep_payload(tx, standing, manifest=text, bundle=skill.bundle, tools=tools)

    def _fresh(self, skill: Skill, audited: Audited, *, by: str, now: int) -> Standing:
        facts = {path: {"kind": f.kind.value, "memories": f.memories} for path, f in audited.facts.items()}
        return Standing(
            sha256=skill.payload_sha256,
            skill_id=skill.manifest.skill_id,
            version=skill.manifest.version,
            publisher=skill.manifest.publisher,
            key_id=skill.key.key_id,
            status=Status.INGESTED,
            facts=canonical(facts).decode(),
            installed_by=by,
            installed_unix_ms=now,
        )

    def _key_for(
        self, parcel: Parcel, *, tofu_by: str = "", tx: Transaction | None = None
    ) -> tuple[PublicKey, Pin | None]:
        """The key that counts for it, and the pin to be made where `tofu_by` takes it on first use."""
        claimed, now = parcel.claimed, self._clock.now_unix_ms()
        if tofu_by and not self._pins.names(claimed.publisher, tx or self._writer):
            pinned = PinnedKey(key=parcel.claimed_key)
            return pinned.key, Pin(publisher=claimed.publisher, pinned=pinned, how="tofu", added_by=tofu_by)
        trust, signed = self._pins.trust(tx), claimed.signed_unix_ms
        return trust.may_sign(claimed.publisher, claimed.key_id, at_unix_ms=now, signed_unix_ms=signed), None

    def _check_version(self, skill: Skill, standings: Sequence[Standing], *, allow_downgrade: bool) -> None:
        manifest, here = skill.manifest, [one for one in standings if one.status is not Status.REMOVED]
        if allow_downgrade or any(one.sha256 == skill.payload_sha256 for one in here):
            return  # the very same again is no step back: that is how changed files are mended
        for one in here:
            if one.version == manifest.version and one.sha256 != skill.payload_sha256:
                raise SkillRefused(
                    Finding.VERSION_REUSED,
                    f"{manifest.skill_id} {manifest.version} is installed with other content.",
                    "Its publisher has to give the new one another version; --allow-downgrade takes it all the same.",
                )
            if Version(one.version) > Version(manifest.version):
                raise SkillRefused(
                    Finding.DOWNGRADE,
                    f"{manifest.skill_id} {one.version} is installed; {manifest.version} is older.",
                    "Old versions have known faults: --allow-downgrade installs it all the same.",
                )

    # ── moves ──

    async def enable(self, skill_id: str, *, by: str, override_reason: str = "", version: str = "") -> Done:
        """The payload that was installed last, or the one of `version`, instead of the one that is active."""
        target = self._chosen(skill_id, version)
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
        target = self._chosen(skill_id, version)

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

    # ── audits ──

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

    def verify_file(self, file_bytes: bytes) -> Skill:
        """A package by a key that is trusted here for its publisher, or `SkillRefused`. Nothing is installed."""
        return read(file_bytes, self._pins.trust(), at_unix_ms=self._clock.now_unix_ms())

    async def audit_file(self, file_bytes: bytes) -> tuple[Check, ...]:
        """The same for a package that is not installed; nothing is kept."""
        try:
            parcel = open_parcel(file_bytes)
            skill = read_untrusted(file_bytes)
        except SkillRefused as refused:
            return (failed(refused),)
        checks: tuple[Check, ...] = ()
        try:
            self._key_for(parcel)
        except SkillRefused as refused:
            checks = (failed(refused),)
        return (*checks, *(await self._audit(skill)).checks)

    async def audit_due(self) -> tuple[Done, ...]:
        """Every enabled skill whose newest audit is older than `audit_hours`. The daemon calls this now and then."""
        hours, now = self._config.skills.audit_hours, self._clock.now_unix_ms()
        found = []
        for one in self._rows.all_active() if hours else ():
            report = self._reports.newest(one.sha256)
            if report is None or now - report.at_unix_ms >= hours * 3_600_000:
                found.append(await self.audit(one.skill_id, by=PALYRA))
        return tuple(found)

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


def _is_accepted(standing: Standing, report: Report) -> bool:
    """An operator overrode the audit of this very payload; what is found in its files or its trust is another thing."""
    own = {"module.imports", "module.entry", "module.size", "compat.palyra"}
    wishes = ("capability.",)
    return bool(standing.override) and all(name in own or name.startswith(wishes) for name in report.failures)
