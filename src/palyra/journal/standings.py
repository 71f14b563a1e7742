"""Everything that stands in rows beside the journal, each held against the acts that tell of it.

Rows are unsigned: who can write the database changes them without any key. What is decided by a row is therefore told
by an act in the same transaction, and the audit compares the two. One file a kind of row beside this one; this joins
them. Not here: approvals, whose entries can contradict each other (journal/standing), budgets (journal/audit_calls).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from palyra.journal.config_standing import ConfigStanding
from palyra.journal.entry import EntryView
from palyra.journal.label_standing import Label, LabelStanding
from palyra.journal.policy_standing import PolicyRows, PolicyStanding
from palyra.journal.process_standing import ProcessRow, ProcessStanding
from palyra.journal.segment_standing import SegmentRow, SegmentStanding
from palyra.journal.session_standing import SessionRow, SessionStanding
from palyra.journal.skill_standing import SkillRow, SkillStanding
from palyra.journal.token_standing import TokenRow, TokenStanding
from palyra.journal.vault_standing import VaultStanding
from palyra.journal.witness_standing import WitnessRow, WitnessStanding
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingRows:
    skills: Iterable[SkillRow]
    witnesses: Iterable[WitnessRow]
    policies: PolicyRows
    tokens: Iterable[TokenRow]
    vault: str
    """The digest of the vault's file, as the database names it."""
    config: str
    """The digest of the configuration, as the database names it."""
    labels: Iterable[Label]
    processes: Iterable[ProcessRow]
    sessions: Iterable[SessionRow]
    segments: Iterable[SegmentRow] = ()


class Standings:
    def __init__(self) -> None:
        self._skills = SkillStanding()
        self._witnesses = WitnessStanding()
        self._policies = PolicyStanding()
        self._tokens = TokenStanding()
        self._vault = VaultStanding()
        self._config = ConfigStanding()
        self._labels = LabelStanding()
        self._processes = ProcessStanding()
        self._sessions = SessionStanding()
        self._segments = SegmentStanding()

    def read(self, view: EntryView) -> None:
        """An act."""
        self._skills.read(view)
        self._witnesses.read(view)
        self._policies.read(view)
        self._tokens.read(view)
        self._vault.read(view)
        self._config.read(view)
        self._labels.read(view)
        self._processes.read(view)
        self._sessions.read(view)
        self._segments.read(view)

    def check(self, rows: StandingRows, *, from_index: int, is_sound: Callable[[], bool]) -> Iterator[str]:
        """`from_index`: entries before it may have been removed by retention. `is_sound`: nothing was found so far."""
        yield from self._skills.check(rows.skills, from_index=from_index)
        yield from self._witnesses.check(rows.witnesses)
        yield from self._policies.check(rows.policies)
        yield from self._tokens.check(rows.tokens)
        yield from self._vault.check(rows.vault)
        yield from self._config.check(rows.config)
        yield from self._labels.check(rows.labels)
        yield from self._processes.check(rows.processes, from_index=from_index)
        yield from self._sessions.check(rows.sessions)
        yield from self._segments.check(rows.segments, is_sound=is_sound)
