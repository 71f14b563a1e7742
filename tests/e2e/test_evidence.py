"""Evidence for somebody else: made by one command, checked by another with a public key alone, in an empty home."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from palyra.canon import canonical_strict, digest, sha256_hex
from palyra.journal.keys import write_hashes
from palyra.journal.merkle import Frontier, leaf_hash
from tests.command_line import Cli
from tests.promises import promise


@pytest.fixture
def calls(cli) -> list[dict]:
    return [cli.outcome("call", "palyra.echo", json.dumps({"n": n}), "--json") for n in range(3)]


def vkey(cli) -> str:
    connection = sqlite3.connect(cli.home / "state" / "palyra.db")
    (value,) = connection.execute("SELECT value FROM meta WHERE name = 'vkey'").fetchone()
    connection.close()
    return value


def verified(cli, path: Path, *, home: Path) -> tuple[int, dict]:
    """As an outsider: another home, nothing but the key."""
    done = cli("verify", str(path), "--key", vkey(cli), "--home", str(home), "--json")
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("words", "name", "kind"),
    [
        (("export",), "journal.jsonl", "export"),
        (("export", "--format", "dsse"), "bundle.jsonl", "bundle"),
        (("export", "--format", "tiles"), "log", "tiles"),
    ],
)
def test_an_export_is_verified_offline_with_a_public_key(cli, calls, tmp_path, words, name, kind):
    path = tmp_path / name
    assert cli("journal", *words, "--output", str(path)).returncode == 0
    code, said = verified(cli, path, home=tmp_path / "nowhere")
    assert (code, said["ok"], said["kind"], said["entries"]) == (0, True, kind, 6)
    assert "the key given" in said["key"]
    assert not (tmp_path / "nowhere").exists()
    assert "this installation's key" in json.loads(cli("verify", str(path), "--json").stdout)["key"]


@pytest.mark.parametrize("words", [("export",), ("export", "--format", "tiles")], ids=["lines", "tiles"])
def test_who_kept_a_checkpoint_holds_an_export_against_it_without_the_home(cli, calls, tmp_path, words):
    """The page for auditors had this done with the operator's home, which they do not have."""
    key, kept, older, newer = vkey(cli), tmp_path / "head.txt", tmp_path / "older", tmp_path / "newer"
    cli("journal", *words, "--output", str(older))
    cli.outcome("call", "palyra.echo", "{}", "--json")
    kept.write_bytes(cli("journal", "checkpoint").stdout)
    cli.outcome("call", "palyra.echo", "{}", "--json")
    cli("journal", *words, "--output", str(newer))
    outside = ("--key", key, "--home", str(tmp_path / "nowhere"), "--known", str(kept))
    good, bad = cli("verify", str(newer), *outside, "--json"), cli("verify", str(older), *outside, "--json")
    assert (good.returncode, json.loads(good.stdout)["anchored"]) == (0, 8)
    assert (bad.returncode, [one["code"] for one in json.loads(bad.stdout)["findings"]]) == (1, ["TRUNCATED"])
    outcome = tmp_path / "outcome.json"
    outcome.write_text(json.dumps(calls[0]))
    assert cli("verify", str(outcome), *outside).returncode == 2, "it is no export"


def test_a_home_that_was_rewritten_under_another_key_does_not_verify_with_the_one_that_is_held(cli, calls, tmp_path):
    """Where the key's file is not readable, as in a copy, the key was believed that the database names."""
    held = vkey(cli)
    assert cli("journal", "verify", "--key", held).returncode == 0
    assert cli("journal", "rotate-key").returncode == 0
    (cli.home / "state" / "installation.key").unlink()
    copied = cli("journal", "verify", "--key", held)
    assert (copied.returncode, copied.stderr) == (0, b""), "led there by a handover that the held key signed"
    other = Cli(tmp_path / "other", cli.workspace)
    other("call", "palyra.echo", "{}")
    (other.home / "state" / "installation.key").unlink()
    assert b"--key" in other("journal", "verify").stderr, "what to do about a key that nobody vouches for"
    done = other("journal", "verify", "--key", held, "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, [one["code"] for one in said["findings"]], said["ok"]) == (1, ["KEY"], False)
    assert "another installation" in said["hint"]
    assert cli("journal", "verify", "--key", "x").returncode == 2


@promise("journal.edited-evidence")
def test_a_missing_line_of_an_export_fails(cli, calls, tmp_path):
    path = tmp_path / "journal.jsonl"
    cli("journal", "export", "--output", str(path))
    lines = path.read_bytes().splitlines(keepends=True)
    for at in range(len(lines)):
        path.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
        assert verified(cli, path, home=tmp_path / "nowhere")[0] == 1, at


@promise("journal.partial-evidence")
def test_an_export_whose_beginning_was_cut_off_on_the_way_says_what_it_shows(cli, calls, tmp_path):
    """With the tree before it in its place it holds, and was said to hold every entry of the journal."""
    path = tmp_path / "journal.jsonl"
    cli("journal", "export", "--output", str(path))
    key = vkey(cli)
    assert b", the journal from its first one on, by" in cli("verify", str(path), "--key", key).stdout
    header, *bodies, _ = path.read_bytes().splitlines()
    frontier = Frontier()
    for body in bodies[:4]:
        frontier.append(leaf_hash(body))
    said = json.loads(header) | {"first": 4, "count": 2, "frontier": write_hashes(frontier.nodes)}
    end = b'{"end":true,"count":2}'
    path.write_bytes(b"\n".join([json.dumps(said).encode(), *bodies[4:], end, b""]))
    done = cli("verify", str(path), "--key", key)
    assert (done.returncode, done.stdout.partition(b", by")[0]) == (
        0,
        b"verified: export of 2 entries from entry 4 on; those before are not shown",
    )
    code, told = verified(cli, path, home=tmp_path / "nowhere")
    assert (code, told["entries"], told["first"], told["tree_size"]) == (0, 2, 4, 6)


@promise("journal.partial-evidence")
def test_a_proof_whose_result_was_taken_out_says_that_none_is_shown(cli, calls, tmp_path):
    path = tmp_path / "proof.json"
    call_id = calls[0]["call_id"]
    cli("journal", "prove", call_id, "--output", str(path))
    assert f"proof that call {call_id} ended as completed, by" in cli("verify", str(path)).stdout.decode()
    proof = json.loads(path.read_bytes())
    path.write_text(json.dumps(proof | {"entries": proof["entries"][:1]}))
    assert f"proof that call {call_id} began; no result is shown, by" in cli("verify", str(path)).stdout.decode()


@promise("journal.partial-evidence")
def test_a_bundle_whose_lines_were_copied_or_moved_does_not_verify(cli, calls, tmp_path):
    """Each line holds by itself: a call could be shown any number of times, and in any order."""
    path = tmp_path / "bundle.jsonl"
    cli("journal", "export", "--format", "dsse", "--output", str(path))
    lines = path.read_bytes().splitlines(keepends=True)
    for changed in ([*lines, lines[0]], [lines[1], lines[0], *lines[2:]], [lines[0], lines[0]]):
        path.write_bytes(b"".join(changed))
        assert verified(cli, path, home=tmp_path / "nowhere")[0] == 1
    path.write_bytes(b"".join(lines[2:]))  # that others are missing, a bundle never says
    assert verified(cli, path, home=tmp_path / "nowhere")[0] == 0


@promise("journal.verifier-bounds")
@pytest.mark.parametrize("name", ["checkpoint", "tile/0/000.p/6", "tile/entries/000.p/6"])
def test_a_pipe_among_tiles_keeps_nobody_waiting(cli, calls, tmp_path, name):
    folder = tmp_path / "log"
    cli("journal", "export", "--format", "tiles", "--output", str(folder))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    code, said = verified(cli, folder, home=tmp_path / "nowhere")
    assert (code, said["findings"]) == (1, [{"code": "TILES", "detail": f"{name} is not a file."}])


def test_a_selected_call_is_proven_without_showing_the_others(cli, calls, tmp_path):
    path = tmp_path / "one.jsonl"
    assert cli("journal", "export", "--call", calls[1]["call_id"], "--output", str(path)).returncode == 0
    code, said = verified(cli, path, home=tmp_path / "nowhere")
    assert (code, said["kind"], said["entries"]) == (0, "selection", 2)
    text = path.read_text()
    assert calls[1]["call_id"] in text
    assert calls[0]["call_id"] not in text
    assert calls[2]["call_id"] not in text
    path.write_text(text.replace("completed", "cOmpleted"))
    assert verified(cli, path, home=tmp_path / "nowhere")[0] == 1


def test_a_proof_goes_on_holding_when_the_journal_has_grown(cli, calls, tmp_path):
    path = tmp_path / "proof.json"
    assert cli("journal", "prove", calls[0]["call_id"], "--output", str(path)).returncode == 0
    cli.outcome("call", "palyra.echo", "{}", "--json")
    code, said = verified(cli, path, home=tmp_path / "nowhere")
    assert (code, said["kind"], said["findings"]) == (0, "proof", [])
    proof = json.loads(path.read_text())
    result = json.loads(proof["entries"][1]["body"])["predicate"]
    assert result["execution_sha256"] == calls[0]["attestation"]["execution_sha256"]
    assert cli("journal", "prove", "01HF7YAT00000000000000N0NE").returncode == 1


@promise("journal.edited-evidence")
def test_tiles_and_checkpoints_that_were_edited_are_found(cli, calls, tmp_path):
    made = tmp_path / "log"
    cli("journal", "export", "--format", "tiles", "--output", str(made))
    for name in ("checkpoint", "tile/0/000.p/6", "tile/entries/000.p/6"):
        copy = tmp_path / "copy"
        shutil.copytree(made, copy)
        data = (copy / name).read_bytes()
        (copy / name).write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
        assert verified(cli, copy, home=tmp_path / "nowhere")[0] == 1, name
        (copy / name).unlink()
        assert verified(cli, copy, home=tmp_path / "nowhere")[0] == 1, name
        shutil.rmtree(copy)
    assert cli("journal", "export", "--format", "tiles", "--output", str(made)).returncode == 2


@promise("journal.edited-evidence")
def test_an_envelope_of_another_type_or_signer_is_found(cli, calls, tmp_path):
    path = tmp_path / "bundle.jsonl"
    cli("journal", "export", "--format", "dsse", "--output", str(path))
    text = path.read_text()
    path.write_text(text.replace("application/vnd.in-toto+json", "application/vnd.in-toto+jsom", 1))
    assert verified(cli, path, home=tmp_path / "nowhere")[0] == 1
    path.write_text(text.replace('"sig":"', '"sig":"AAAA', 1))
    assert verified(cli, path, home=tmp_path / "nowhere")[0] == 1


@promise("journal.verifier-bounds")
@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 1_000_000,
        b'{"type":"urn:palyra:proof:v1","keys":' + b"[" * 100_000,
        b'{"type":"urn:palyra:export:v1","count":' + b"9" * 5000 + b"}\n",
        b'{"type":"urn:palyra:export:v1","first":0,"count":9007199254740991,"checkpoint":"","frontier":[],"keys":[]}\n',
        b'{"payloadType":"x"}\n' + b'{"payloadType":"x"}\n' * 100_000,
        b"\n" * 1_000_000,
        b'{"type":"' + b'\\"' * 1_000_000,
        b"\xff\xfe" * 1000,
        b"",
    ],
)
def test_a_verifier_bomb_is_refused_quickly(cli, calls, tmp_path, bomb):
    path = tmp_path / "bomb"
    path.write_bytes(bomb)
    done = cli("verify", str(path), "--key", vkey(cli), timeout=30)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


@promise("journal.verifier-bounds")
def test_millions_of_empty_lists_are_counted_before_any_is_made(cli, calls, tmp_path):
    """A file of 24 megabytes took 700 of memory, one of 256 would have taken more than most machines have."""
    path = tmp_path / "lists"
    path.write_bytes(b"[" + b"[]," * 2_000_000 + b"[]]")
    done = cli("verify", str(path), "--key", vkey(cli), timeout=30)
    assert (done.returncode, b"holds more than 1000000 values" in done.stdout) == (1, True)


@contextmanager
def edited(cli, sql, *given):
    """The database in the hands of somebody without the key, who puts it back afterwards."""
    place = cli.home / "state" / "palyra.db"
    with closing(sqlite3.connect(place)) as connection:
        before = connection.execute("SELECT idx, leaf_hash, body FROM entries").fetchall()
        rows = connection.execute("SELECT call_id, intent_index, result_index FROM calls").fetchall()
        connection.execute(sql, given)
        connection.commit()
        yield
        for index, leaf, body in before:
            connection.execute("UPDATE entries SET leaf_hash = ?, body = ? WHERE idx = ?", (leaf, body, index))
        for call_id, intent, result in rows:
            sql = "UPDATE calls SET intent_index = ?, result_index = ? WHERE call_id = ?"
            connection.execute(sql, (intent, result, call_id))
        connection.commit()


def forged_statement(outcome: dict) -> bytes:
    """What an attestation's envelope would hold of an output that never was."""
    outcome["output"] = {"forged": True}
    attested = {name: value for name, value in outcome["attestation"].items() if name != "envelope"}
    attested["output_sha256"] = digest(outcome["output"])
    del attested["execution_sha256"]
    attested["execution_sha256"] = sha256_hex(canonical_strict(attested))
    outcome["attestation"] = attested
    subject = {"name": f"call/{attested['call_id']}", "digest": {"sha256": attested["execution_sha256"]}}
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": [subject], "predicate": attested}
    return canonical_strict(statement | {"predicateType": "urn:palyra:attestation:v1"})


@promise("journal.exported-bytes")
@pytest.mark.parametrize("with_its_hash", [False, True])
@pytest.mark.parametrize("words", [(), ("--call",)])
def test_nobody_has_other_bytes_signed_by_putting_them_where_an_entry_was(cli, calls, tmp_path, words, with_its_hash):
    """An export signed whatever stood in the rows: a whole attestation put there, and taken away again, was an outcome
    that palyra verify took, and nothing in the journal told of it."""
    payload = forged_statement(calls[0])
    path = tmp_path / "bundle.jsonl"
    leaf = sha256(b"\x00" + payload).digest() if with_its_hash else None
    sql = "UPDATE entries SET body = ?, leaf_hash = coalesce(?, leaf_hash) WHERE idx = 0"
    chosen = [*words, calls[0]["call_id"]] if words else []
    with edited(cli, sql, payload, leaf):
        done = cli("journal", "export", "--format", "dsse", *chosen, "--output", str(path))
    assert (done.returncode, path.exists()) == (1, False)
    assert b"signed" in done.stderr
    assert cli("journal", "verify").returncode == 0


@promise("journal.exported-bytes")
@pytest.mark.parametrize("words", [("export",), ("export", "--format", "tiles"), ("prove",), ("export", "--call")])
def test_nothing_is_handed_out_that_is_not_what_was_signed(cli, calls, tmp_path, words):
    chosen = [calls[0]["call_id"]] if words[-1] in ("prove", "--call") else []
    path = tmp_path / "out"
    sql = "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'completed', 'refused') AS BLOB) WHERE idx = 1"
    with edited(cli, sql):
        done = cli("journal", *words, *chosen, "--output", str(path))
    assert (done.returncode, (path / "checkpoint").exists() or path.is_file()) == (1, False)
    assert b"not what was signed" in done.stderr


def test_a_row_that_names_anothers_entries_discloses_none_of_them(cli, calls, tmp_path):
    path = tmp_path / "one.jsonl"
    mine, others = calls[0]["call_id"], calls[2]["receipt"]["index"]
    with edited(cli, "UPDATE calls SET result_index = ? WHERE call_id = ?", others, mine):
        done = cli("journal", "export", "--call", mine, "--output", str(path))
    assert (done.returncode, path.exists()) == (1, False)
    assert b"names entries of another" in done.stderr


def test_a_file_from_before_a_change_of_keys_names_the_key_it_is_checked_with(cli, calls, tmp_path):
    """Its head is the old key's, which nothing in the file leads on from; doctor shows the newest key alone."""
    names = [tmp_path / name for name in ("proof.json", "journal.jsonl", "journal.dsse", "tiles")]
    cli("journal", "prove", calls[0]["call_id"], "--output", str(names[0]))
    for path, form in zip(names[1:], ("jsonl", "dsse", "tiles"), strict=True):
        cli("journal", "export", "--format", form, "--output", str(path))
    assert [cli("verify", str(path)).returncode for path in names] == [0] * 4
    old = json.loads(cli("journal", "rotate-key", "--json").stdout)["old"]
    for path in names:
        done = cli("verify", str(path))
        assert (done.returncode, f"--key '{old}'\n" in done.stderr.decode()) == (1, True), done
        assert json.loads(cli("verify", str(path), "--json").stdout)["hint"].endswith(f"--key '{old}'")
        assert cli("verify", str(path), "--key", old).returncode == 0


def test_who_verifies_a_checkpoint_is_told_what_it_is_held_against(cli, calls, tmp_path):
    path = tmp_path / "head.txt"
    path.write_bytes(cli("journal", "checkpoint").stdout)
    done = cli("verify", str(path))
    assert (done.returncode, "palyra journal verify --known" in done.stderr.decode()) == (1, True), done
    assert cli("journal", "verify", "--known", str(path)).returncode == 0
