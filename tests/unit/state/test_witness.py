"""Witnesses refuse rollbacks and forks, and a journal that is not what they saw does not start."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from palyra.errors import StateError, TrustError
from palyra.journal.checkpoint import parse_checkpoint, sign_checkpoint
from palyra.journal.lookup import TREE_SIZE
from palyra.journal.merkle import leaf_hash
from palyra.journal.witness import (
    Refusal,
    add_checkpoint,
    cosign,
    open_cosignature,
)
from palyra.signing import NoteSigner, SigningKey
from palyra.state.anchors import anchors, check_anchors, with_flooded
from palyra.state.person import owner_principal
from palyra.state.rotation import rotate_key
from palyra.state.witness import FilePlace, add_witness, push_heads
from palyra.state.writer import Writer
from palyra.wiring.anchors import anchor, show_head
from tests.journaling import NOW, audit_home, many_acts, open_store
from tests.promises import promise
from tests.stores import on_sqlite, tampering
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


def test_a_place_that_cannot_be_written_is_not_added_as_a_witness(home: Path, tmp_path: Path) -> None:
    """It would stay for ever, and every checkpoint would end with an error."""
    writer, _ = open_store(home)
    many_acts(writer, 3)
    closed = tmp_path / "closed"
    closed.touch()
    places = {tmp_path / "typo" / "heads.jsonl": "No such file or directory"}
    if os.geteuid() != 0:
        closed.chmod(0o400)
        places[closed] = "Permission denied"
    for path, why in places.items():
        with pytest.raises(StateError, match=why) as caught:
            add_witness(writer, "w", path, actor="user:operator", at_unix_ms=NOW)
        assert str(caught.value.hint).startswith("Nothing was added")
    assert ([*anchors(writer.rows, writer.home.origin)], writer.rows(TREE_SIZE)[0][0]) == ([], 3)
    writer.close()


@pytest.mark.parametrize("place", [".", "state", "heads.jsonl", "linked/heads.jsonl"])
def test_a_home_is_no_witness_of_its_own(home: Path, tmp_path: Path, place: str) -> None:
    """What it held was told as outside evidence, and went back with the home when an old copy was put back."""
    writer, _ = open_store(home)
    many_acts(writer, 1)
    (tmp_path / "linked").symlink_to(home)
    where = tmp_path / place if place.startswith("linked") else home / place
    with pytest.raises(StateError, match="It lies in the home that it is to be a witness for"):
        add_witness(writer, "self", where, actor="user:operator", at_unix_ms=NOW)
    assert writer.rows("SELECT name FROM witnesses") == []
    writer.close()


def test_a_home_that_was_never_used_is_not_taken_for_a_folder_of_heads(home: Path, tmp_path: Path) -> None:
    writer, _ = open_store(home)
    (tmp_path / "twin").mkdir()
    (tmp_path / "twin" / "palyra.toml").touch()
    with pytest.raises(StateError, match="is a home that has no journal yet"):
        add_witness(writer, "twin", tmp_path / "twin", actor="user:operator", at_unix_ms=NOW)
    writer.close()


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


@promise("journal.truncated-tail")
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
        with pytest.raises(StateError, match="it was rolled back"):
            anchor(old, thorough=thorough)
    assert [shown.refusal.split(":")[0] for shown in push_heads(old, at_unix_ms=NOW) if shown.refusal] == ["ROLLBACK"]
    many_acts(old, 30, "other")  # it goes on, and is longer now: another history
    with pytest.raises(StateError, match="not the journal that the witness"):
        anchor(old, thorough=True)
    with pytest.raises(StateError, match="not the journal that the witness"):
        anchor(old, thorough=False)
    assert [shown.refusal.split(":")[0] for shown in push_heads(old, at_unix_ms=NOW) if shown.refusal] == ["FORK"]
    assert seen(old) == 15
    old.close()


@promise("state.witnessed-rewrite")
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
    assert [found.problem for found in anchors(writer.rows, writer.home.origin)] == ["It contains no head."]
    writer.close()


def set_back(home: Path, place: Path, backup: Path) -> Writer:
    """The home as it was when the witness had seen less."""
    writer = witnessed(home, place)
    writer.close()
    shutil.copytree(home, backup)
    writer, _ = open_store(home)
    many_acts(writer, 9)
    assert [shown.refusal for shown in push_heads(writer, at_unix_ms=NOW)] == [None]
    writer.close()
    return open_store(backup)[0]


@promise("state.silenced-witness")
@pytest.mark.parametrize("what", ["an older head", "no head", "half a line"])
def test_who_can_only_append_to_a_witness_silences_it_by_no_line(home: Path, tmp_path: Path, what: str) -> None:
    """The last line counted: a copy of an older one, or a line that is nothing, and a rollback was gone on with."""
    place = tmp_path / "heads.jsonl"
    old = set_back(home, place, tmp_path / "backup")
    lines = place.read_bytes().splitlines(keepends=True)
    with place.open("ab") as file:
        file.write({"an older head": lines[0], "no head": b"nothing\n", "half a line": lines[0][:40]}[what])
    for thorough in (False, True):
        with pytest.raises(StateError, match="it was rolled back"):
            anchor(old, thorough=thorough)
    assert "ROLLBACK" in str(push_heads(old, at_unix_ms=NOW)[0].refusal)
    known = tuple(head.note for one in anchors(old.rows, old.home.origin) for head in one.heads)
    assert [one.code for one in audit_home(old.home, known=known).findings] == ["TRUNCATED"]
    old.close()
    writer, _ = open_store(home)
    many_acts(writer, 3)
    assert [shown.refusal for shown in push_heads(writer, at_unix_ms=NOW)] == [None]
    assert seen(writer) == 18
    writer.close()


@pytest.mark.parametrize("what", [b"x", b"\n", b"nothing\n", b"{}\n"])
def test_who_can_only_append_to_a_witness_silences_it_by_no_number_of_lines(
    home: Path, tmp_path: Path, what: bytes
) -> None:
    """64 MiB of nothing, and the file was said to be out of reach: a rollback was gone on with, and verified."""
    place = tmp_path / "heads.jsonl"
    old = set_back(home, place, tmp_path / "backup")
    with place.open("ab") as file:
        file.write(what * ((65 << 20) // len(what)))
    with pytest.raises(StateError, match="it was rolled back"):
        anchor(old, thorough=False)
    old.close()
    writer, _ = open_store(home)
    many_acts(writer, 3)
    assert [shown.refusal for shown in push_heads(writer, at_unix_ms=NOW)] == [None]
    assert seen(writer) == 18
    writer.close()


def test_a_witness_that_is_filled_until_nobody_reads_it_is_not_passed_over(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "heads.jsonl"
    old = set_back(home, place, tmp_path / "backup")
    monkeypatch.setattr("palyra.state.witness_lines.MAX_PLACE_BYTES", place.stat().st_size)
    with pytest.raises(StateError, match="it was rolled back"):
        anchor(old, thorough=False)
    with place.open("ab") as file:
        file.write(b"x")
    with pytest.raises(StateError, match="what it has seen is not known"):
        anchor(old, thorough=False)
    found = with_flooded(audit_home(old.home), tuple(anchors(old.rows, old.home.origin)))
    assert [one.code for one in found.findings] == ["KNOWN"]
    old.close()


def test_a_head_is_kept_on_a_line_of_its_own_whatever_somebody_began_meanwhile(home: Path, tmp_path: Path) -> None:
    """Looked at first, and appended to between the look and the line: the head was glued to it, and lost."""
    evidence = make_evidence(home)
    place = FilePlace(tmp_path / "heads.jsonl")
    for end in (b"", b"half", b"half\n"):
        with place.path.open("ab") as file:
            file.write(end)
        place.keep(evidence.head, evidence.keys.newest.vkey, at_unix_ms=NOW)
    assert place.path.read_bytes().count(b"\n{") == 2
    assert len(place.heads(evidence.head.origin).seen) == 3
    evidence.writer.close()


@promise("state.silenced-witness")
def test_a_rewrite_that_is_appended_to_the_witness_itself_is_held_against_its_first_lines(
    home: Path, tmp_path: Path
) -> None:
    """Who has the key and may append needs no leave of the witness: what it was told before stays there."""
    place = tmp_path / "heads.jsonl"
    writer = witnessed(home, place)
    writer.close()
    key = (home / "state" / "installation.key").read_bytes()
    forger, _ = open_store(tmp_path / "forged")
    origin = writer.home.origin
    with tampering(forger.home) as other:
        other.execute("UPDATE meta SET value = ? WHERE name = 'origin'", (origin,))
        other.execute("UPDATE meta SET value = ? WHERE name = 'vkey'", (writer.home.verifier.vkey,))
        other.execute("UPDATE keys SET vkey = ?", (writer.home.verifier.vkey,))
    forger.close()
    (tmp_path / "forged" / "state" / "installation.key").write_bytes(key)
    forger, _ = open_store(tmp_path / "forged")
    many_acts(forger, 20, "another")
    head = forger.home.keys.open(forger.rows("SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1")[0][0])
    FilePlace(place).keep(head, writer.home.verifier.vkey, at_unix_ms=NOW)
    with tampering(forger.home) as other:
        other.execute("INSERT INTO witnesses (name, kind, place) VALUES ('w', 'file', ?)", (str(place),))
    for thorough in (False, True):
        with pytest.raises(StateError, match="not the journal that the witness"):
            anchor(forger, thorough=thorough)
    known = tuple(one.note for found in anchors(forger.rows, origin) for one in found.heads)
    assert "FORK" in [one.code for one in audit_home(forger.home, known=known).findings]
    forger.close()


@promise("state.silenced-witness")
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM witnesses",
        "UPDATE witnesses SET place = '/dev/null'",
        "UPDATE witnesses SET kind = 'folder'",
        "INSERT INTO witnesses (name, kind, place) VALUES ('x', 'file', '/dev/null')",
    ],
)
def test_a_witness_that_somebody_else_dismissed_or_moved_is_found(home: Path, tmp_path: Path, sql: str) -> None:
    """Its row is all that has it asked at a start."""
    writer = witnessed(home, tmp_path / "heads.jsonl")
    assert audit_home(writer.home).findings == ()
    with tampering(writer.home) as other:
        other.execute(sql)
    assert {one.code for one in audit_home(writer.home).findings} == {"KEPT"}
    writer.close()


@pytest.mark.parametrize("size", [-(10**12), 10**12])
def test_a_witness_that_has_seen_more_than_there_is_by_its_row_is_shown_the_head(
    home: Path, tmp_path: Path, size: int
) -> None:
    """The number in the row decides whether it is asked at the end of a process: a large one silenced it."""
    writer = witnessed(home, tmp_path / "heads.jsonl")
    many_acts(writer, 9)
    show_head(writer, now_unix_ms=NOW)
    assert seen(writer) == 6  # not enough has come since
    with tampering(writer.home) as other:
        other.execute("UPDATE witnesses SET size = ?", (size,))
    show_head(writer, now_unix_ms=NOW)
    assert seen(writer) == 15
    writer.close()


@promise("state.witness-note")
@pytest.mark.parametrize("what", ["an older head", "another history", "nothing"])
def test_a_note_set_back_in_the_witness_is_found_by_its_own_audit(home: Path, tmp_path: Path, what: str) -> None:
    """The size beside it stayed, which alone was compared: the next head was held against the older note, and a
    rollback was taken."""
    open_store(tmp_path / "twin")[0].close()
    writer = witnessed(home, tmp_path / "twin")
    (older,) = writer.rows("SELECT note FROM checkpoints ORDER BY size LIMIT 1")[0]
    newest = writer.rows("SELECT size FROM checkpoints ORDER BY size DESC LIMIT 1")[0][0]
    other_history = sign_checkpoint(NoteSigner(writer.home.origin, SigningKey.generate()), newest, bytes(32)).note
    twin, _ = open_store(tmp_path / "twin")
    assert audit_home(twin.home).findings == ()
    note = {"an older head": older, "another history": other_history, "nothing": ""}[what]
    with tampering(twin.home) as other:
        other.execute("UPDATE seen_heads SET note = ?", (note,))
    assert [one.code for one in audit_home(twin.home).findings] == ["KEPT"]
    twin.close()
    writer.close()


@pytest.mark.parametrize("sql", ["DELETE FROM seen_heads", "UPDATE seen_heads SET size = 2"])
def test_a_head_set_back_in_the_witness_is_found_by_its_own_audit(home: Path, tmp_path: Path, sql: str) -> None:
    open_store(tmp_path / "twin")[0].close()
    witnessed(home, tmp_path / "twin").close()
    twin, _ = open_store(tmp_path / "twin")
    with tampering(twin.home) as other:
        other.execute(sql)
    assert [one.code for one in audit_home(twin.home).findings] == ["KEPT"]
    twin.close()


@promise("state.damaged-witness")
@on_sqlite
@pytest.mark.parametrize(
    "damage",
    ["DROP TABLE seen_heads", "UPDATE seen_heads SET note = CAST(x'ff' AS TEXT)", "UPDATE seen_heads SET note = 'x'"],
)
def test_a_witness_that_somebody_damaged_stops_nobody_and_silences_no_other(
    home: Path, tmp_path: Path, damage: str
) -> None:
    """Every command of the witnessed home ended with an internal error, and no other witness was shown a head."""
    open_store(tmp_path / "twin")[0].close()
    writer = witnessed(home, tmp_path / "twin")
    add_witness(writer, "x", tmp_path / "heads.jsonl", actor="user:operator", at_unix_ms=NOW)
    with closing(sqlite3.connect(tmp_path / "twin" / "state" / "palyra.db")) as other, other:
        other.execute(damage)
    many_acts(writer, 2)
    first, second = push_heads(writer, at_unix_ms=NOW)
    assert (str(first.refusal).split(":")[0], second.refusal) == ("UNREACHABLE", None)
    anchor(writer, thorough=True)
    assert [one.problem is None for one in anchors(writer.rows, writer.home.origin)] == [False, True]
    writer.close()


@on_sqlite
@pytest.mark.parametrize("sql", ["SET place = place || char(0)", "SET kind = 'x'", "SET place = ''"])
def test_a_witness_led_nowhere_in_its_row_is_found_and_ends_no_command(home: Path, tmp_path: Path, sql: str) -> None:
    """A NUL in its place ended the audit, and every start, with an internal error."""
    writer = witnessed(home, tmp_path / "heads.jsonl")
    with tampering(writer.home) as other:
        other.execute(f"UPDATE witnesses {sql}")
    assert [one.problem is None for one in anchors(writer.rows, writer.home.origin)] == [False]
    anchor(writer, thorough=True)
    assert str(push_heads(writer, at_unix_ms=NOW)[0].refusal).startswith("UNREACHABLE")
    assert [one.code for one in audit_home(writer.home).findings] == ["KEPT"]
    writer.close()


@pytest.mark.parametrize("sql", ["DELETE FROM checkpoints WHERE size = 6", "UPDATE checkpoints SET note = {note}"])
def test_a_checkpoint_that_somebody_spoilt_does_not_keep_a_home_from_starting(
    home: Path, tmp_path: Path, sql: str
) -> None:
    """Every command said that this was not the journal that the witness had seen, and to run verify, which found none
    of it: the tree is the same, and it is the tree that was witnessed."""
    writer = witnessed(home, tmp_path / "heads.jsonl")
    many_acts(writer, 3)
    with tampering(writer.home) as other:
        other.execute(sql.format(note="'spoilt' WHERE size = 6"))
    anchor(writer, thorough=False)
    anchor(writer, thorough=True)
    with tampering(writer.home) as other:
        (body,) = other.execute("SELECT body FROM entries WHERE idx = 2").fetchone()
        other.execute("UPDATE entries SET leaf_hash = ? WHERE idx = 2", (leaf_hash(bytes(body) + b" "),))
    for thorough in (False, True):
        with pytest.raises(StateError, match="not the journal that the witness"):
            anchor(writer, thorough=thorough)
    writer.close()


def test_a_pipe_in_a_witnesss_place_keeps_nobody_waiting(home: Path, tmp_path: Path) -> None:
    writer = witnessed(home, tmp_path / "heads.jsonl")
    (tmp_path / "heads.jsonl").unlink()
    os.mkfifo(tmp_path / "heads.jsonl")
    assert [one.problem for one in anchors(writer.rows, writer.home.origin)] == ["It contains no head."]
    assert "UNREACHABLE" in str(push_heads(writer, at_unix_ms=NOW)[0].refusal)
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
