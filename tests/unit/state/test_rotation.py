"""Changes of keys: both sign the handover, and a retired key, stolen, signs nothing that is believed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from palyra.errors import StateError, TrustError
from palyra.journal.checkpoint import parse_checkpoint, sign_checkpoint
from palyra.journal.export import check_lines, export_lines
from palyra.journal.keys import Keys, follow
from palyra.journal.merkle import Frontier
from palyra.journal.proof import check_proof, make_proof
from palyra.signing import NoteSigner, SigningKey
from palyra.state import db, identity, rotation
from palyra.state.db import Home, read_home
from palyra.state.keyfile import create_key, read_key
from palyra.state.rotation import rotate_key
from palyra.state.writer import Writer
from tests.journaling import NOW, audit_home, many_acts, open_store
from tests.promises import promise
from tests.stores import WHERE, on_sqlite, open_writer, tampering
from tests.unit.journal.evidence import Evidence, make_evidence


def rotate(writer: Writer) -> None:
    rotate_key(writer, actor="user:operator", at_unix_ms=NOW)


@pytest.fixture
def rotated(home: Path):
    """Two handovers, with entries before, between and after."""
    evidence = make_evidence(home)
    old = evidence.writer.home.key
    rotate(evidence.writer)
    many_acts(evidence.writer, 3)
    rotate(evidence.writer)
    many_acts(evidence.writer, 2)
    yield evidence, old
    evidence.writer.close()


def test_the_journal_goes_on_under_a_new_key_and_verifies(rotated: tuple[Evidence, SigningKey], home: Path) -> None:
    evidence, old = rotated
    keys = evidence.keys
    assert [handover.index for handover in keys.handovers] == [16, 20]
    assert keys.newest.key != old.public == keys.handovers[0].old.key
    report = audit_home(evidence.writer.home, every=True)
    assert (report.findings, report.entries) == ((), 23)
    evidence.writer.close()
    writer, _ = open_store(home)
    assert (writer.home.keys, writer.home.key.public) == (keys, keys.newest.key)
    assert WHERE != "sqlite" or read_home(home).holds_key
    many_acts(writer, 1)
    assert audit_home(writer.home, every=True).findings == ()
    writer.close()


def test_evidence_holds_for_whoever_kept_any_of_the_keys(rotated: tuple[Evidence, SigningKey]) -> None:
    evidence, _ = rotated
    held = (evidence.keys.handovers[0].old, evidence.keys.handovers[1].old, evidence.keys.newest)
    links = evidence.tree.links(evidence.keys)
    entries = evidence.lookup.by_call(evidence.calls[0])
    proof = make_proof(evidence.calls[0], entries, evidence.head, tree=evidence.tree, keys=evidence.keys)
    lines = list(export_lines(evidence.bodies(), evidence.head, begin=Frontier(), links=links))
    for key in held:
        assert follow(key, links).newest == evidence.keys.newest
        known = [evidence.tree.note(size) for size in (16, 17, 20, 23)]
        report = check_lines(orjson.loads(lines[0]), iter(lines[1:]), key, known)
        assert (report.findings, report.anchored) == ((), 23)
        assert check_proof(orjson.loads(orjson.dumps(proof)), key) == ()  # its receipt is by the first key


def test_a_stolen_retired_key_makes_no_proof_for_who_holds_a_later_one(rotated: tuple[Evidence, SigningKey]) -> None:
    """Links that led to the key that is held open a receipt's head, and nothing that is believed by itself."""
    evidence, stolen = rotated
    entries = evidence.lookup.by_call(evidence.calls[0])
    proof = make_proof(evidence.calls[0], entries, evidence.head, tree=evidence.tree, keys=evidence.keys)
    signer, old = NoteSigner(evidence.writer.home.origin, stolen), evidence.tree.note(entries[-1].index + 1)
    size = parse_checkpoint(old).size
    other_root = {**proof, "receipt": {**proof["receipt"], "checkpoint": sign_checkpoint(signer, size, bytes(32)).note}}
    set_back = {**proof, "checkpoint": old, "receipt": {"checkpoint": old, "consistency": []}}
    for key in (evidence.keys.handovers[1].old, evidence.keys.newest):
        assert check_proof(proof, key) == ()
        for forged in (other_root, set_back):
            assert [finding.code for finding in check_proof(forged, key)] == ["PROOF"]


@promise("journal.retired-key")
def test_a_stolen_retired_key_signs_no_later_head(rotated: tuple[Evidence, SigningKey]) -> None:
    evidence, old = rotated
    thief = NoteSigner(evidence.writer.home.origin, old)
    for size in (17, 18, 23, 40):
        with pytest.raises(TrustError):
            evidence.keys.open(sign_checkpoint(thief, size, bytes(32)).note)
    report = audit_home(evidence.writer.home, known=(sign_checkpoint(thief, 30, bytes(32)).note,))
    assert [finding.code for finding in report.findings] == ["KNOWN"]
    # One for its own time is believed to be signed, and then found to be another history.
    report = audit_home(evidence.writer.home, known=(sign_checkpoint(thief, 10, bytes(32)).note,))
    assert [finding.code for finding in report.findings] == ["FORK"]


def test_a_thief_cannot_hand_the_journal_over_alone(home: Path) -> None:
    evidence = make_evidence(home)
    old, stranger = evidence.writer.home.key, SigningKey.generate()
    origin = evidence.writer.home.origin
    rotate(evidence.writer)
    (link,) = evidence.tree.links(evidence.keys)
    text = str(link["checkpoint"])
    one = "\n".join(text.split("\n")[:5]) + "\n"  # only the old key's signature
    for note in (one, sign_checkpoint(NoteSigner(origin, stranger), 17, bytes(32)).note):
        with pytest.raises(TrustError):
            follow(evidence.keys.handovers[0].old, [link | {"checkpoint": note}])
    with pytest.raises(TrustError):
        follow(evidence.keys.handovers[0].old, [link | {"entry": str(link["entry"]).replace("user:", "usar:")}])
    assert old.public != stranger.public
    evidence.writer.close()


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM keys WHERE entry = 16",
        "UPDATE keys SET entry = 15 WHERE entry = 16",
        "INSERT INTO keys SELECT 3, vkey FROM keys WHERE entry = 16",
    ],
)
def test_a_table_of_keys_that_was_edited_is_found_or_refused(rotated: tuple[Evidence, SigningKey], sql: str) -> None:
    evidence, _ = rotated
    root = evidence.writer.home.root
    evidence.writer.close()
    with tampering(evidence.writer.home) as other:
        other.execute(sql)
    try:
        opened = open_writer(root)
    except StateError as error:
        assert "keys" in error.detail or "key" in error.detail  # noqa: PT017
        return
    opened.close()
    assert {"KEYS", "CHECKPOINT"} & {finding.code for finding in audit_home(opened.home, every=True).findings}


def test_the_head_that_both_keys_signed_cannot_be_taken_away_unnoticed(rotated: tuple[Evidence, SigningKey]) -> None:
    """Without it no proof and no export holds any more, for anybody, and the audit had nothing to say."""
    evidence, _ = rotated
    handover = evidence.keys.handovers[0].index
    with tampering(evidence.writer.home) as other:
        other.execute("DELETE FROM checkpoints WHERE size = ?", (handover + 1,))
    found = audit_home(evidence.writer.home).findings
    assert [(one.code, one.index) for one in found] == [("CHECKPOINT", handover)]


def test_a_crash_between_the_commit_and_the_renaming_is_mended(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, _ = open_store(home)
    many_acts(writer, 2)

    def crash(*_: object) -> None:
        raise OSError("the power went")

    monkeypatch.setattr(rotation.os, "replace", crash)
    with pytest.raises(OSError, match="the power went"):
        rotate(writer)
    writer.close()
    monkeypatch.undo()
    assert (home / "state" / "installation.key.next").exists()
    assert WHERE != "sqlite" or read_home(home).keys.handovers[0].index == 2
    writer, _ = open_store(home)
    assert not (home / "state" / "installation.key.next").exists()
    many_acts(writer, 1)
    assert audit_home(writer.home, every=True).findings == ()
    writer.close()


def test_the_only_copy_of_a_new_key_is_not_overwritten_by_another_rotation(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that had opened the home before, and waited: the journal was left with a key that nobody has."""
    writer, _ = open_store(home)
    many_acts(writer, 2)
    waiting, _ = open_store(home)
    with monkeypatch.context() as patch:
        patch.setattr(rotation.os, "replace", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            rotate(writer)
    writer.close()
    with pytest.raises(StateError, match="gave the journal a new key"):
        rotate(waiting)
    waiting.close()
    writer, _ = open_store(home)
    many_acts(writer, 1)
    assert audit_home(writer.home, every=True).findings == ()
    writer.close()


def test_a_file_left_by_a_rotation_that_never_was_changes_nothing(home: Path) -> None:
    writer, _ = open_store(home)
    create_key(home / "state" / "installation.key.next")
    writer.close()
    writer, _ = open_store(home)
    assert writer.home.keys == Keys(writer.home.verifier)
    rotate(writer)
    assert len(writer.home.keys.handovers) == 1
    writer.close()


def test_another_process_that_still_holds_the_old_key_is_stopped(home: Path) -> None:
    writer, _ = open_store(home)
    many_acts(writer, 1)
    other, _ = open_store(home)
    rotate(writer)
    with pytest.raises(StateError, match="gave the journal a new key"):
        many_acts(other, 1)
    many_acts(writer, 1)
    assert audit_home(writer.home, every=True).findings == ()
    writer.close()
    other.close()


@on_sqlite
def test_a_locked_key_opens_with_its_passphrase_only(home: Path, tmp_path: Path) -> None:
    writer, _ = open_store(home)
    rotate_key(writer, actor="user:operator", at_unix_ms=NOW, passphrase=b"correct horse")
    writer.close()
    path = home / "state" / "installation.key"
    assert path.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert os.stat(path).st_mode & 0o777 == 0o600
    with pytest.raises(StateError, match="locked by a passphrase"):
        Writer.open(home)
    with pytest.raises(StateError, match="does not open"):
        Writer.open(home, passphrase=b"wrong")
    opened = Writer.open(home, passphrase=b"correct horse")
    assert opened.home.key.public == read_key(path, passphrase=b"correct horse").public
    many_acts(opened, 1)
    opened.close()
    assert not read_home(home).holds_key  # an audit needs no passphrase
    assert audit_home(read_home(home), every=True).findings == ()  # type: ignore[arg-type]


# ── what happens between its steps ───────────────────────────────────────────


@on_sqlite
def test_two_rotations_at_once_leave_the_journal_a_key(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one's new file took the place of the first one's, which the journal had been handed over to: nobody
    had its key any more."""
    first, second = Writer.open(home), Writer.open(home)
    made, is_over, refused = threading.Event(), threading.Event(), []

    def second_one() -> None:
        try:
            rotate(second)
        except StateError as error:
            refused.append(error.detail)

    thread = threading.Thread(target=second_one)

    def create(path: Path, **given: bytes | None) -> SigningKey:
        key = create_key(path, **given)
        if threading.current_thread() is thread:
            made.set()
            is_over.wait(30)
        else:
            thread.start()
            made.wait(0.5)
        return key

    monkeypatch.setattr(rotation, "create_key", create)
    rotate(first)
    is_over.set()
    thread.join()
    first.close()
    second.close()
    assert refused == ["Another process gave the journal a new key."]
    writer = Writer.open(home)
    assert len(writer.home.keys.handovers) == 1
    many_acts(writer, 1)
    assert audit_home(writer.home, every=True).findings == ()
    writer.close()


@on_sqlite
@pytest.mark.parametrize("at", ["the whole rotation", "its last step"])
@pytest.mark.parametrize("by", ["a process", "a reader"])
def test_a_rotation_in_the_middle_of_a_start_is_no_other_key(
    home: Path, at: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before it and what was read behind it did not fit together: the person was told to restore a key
    from a backup, or to move the state away."""
    writer = Writer.open(home)
    if at == "its last step":
        with monkeypatch.context() as patch:
            patch.setattr(rotation.os, "replace", lambda *_: None)
            rotate(writer)
        module = identity if by == "a process" else db
        come_between(monkeypatch, module, "read_key", lambda: put_in_place(home))
    else:
        come_between(monkeypatch, identity, "keys_of", lambda: rotate(writer))
    opened = Writer.open(home) if by == "a process" else None
    found = read_home(home) if opened is None else opened.home
    assert len(found.keys.handovers) == 1
    assert isinstance(found, Home) or found.holds_key
    if opened is not None:
        opened.close()
    writer.close()


def come_between(monkeypatch: pytest.MonkeyPatch, module: object, name: str, act: Callable[[], object]) -> None:
    """Once, behind the first reading."""
    real, left = getattr(module, name), [act]

    def read(*given: object, **more: object) -> object:
        found = real(*given, **more)
        for one in [left.pop()] if left else []:
            one()
        return found

    monkeypatch.setattr(module, name, read)


def put_in_place(home: Path) -> None:
    (home / "state" / "installation.key.next").rename(home / "state" / "installation.key")


@on_sqlite
def test_a_rotation_is_done_though_a_start_put_its_key_into_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer.open(home)
    put = os.replace

    def behind_a_start(*given: Path) -> None:
        put_in_place(home)
        put(*given)

    monkeypatch.setattr(rotation.os, "replace", behind_a_start)
    rotate(writer)
    many_acts(writer, 1)
    assert audit_home(writer.home, every=True).findings == ()
    writer.close()


def test_a_key_is_changed_no_more_often_than_evidence_can_show(
    rotated: tuple[Evidence, SigningKey], monkeypatch
) -> None:
    """Proofs and exports of such a journal were refused by whoever verified them, and nothing could be done then."""
    evidence, _ = rotated
    assert rotation.changes_left(evidence.keys) == 998
    monkeypatch.setattr(rotation, "MAX_HANDOVERS", 3)
    rotate(evidence.writer)
    before = (evidence.writer.home.key, sorted(path.name for path in evidence.writer.home.state.iterdir()))
    with pytest.raises(StateError, match="was changed 3 times"):
        rotate(evidence.writer)
    assert (evidence.writer.home.key, sorted(path.name for path in evidence.writer.home.state.iterdir())) == before
    assert audit_home(evidence.writer.home, every=True).findings == ()
