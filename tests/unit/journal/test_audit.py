"""Every way to change a journal, and the finding that names it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from palyra.journal.audit import MAX_FINDINGS, Audit, Head, Report, run_rows
from palyra.journal.chain import entry_bytes
from palyra.journal.checkpoint import sign_checkpoint
from palyra.journal.merkle import Frontier, leaf_hash, root_of
from palyra.model.record import Entry, EntryDraft, Owner
from palyra.signing import NoteSigner, SigningKey
from tests.journaling import NOW, OWNER, act, intent, result, ulid
from tests.promises import promise

KEY = SigningKey.from_seed(bytes(range(32)))
SIGNER = NoteSigner("palyra.local/test", KEY)
RUN = ulid(100)


@dataclass
class Log:
    """A journal in memory that anyone may change."""

    entries: list[Entry] = field(default_factory=list)
    checkpoints: list[tuple[int, str]] = field(default_factory=list)
    head: Head = field(default_factory=lambda: Head(size=0, frontier=b""))

    def commit(self, *drafts: EntryDraft, signer: NoteSigner = SIGNER) -> None:
        frontier = Frontier.parse(self.head.size, self.head.frontier)
        for draft in drafts:
            earlier = sum(b'"run_id":"' + RUN.encode() in entry.body for entry in self.entries)
            sequence = earlier if draft.run_id == RUN else None
            body = entry_bytes(draft, index=frontier.size, sequence=sequence, at_unix_ms=NOW)
            self.entries.append(Entry(frontier.size, leaf_hash(body), body))
            frontier.append(leaf_hash(body))
        checkpoint = sign_checkpoint(signer, frontier.size, frontier.root())
        self.checkpoints.append((checkpoint.size, checkpoint.note))
        self.head = Head(size=frontier.size, frontier=frontier.pack())

    def rebuild(self, *, signer: NoteSigner | None = None) -> None:
        """What a clever attacker does after an edit: repair every hash, and sign if there is a key."""
        self.entries = [Entry(at, leaf_hash(entry.body), entry.body) for at, entry in enumerate(self.entries)]
        frontier = Frontier()
        checkpoints = dict(self.checkpoints)
        for entry in self.entries:
            frontier.append(entry.leaf_hash)
            if signer is not None and frontier.size in checkpoints:
                checkpoints[frontier.size] = sign_checkpoint(signer, frontier.size, frontier.root()).note
        self.checkpoints = [item for item in sorted(checkpoints.items()) if item[0] <= frontier.size]
        self.head = Head(size=frontier.size, frontier=frontier.pack())

    def rows(self) -> list[tuple[int, bytes, bytes]]:
        return [(entry.index, entry.leaf_hash, entry.body) for entry in self.entries]

    def audit(self, *, known: tuple[str, ...] = (), every: bool = False, alive: bool = False) -> Report:
        audit = Audit(verifier=SIGNER.verifier, is_alive=lambda _: alive, known=known, every_signature=every)
        return run_rows(audit, self.rows(), self.checkpoints, head=self.head)


def sample() -> Log:
    """Ten entries: four calls with intent and result, two acts; each committed alone."""
    log = Log()
    log.commit(act("home.created"))
    for number in range(4):
        log.commit(intent(ulid(number), RUN))
        log.commit(result(ulid(number), RUN))
    log.commit(act("policy.swapped"))
    return log


def found(report: Report) -> list[tuple[str, int | None]]:
    return [(finding.code, finding.index) for finding in report.findings]


def swap_bodies(log: Log, left: int, right: int) -> None:
    a, b = log.entries[left], log.entries[right]
    log.entries[left], log.entries[right] = Entry(left, b.leaf_hash, b.body), Entry(right, a.leaf_hash, a.body)


def edit(log: Log, index: int, old: bytes = b"python", new: bytes = b"pithon") -> None:
    entry = log.entries[index]
    assert old in entry.body
    log.entries[index] = replace(entry, body=entry.body.replace(old, new))


def edit_and_repair(log: Log, index: int) -> None:
    edit(log, index)
    log.entries[index] = replace(log.entries[index], leaf_hash=leaf_hash(log.entries[index].body))


def test_an_untouched_journal_has_no_findings() -> None:
    assert sample().audit(every=True) == Report(findings=(), entries=10, checkpoints=10, open_calls=0, anchored=0)
    assert Log().audit() == Report(findings=(), entries=0, checkpoints=0, open_calls=0, anchored=0)


def test_a_result_that_contradicts_its_intent_is_named() -> None:
    for name, said in (("decision", {"effect": "deny"}), ("executor", "container"), ("principal", "agent:thief")):
        log, end = Log(), result(ulid(1), RUN)
        log.commit(intent(ulid(1), RUN))
        log.commit(replace(end, predicate={**end.predicate, name: said}))
        assert found(log.audit()) == [("CONTRADICTS", 1)]


# ── rows ─────────────────────────────────────────────────────────────────────


@promise("journal.edited-entry")
@pytest.mark.parametrize("index", range(1, 9))
def test_an_edited_entry_is_named(index: int) -> None:
    log = sample()
    edit(log, index)
    assert found(log.audit()) == [("EDITED", index)]


@pytest.mark.parametrize("odd", [b"{}", b"[]", b"[{}]", b"null", b"7", b"true"])
def test_an_act_whose_name_is_no_name_is_named_and_ends_no_audit(odd: bytes) -> None:
    """One such edit ended `palyra journal verify`, and `palyra verify` of an export, with an error of their own."""
    log = sample()
    edit(log, 9, b'"act":"policy.swapped"', b'"act":' + odd)
    edit(log, 3)
    assert found(log.audit()) == [("EDITED", 3), ("EDITED", 9)]


def test_an_act_whose_subject_is_no_name_is_no_entry() -> None:
    log = sample()
    said = b'"subject":[{"digest":{"sha256":"x"},"name":5}]'
    body = re.sub(rb'"subject":\[.*?\]', said, log.entries[9].body)
    body = body.replace(b'"details":{"why":"test"}', b'"details":{"why":"test"},"execution_sha256":"x"')
    log.entries[9] = replace(log.entries[9], body=body)
    assert found(log.audit()) == [("EDITED", 9), ("FORM", 9)]


@promise("journal.edited-entry")
@pytest.mark.parametrize("index", range(1, 9))
def test_an_edited_entry_with_its_hash_repaired_is_named(index: int) -> None:
    log = sample()
    edit_and_repair(log, index)
    assert found(log.audit())[0] == ("TREE", index)


@promise("journal.edited-entry")
@pytest.mark.parametrize("index", range(9))
def test_a_deleted_entry_is_named(index: int) -> None:
    log = sample()
    del log.entries[index]
    assert ("MISSING", index) in found(log.audit())


def test_the_last_entry_deleted_is_named() -> None:
    log = sample()
    del log.entries[9]
    assert found(log.audit()) == [("TRUNCATED", 9), ("HEAD", None)]


def test_several_deleted_entries_are_one_finding() -> None:
    log = sample()
    del log.entries[3:6]
    assert ("MISSING", 3) in found(log.audit())
    assert "Entries 3 to 5 are missing." in [finding.detail for finding in log.audit().findings]


@pytest.mark.parametrize("index", range(10))
def test_a_changed_leaf_hash_is_named(index: int) -> None:
    log = sample()
    log.entries[index] = replace(log.entries[index], leaf_hash=bytes(32))
    assert found(log.audit())[:2] == [("EDITED", index), ("TREE", index)]


def test_a_leaf_hash_of_another_length_is_named() -> None:
    log = sample()
    log.entries[4] = replace(log.entries[4], leaf_hash=b"short")
    assert found(log.audit())[0] == ("EDITED", 4)


@promise("journal.edited-entry")
def test_two_entries_that_changed_places_are_named() -> None:
    log = sample()
    swap_bodies(log, 3, 5)
    assert {("MOVED", 3), ("MOVED", 5), ("TREE", 3)} <= set(found(log.audit()))


@promise("journal.edited-entry")
def test_an_entry_that_was_copied_over_another_is_named() -> None:
    log = sample()
    log.entries[6] = replace(log.entries[4], index=6)
    assert {("MOVED", 6), ("TREE", 6)} <= set(found(log.audit()))


def test_an_entry_that_comes_twice_is_named() -> None:
    log = sample()
    log.entries.insert(5, log.entries[4])
    assert ("ORDER", 4) in found(log.audit())


def test_an_entry_at_the_last_place_there_is_ends_no_audit() -> None:
    log = sample()
    log.entries.append(replace(log.entries[9], index=2**63 - 1))
    assert ("MISSING", 10) in found(log.audit())


@promise("journal.edited-entry")
def test_an_inserted_entry_is_named() -> None:
    log = sample()
    forged = entry_bytes(intent(ulid(50), RUN), index=5, sequence=4, at_unix_ms=NOW)
    log.entries.insert(5, Entry(5, leaf_hash(forged), forged))
    log.rebuild()
    assert {("MOVED", 6), ("TREE", 5), ("SEQUENCE", 6)} <= set(found(log.audit()))


def test_an_entry_appended_without_the_key_is_named() -> None:
    log = sample()
    forged = entry_bytes(act(), index=10, sequence=None, at_unix_ms=NOW)
    log.entries.append(Entry(10, leaf_hash(forged), forged))
    assert found(log.audit()) == [("UNSIGNED", 10), ("HEAD", None)]
    log.rebuild()
    assert found(log.audit()) == [("UNSIGNED", 10)]


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"[" * 100])
def test_bytes_that_are_no_entry_are_named(body: bytes) -> None:
    log = sample()
    log.entries[0] = Entry(0, leaf_hash(body), body)
    assert found(log.audit())[0] == ("FORM", 0)


# ── checkpoints and the head ─────────────────────────────────────────────────


@promise("journal.edited-entry")
def test_a_checkpoint_with_another_root_is_named() -> None:
    log = sample()
    forged = sign_checkpoint(NoteSigner("palyra.local/test", SigningKey.from_seed(bytes(32))), 5, bytes(32))
    log.checkpoints[4] = (5, forged.note)
    assert found(log.audit())[0] == ("TREE", 4)


def test_a_checkpoint_with_a_bad_signature_is_named_when_every_one_is_checked() -> None:
    log = sample()
    other = NoteSigner("palyra.local/test", SigningKey.from_seed(bytes(32)))
    root = root_of(entry.leaf_hash for entry in log.entries[:4])
    log.checkpoints[3] = (4, sign_checkpoint(other, 4, root).note)
    assert found(log.audit()) == []
    assert found(log.audit(every=True)) == [("CHECKPOINT", 3)]


@pytest.mark.parametrize(
    "change",
    [
        lambda note: note.replace("\n10\n", "\n11\n"),
        lambda note: note.replace("palyra.local/test\n", "palyra.local/tost\n"),
        lambda note: note[:-6] + "AAAA=\n",
        lambda note: note.replace("\n10\n", "\n010\n"),
        lambda note: "",
    ],
)
def test_the_newest_checkpoint_changed_is_named(change: Callable[[str], str]) -> None:
    log = sample()
    log.checkpoints[-1] = (10, change(log.checkpoints[-1][1]))
    assert ("CHECKPOINT", 9) in found(log.audit())


def test_the_newest_checkpoint_removed_leaves_an_unsigned_tail() -> None:
    log = sample()
    del log.checkpoints[-1]
    assert found(log.audit()) == [("UNSIGNED", 9)]


def test_a_head_that_was_changed_is_named() -> None:
    for head in (Head(size=9, frontier=b""), Head(size=10, frontier=bytes(64)), Head(size=-1, frontier=b"")):
        log = sample()
        log.head = head
        assert found(log.audit()) == [("HEAD", None)]


@promise("journal.edited-entry")
def test_a_journal_signed_by_another_key_is_named() -> None:
    log = sample()
    edit(log, 1)
    log.rebuild(signer=NoteSigner("palyra.local/test", SigningKey.from_seed(bytes(32))))
    assert found(log.audit()) == [("CHECKPOINT", 9)]


# ── with outside evidence ────────────────────────────────────────────────────


@promise("journal.truncated-tail")
def test_a_tail_cut_with_its_checkpoints_is_found_by_a_receipt() -> None:
    log = sample()
    receipt = log.checkpoints[-1][1]
    del log.entries[7:], log.checkpoints[7:]
    log.rebuild()
    assert found(log.audit(alive=True)) == []
    assert found(log.audit(alive=True, known=(receipt,))) == [("TRUNCATED", 7)]


def test_an_old_copy_that_went_on_is_a_fork_to_whoever_holds_a_receipt() -> None:
    log = sample()
    receipt = log.checkpoints[-1][1]
    del log.entries[7:], log.checkpoints[7:]
    log.rebuild()
    for number in range(60, 64):
        log.commit(act(f"other.{number}"))
    assert found(log.audit(alive=True)) == []
    assert found(log.audit(alive=True, known=(receipt,))) == [("FORK", 9)]


@promise("journal.stolen-key")
def test_a_rewrite_by_the_holder_of_the_key_is_found_by_a_receipt() -> None:
    log = sample()
    receipt = log.checkpoints[4][1]
    edit(log, 2)
    log.rebuild(signer=SIGNER)
    assert found(log.audit(every=True)) == []
    assert found(log.audit(known=(receipt,))) == [("FORK", 4)]


def test_a_known_checkpoint_anchors_what_comes_before_it() -> None:
    log = sample()
    assert log.audit(known=(log.checkpoints[2][1], log.checkpoints[6][1])).anchored == 7


def test_a_known_checkpoint_that_is_no_checkpoint_is_named() -> None:
    assert found(sample().audit(known=("nonsense",))) == [("KNOWN", None)]


def test_of_known_checkpoints_that_nobody_signed_no_more_are_opened_than_are_told() -> None:
    """Who can append to a witness filled it with heads, each of which cost a signature: an audit took minutes."""
    opened: list[str] = []

    class Told(str):
        def rpartition(self, sep: str) -> tuple[str, str, str]:
            opened.append(sep)
            return super().rpartition(sep)

    report = sample().audit(known=tuple(Told(f"nonsense {number}") for number in range(5 * MAX_FINDINGS)))
    assert (report.findings[0].code, report.findings[-1].code) == ("KNOWN", "MORE")
    assert len(opened) <= MAX_FINDINGS + 1


# ── calls ────────────────────────────────────────────────────────────────────


def test_a_gap_in_a_run_is_named() -> None:
    log = Log()
    body = entry_bytes(intent(ulid(1), RUN), index=0, sequence=1, at_unix_ms=NOW)
    log.entries.append(Entry(0, leaf_hash(body), body))
    log.rebuild()
    assert ("SEQUENCE", 0) in found(log.audit(alive=True))


def test_a_result_without_an_intent_is_named() -> None:
    log = Log()
    log.commit(result(ulid(1), RUN))
    assert found(log.audit()) == [("UNASKED", 0)]


def test_a_second_result_is_named() -> None:
    log = sample()
    log.commit(result(ulid(1), RUN))
    assert found(log.audit()) == [("UNASKED", 10)]


def test_a_refusal_is_one_entry() -> None:
    log = Log()
    log.commit(result(ulid(1), RUN, opened=False))
    assert found(log.audit()) == []


@pytest.mark.parametrize("again", [intent(ulid(1), RUN), result(ulid(1), RUN, opened=False)])
def test_a_replayed_call_id_is_named(again: EntryDraft) -> None:
    log = sample()
    log.commit(again)
    assert ("REPLAYED", 10) in found(log.audit())


def test_bytes_that_never_became_a_call_hold_no_id() -> None:
    refusal = result(ulid(1), RUN, opened=False)
    log = Log()
    log.commit(replace(refusal, predicate={**refusal.predicate, "kept": False}))
    log.commit(replace(refusal, predicate={**refusal.predicate, "kept": False}))
    log.commit(intent(ulid(1), RUN), result(ulid(1), RUN))
    assert found(log.audit()) == []


def test_a_call_left_open_is_named_unless_its_owner_lives() -> None:
    log = sample()
    log.commit(intent(ulid(9), RUN))
    asked: list[Owner] = []

    def remember(owner: Owner) -> bool:
        asked.append(owner)
        return True

    audit = Audit(verifier=SIGNER.verifier, is_alive=remember)
    report = run_rows(audit, log.rows(), log.checkpoints, head=log.head)
    assert (found(report), report.open_calls, asked) == ([], 1, [OWNER])
    assert found(log.audit(alive=False)) == [("DANGLING", 10)]


@pytest.mark.parametrize("owner", [None, [], {}, {"boot_id": "b", "pid": "1", "start_ticks": 1}])
def test_an_owner_that_is_none_does_not_live(owner: object) -> None:
    draft = intent(ulid(9), RUN)
    log = Log()
    log.commit(replace(draft, predicate={**draft.predicate, "owner": owner}))
    assert found(log.audit(alive=True)) == [("DANGLING", 0)]


def test_ids_of_a_wrong_kind_do_not_crash_the_audit() -> None:
    draft = intent(ulid(9), RUN)
    log = Log()
    log.commit(replace(draft, predicate={**draft.predicate, "call_id": [], "run_id": {}}))
    assert found(log.audit(alive=True)) == []


def test_clocks_that_go_back_are_no_finding() -> None:
    log = Log()
    for at in (5, 3, 4):
        body = entry_bytes(act(), index=len(log.entries), sequence=None, at_unix_ms=at)
        log.entries.append(Entry(len(log.entries), leaf_hash(body), body))
        log.checkpoints.append((len(log.entries), ""))
    log.rebuild(signer=SIGNER)
    assert found(log.audit(every=True)) == []


def test_a_group_commit_narrows_an_edit_down_to_its_group() -> None:
    log = Log()
    log.commit(act("one"))
    log.commit(act("two"), act("three"), act("four"))
    edit(log, 2, b"three", b"THREE")
    log.entries[2] = replace(log.entries[2], leaf_hash=leaf_hash(log.entries[2].body))
    assert next(finding.detail for finding in log.audit().findings).startswith("Entries 1 to 3 are not what")


def test_a_thousand_findings_are_enough() -> None:
    log = Log(entries=[Entry(at, bytes(32), b"{}") for at in range(2000)])
    report = log.audit()
    assert (len(report.findings), report.findings[-1].code) == (MAX_FINDINGS + 1, "MORE")
