"""Witnesses refuse rollbacks and forks, and a journal that is not what they saw does not start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from palyra.errors import StateError, TrustError
from palyra.journal.checkpoint import parse_checkpoint, sign_checkpoint
from palyra.journal.lookup import TREE_SIZE
from palyra.journal.witness import (
    Refusal,
    add_checkpoint,
    cosign,
    open_cosignature,
)
from palyra.signing import NoteSigner, SigningKey
from palyra.state.person import owner_principal
from palyra.state.rotation import rotate_key
from palyra.state.witness import add_witness, anchors, check_anchors, push_heads
from palyra.state.writer import Writer
from palyra.wiring.anchors import anchor
from tests.journaling import NOW, audit_home, many_acts, open_store
from tests.unit.journal.evidence import make_evidence


def witnessed(home: Path, place: Path, *, entries: int = 5) -> Writer:
    writer, _ = open_store(home)
    many_acts(writer, entries)
    shown = add_witness(writer, "w", place, actor="user:operator", at_unix_ms=NOW)
    assert (shown.refusal, shown.size) == (None, entries + 1)
    return writer


@pytest.fixture(params=["file", "folder", "home"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "place"
    if request.param == "folder":
        path.mkdir()
    elif request.param == "home":
        open_store(path)[0].close()
    return path


def seen(writer: Writer) -> int | None:
    (one,) = anchors(writer.rows, writer.home.origin)
    return None if one.head is None else one.head.size


def test_a_witness_follows_a_journal_that_grows(home: Path, place: Path) -> None:
    writer = witnessed(home, place)
    for count in (1, 250, 300):
        many_acts(writer, count)
        assert [shown.refusal for shown in push_heads(writer, at_unix_ms=NOW)] == [None]
        assert seen(writer) == writer.rows(TREE_SIZE)[0][0]
    assert [shown.refusal for shown in push_heads(writer, at_unix_ms=NOW)] == [None]  # the same head again
    anchor(writer, thorough=True)
    heads = tuple(one.head.note for one in anchors(writer.rows, writer.home.origin) if one.head is not None)
    report = audit_home(writer.home, known=heads)
    assert (report.findings, report.anchored) == ((), report.entries)
    writer.close()


def test_an_old_backup_put_back_does_not_start_and_is_refused_by_the_witness(
    home: Path, place: Path, tmp_path: Path
) -> None:
    writer = witnessed(home, place)
    writer.close()
    shutil.copytree(home, tmp_path / "backup")
    writer, _ = open_store(home)
    many_acts(writer, 9)
    push_heads(writer, at_unix_ms=NOW)
    writer.close()
    old, _ = open_store(tmp_path / "backup")
    for thorough in (False, True):
        with pytest.raises(StateError, match="it was set back"):
            anchor(old, thorough=thorough)
    assert [shown.refusal.split(":")[0] for shown in push_heads(old, at_unix_ms=NOW) if shown.refusal] == ["ROLLBACK"]
    many_acts(old, 30, "other")  # it goes on, and is longer now: another history
    with pytest.raises(StateError, match="another one than the witness"):
        anchor(old, thorough=True)
    with pytest.raises(StateError, match="another one than the witness"):
        anchor(old, thorough=False)
    assert [shown.refusal.split(":")[0] for shown in push_heads(old, at_unix_ms=NOW) if shown.refusal] == ["FORK"]
    assert seen(old) == 15
    old.close()


def test_a_full_rewrite_by_the_key_holder_is_found_against_a_witness(home: Path, tmp_path: Path) -> None:
    """The key signs anything; only who saw the head before can tell."""
    writer = witnessed(home, tmp_path / "heads.jsonl")
    key = writer.home.key
    note = parse_checkpoint((tmp_path / "heads.jsonl").read_text().split('"checkpoint":"')[1].split('"')[0].encode()
                            .decode("unicode_escape").encode("latin1").decode())  # fmt: skip
    rewritten = NoteSigner(writer.home.origin, key)
    forged = sign_checkpoint(rewritten, note.size, bytes(32)).note
    with pytest.raises(Refusal, match="FORK"):
        add_checkpoint(note, forged, keys=writer.home.keys, proof=())
    with pytest.raises(Refusal, match="FORK"):
        add_checkpoint(note, sign_checkpoint(rewritten, 50, bytes(32)).note, keys=writer.home.keys, proof=[bytes(32)])
    writer.close()


def test_another_key_under_the_same_origin_is_refused(home: Path, tmp_path: Path) -> None:
    writer = witnessed(home, tmp_path / "heads.jsonl")
    stranger = NoteSigner(writer.home.origin, SigningKey.generate())
    with pytest.raises(Refusal, match="UNSIGNED"):
        add_checkpoint(None, sign_checkpoint(stranger, 9, bytes(32)).note, keys=writer.home.keys, proof=())
    writer.close()


def test_a_witness_follows_the_log_to_its_next_key(home: Path, place: Path) -> None:
    writer = witnessed(home, place)
    for _ in range(2):
        rotate_key(writer, actor="user:operator", at_unix_ms=NOW)
        many_acts(writer, 2)
        assert [shown.refusal for shown in push_heads(writer, at_unix_ms=NOW)] == [None]
    anchor(writer, thorough=False)
    writer.close()


def test_a_place_that_cannot_be_reached_is_said_and_stops_nobody(home: Path, tmp_path: Path) -> None:
    writer = witnessed(home, tmp_path / "heads.jsonl")
    (tmp_path / "heads.jsonl").write_bytes(b"{not json}\n")
    (one,) = anchors(writer.rows, writer.home.origin)
    assert one.problem is not None
    anchor(writer, thorough=True)
    assert "UNREACHABLE" in str(push_heads(writer, at_unix_ms=NOW)[0].refusal)
    (tmp_path / "heads.jsonl").unlink()
    assert [found.problem for found in anchors(writer.rows, writer.home.origin)] == ["It holds no head."]
    writer.close()


def test_the_other_homes_journal_holds_the_head_and_its_key_cosigns(home: Path, tmp_path: Path) -> None:
    open_store(tmp_path / "twin")[0].close()
    writer = witnessed(home, tmp_path / "twin")
    twin, store = open_store(tmp_path / "twin")
    (entry,) = store.tail(10)
    assert b'"head.witnessed"' in entry.body
    assert f'"actor":"{owner_principal()}"'.encode() in entry.body
    assert audit_home(twin.home).findings == ()
    (note,) = writer.rows("SELECT note FROM witnesses")[0]
    assert open_cosignature(note, twin.home.origin, twin.home.key.public) == NOW // 1000
    assert writer.home.keys.open(note).size == 6
    with pytest.raises(TrustError):
        open_cosignature(note.replace("\n6\n", "\n7\n"), twin.home.origin, twin.home.key.public)
    twin.close()
    writer.close()


def test_a_cosignature_tells_when_and_by_whom() -> None:
    key, other = SigningKey.from_seed(bytes(range(32))), SigningKey.from_seed(bytes(32))
    note = "log\n1\nroot\n\n— log AAAA\n"
    note += cosign("witness.example/one", key, note, at_unix_s=7)
    assert open_cosignature(note, "witness.example/one", key.public) == 7
    for name, public in (("witness.example/two", key.public), ("witness.example/one", other.public)):
        with pytest.raises(TrustError):
            open_cosignature(note, name, public)


def test_no_witnesses_cost_a_look_up_and_nothing_else(home: Path) -> None:
    evidence = make_evidence(home)
    anchor(evidence.writer, thorough=True)
    assert push_heads(evidence.writer, at_unix_ms=NOW) == []
    check_anchors(evidence.writer, (), thorough=True)
    evidence.writer.close()
