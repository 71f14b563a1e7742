"""What is found in a skill: the codes of refusals, and the rows of an audit report.

A code is stable and means one thing; `SkillRefused` carries one with a plain sentence and a hint. An audit is a list of
`Check`s, and a refusal while an artifact was read becomes the check that failed, under the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from palyra.canon import Json
from palyra.errors import PalyraError
from palyra.values import dataclass


class Finding(StrEnum):
    """Why a skill is refused. The sentence beside it in docs/spec/skill.md is what it means."""

    HEADER = "artifact.header"
    BUNDLE = "artifact.bundle"
    SIGNATURE = "artifact.signature"
    SIGNER = "artifact.signer"
    SUBJECT = "artifact.subject"
    STATEMENT = "artifact.statement"
    SWAPPED = "artifact.swapped"
    ARCHIVE_SIZE = "archive.size"
    ARCHIVE_END = "archive.end"
    ARCHIVE_LAYOUT = "archive.layout"
    ARCHIVE_PREPENDED = "archive.prepended"
    ARCHIVE_TRAVERSAL = "archive.traversal"
    ARCHIVE_PATH = "archive.path"
    ARCHIVE_CASE = "archive.case"
    ARCHIVE_DUPLICATE = "archive.duplicate"
    ARCHIVE_LINK = "archive.link"
    ARCHIVE_COMPRESSED = "archive.compressed"
    ARCHIVE_SIZES = "archive.sizes"
    ARCHIVE_CHECKSUM = "archive.checksum"
    ARCHIVE_ENCODING = "archive.encoding"
    ARCHIVE_MEMBERS = "archive.members"
    MANIFEST_SYNTAX = "manifest.syntax"
    MANIFEST_KEY = "manifest.key"
    MANIFEST_VALUE = "manifest.value"
    MANIFEST_PUBLISHER = "manifest.publisher"
    MANIFEST_TOOL_OWNER = "manifest.tool_owner"
    MANIFEST_ENCODING = "manifest.encoding"
    INTEGRITY = "manifest.integrity"
    SBOM = "sbom.files"
    PROVENANCE = "provenance.modules"
    TRUST_UNKNOWN = "trust.unknown"
    TRUST_KEY_CHANGED = "trust.key_changed"
    TRUST_REVOKED = "trust.revoked"
    TRUST_EXPIRED = "trust.expired"
    TRUST_WEAK_KEY = "trust.weak_key"
    TRUST_ROTATION = "trust.rotation"
    DOWNGRADE = "version.downgrade"
    VERSION_REUSED = "version.reused"
    TOOL_TAKEN = "tool.taken"
    LIFE_MOVE = "life.move"
    LIFE_AUDIT = "life.audit"
    LIFE_REVIEW = "life.review"
    LIFE_SECOND_PERSON = "life.second_person"
    LIFE_ABSENT = "life.absent"
    TAMPERED = "files.tampered"


class SkillRefused(PalyraError):
    """An artifact, a key or a move of a skill's life is refused; nothing was changed."""

    def __init__(self, finding: Finding, detail: str, hint: str | None = None) -> None:
        super().__init__(f"{finding}: {detail}")
        self.finding = finding
        self.detail = detail
        self.hint = hint


class CheckStatus(StrEnum):
    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


PASS, WARN, FAIL = CheckStatus.PASS, CheckStatus.WARN, CheckStatus.FAIL
MAX_SHOWN = 16
"""Items of a list that a check shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One row of an audit report."""

    check_id: str
    status: CheckStatus
    message: str
    details: Mapping[str, Json] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        return {
            "check_id": self.check_id,
            "status": self.status.value,
            "message": self.message,
            "details": dict(self.details),
        }


def make_check(check_id: str, status: CheckStatus, message: str, **details: Json) -> Check:
    return Check(check_id=check_id, status=status, message=message, details=details)


def failed(refusal: SkillRefused) -> Check:
    return Check(check_id=refusal.finding.value, status=CheckStatus.FAIL, message=refusal.detail)
