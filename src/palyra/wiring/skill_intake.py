"""How packages come in: installed, updated, or only looked at.

Rules: an installation writes the files first and then everything else in one transaction, so that a crash at any point
leaves either nothing or a skill in quarantine; what a crash left is swept by the next one. New and updated skills land
in quarantine, whatever stood there before. An older version, or the same one with other content, is refused unless the
operator says otherwise.

Not here: what a package is and how it is read (skills.bundle), whose keys count (skill_trust).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from palyra.canon import canonical
from palyra.journal.acts import PALYRA
from palyra.signing import PublicKey
from palyra.skills.bundle import Parcel, Skill, open_parcel, read, read_parcel, read_untrusted
from palyra.skills.findings import Check, Finding, SkillRefused, failed
from palyra.skills.lifecycle import Move, Standing, Status
from palyra.skills.store.pins import Pin
from palyra.skills.store.reports import Report
from palyra.skills.trust import PinnedKey
from palyra.skills.version import Version
from palyra.state.transaction import Transaction
from palyra.wiring.skill_audit import Audited
from palyra.wiring.skill_lookup import absent
from palyra.wiring.skill_payloads import Done, SkillPayloads


class SkillIntake(SkillPayloads):
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
            reason = f"signed again by key {fresh.key_id}"
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
                    "Its publisher has to give the new content a new version; --allow-downgrade accepts it anyway.",
                )
            if Version(one.version) > Version(manifest.version):
                raise SkillRefused(
                    Finding.DOWNGRADE,
                    f"{manifest.skill_id} {one.version} is installed; {manifest.version} is older.",
                    "Old versions may have known vulnerabilities: --allow-downgrade installs it anyway.",
                )

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
