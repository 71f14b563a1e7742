"""How a skill lives: one table of moves, and what each asks for.

`ingested → quarantined → active ⇄ disabled`, `active → failed`, `→ quarantined` from anywhere, `→ removed` from
anywhere. A standing belongs to one payload, by its digest: an update is another payload and inherits nothing. Without a
standing nothing runs.

Enabling is a person's: the payload's audit must not have failed and, where its manifest wants a review, one must be
recorded, or the person overrides with a reason that is kept; where the operator wants four eyes, whoever installed it
is not the one to enable it. Not here: rows and journal (skills/store), audits (review).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from palyra.canon import Json, canonical
from palyra.skills.findings import CheckStatus, Finding, SkillRefused


class Status(StrEnum):
    INGESTED = "ingested"
    QUARANTINED = "quarantined"
    ACTIVE = "active"
    DISABLED = "disabled"
    FAILED = "failed"
    REMOVED = "removed"


class Move(StrEnum):
    INGEST = "ingest"
    QUARANTINE = "quarantine"
    ENABLE = "enable"
    DISABLE = "disable"
    FAIL = "fail"
    ROLL_BACK = "roll back"
    REMOVE = "remove"


_ANY = frozenset({Status.INGESTED, Status.QUARANTINED, Status.ACTIVE, Status.DISABLED, Status.FAILED})

MOVES: Mapping[Move, tuple[frozenset[Status | None], Status]] = {
    Move.INGEST: (frozenset({None, Status.REMOVED}), Status.INGESTED),
    Move.QUARANTINE: (frozenset(_ANY - {Status.QUARANTINED}), Status.QUARANTINED),
    Move.ENABLE: (frozenset({Status.QUARANTINED, Status.DISABLED, Status.FAILED}), Status.ACTIVE),
    Move.DISABLE: (frozenset({Status.ACTIVE}), Status.DISABLED),
    Move.FAIL: (frozenset({Status.ACTIVE}), Status.FAILED),
    Move.ROLL_BACK: (frozenset({Status.DISABLED}), Status.ACTIVE),
    Move.REMOVE: (frozenset(_ANY), Status.REMOVED),
}
"""From which standings (None: no row at all) a move leads where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one payload of a skill stands, and who brought it there."""

    sha256: str
    """Of the payload: the exact bytes of the package's archive."""
    skill_id: str
    version: str
    publisher: str
    key_id: str
    status: Status
    reason: str = ""
    facts: str = "{}"
    """JSON: what the runtime must know of each module, {path: {kind, memories}}."""
    installed_by: str = ""
    installed_unix_ms: int = 0
    reviewed_by: str = ""
    reviewed_unix_ms: int = 0
    enabled_by: str = ""
    """Empty: never enabled since it was installed."""
    enabled_unix_ms: int = 0
    override: str = ""
    previous: str = ""
    """The payload that was active before this one."""
    changed_by: str = ""
    changed_unix_ms: int = 0
    entry: int = -1
    """The journal's entry that tells of the last change."""

    def as_row(self) -> tuple[object, ...]:
        return tuple(str(value) if isinstance(value, StrEnum) else value for value in _values(self))

    def sealed_bytes(self) -> bytes:
        return canonical(list(self.as_row()))

    def as_json(self) -> dict[str, Json]:
        return dict(zip(COLUMNS, self.as_row(), strict=True))


COLUMNS = tuple(column.name for column in fields(Standing))


def _values(standing: Standing) -> tuple[Any, ...]:
    return tuple(getattr(standing, name) for name in COLUMNS)


def parse_standing(row: tuple[Any, ...]) -> Standing:
    """ValueError for a row that none of ours can be."""
    given = dict(zip(COLUMNS, row, strict=True))
    return Standing(**{**given, "status": Status(given["status"])})


def move(
    standing: Standing, kind: Move, *, by: str, at_unix_ms: int, reason: str = "", before: Status | None
) -> Standing:
    """The standing after a move, or `SkillRefused`. `before` is what is stored now; None when nothing is."""
    allowed, after = MOVES[kind]
    if before not in allowed:
        now = before.value if before is not None else "not installed"
        raise SkillRefused(
            Finding.LIFE_MOVE,
            f"{standing.skill_id} {standing.version} is {now}: there is nothing to {kind.value}.",
            f"Another version: palyra skills enable {standing.skill_id} --version V"
            if kind is Move.ENABLE
            else f"palyra skills show {standing.skill_id}",
        )
    changed = replace(standing, status=after, reason=reason, changed_by=by, changed_unix_ms=at_unix_ms)
    if kind is Move.INGEST:  # what was said of an earlier installation does not count for this one
        changed = replace(changed, reviewed_by="", reviewed_unix_ms=0, enabled_by="", enabled_unix_ms=0, override="")
    if after is Status.ACTIVE:
        changed = replace(changed, enabled_by=by, enabled_unix_ms=at_unix_ms)
    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class EnableTerms:
    """What is known when somebody wants to enable a payload."""

    verdict: CheckStatus | None
    """Of the newest audit of this payload; None: there is none."""
    review_required: bool
    four_eyes: bool
    override: str = ""


def check_enable(standing: Standing, by: str, terms: EnableTerms) -> None:
    """`SkillRefused` names what is missing. An override answers for audit and review, never for the second person."""
    skill = standing.skill_id
    if terms.four_eyes and by == standing.installed_by:
        raise SkillRefused(
            Finding.LIFE_SECOND_PERSON,
            f"{by} installed {skill}: another person has to enable it.",
            "four_eyes in [skills] asks for it; another operator enables it.",
        )
    if terms.override:
        return
    if terms.verdict is None or terms.verdict is CheckStatus.FAIL:
        said = "has failed its audit" if terms.verdict else "was not audited"
        raise SkillRefused(
            Finding.LIFE_AUDIT,
            f"{skill} {standing.version} {said}.",
            f"palyra skills audit {skill} shows why; palyra skills enable {skill} --override REASON enables it anyway.",
        )
    if terms.review_required and not standing.reviewed_by:
        raise SkillRefused(
            Finding.LIFE_REVIEW,
            f"{skill} asks for a review of each version, and none is recorded for {standing.version}.",
            f"Look at it (palyra skills show {skill}), then: palyra skills review {skill} --notes TEXT",
        )


def newest_first(standings: tuple[Standing, ...]) -> tuple[Standing, ...]:
    """The one that counts first: the active one, else the one changed last."""
    return tuple(sorted(standings, key=lambda s: (s.status is not Status.ACTIVE, -s.changed_unix_ms, -s.entry)))


def rollback_target(standings: tuple[Standing, ...]) -> tuple[Standing | None, Standing]:
    """(what is active now, the approved payload before it), or `SkillRefused`."""
    by_digest = {one.sha256: one for one in standings}
    enabled = sorted((s for s in standings if s.enabled_by), key=lambda s: (s.enabled_unix_ms, s.entry))
    active = next((one for one in standings if one.status is Status.ACTIVE), None)
    current = active or (enabled[-1] if enabled else None)
    seen: set[str] = set()
    at = current
    while at is not None and at.previous and at.previous not in seen:
        seen.add(at.previous)
        at = by_digest.get(at.previous)
        if at is not None and at.status is Status.DISABLED and at.enabled_by:
            return active, at
    name = standings[0].skill_id if standings else "the skill"
    raise SkillRefused(
        Finding.LIFE_ABSENT,
        f"No earlier payload of {name} was enabled and is still installed.",
        f"palyra skills show {name} lists every version.",
    )
