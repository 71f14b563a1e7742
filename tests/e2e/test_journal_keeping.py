"""Keys, witnesses, retention and questions, by command: what each leaves in the journal, and that it verifies after."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

from palyra.attest import PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE
from palyra.canon import canonical_strict, digest, sha256_hex
from palyra.journal.checkpoint import sign_head
from palyra.signing import NoteSigner, dsse_sign, parse_pem
from palyra.state.person import owner_principal
from tests.command_line import Cli
from tests.folders import open_folder
from tests.keeping import kept_home
from tests.serving import serving


def call(cli, **value) -> dict:
    return cli.outcome("call", "palyra.echo", json.dumps(value), "--json")


def verify(cli, *words: str) -> dict:
    done = cli("journal", "verify", "--every-signature", "--json", *words)
    said: dict = json.loads(done.stdout)
    assert done.returncode == (0 if said["ok"] else 1)
    return said


def refused(cli, file: Path) -> str:
    done = cli("verify", str(file))
    assert done.returncode == 1
    text: str = done.stdout.decode()
    return text


def acts(cli) -> list[str]:
    items = json.loads(cli("journal", "tail", "--kind", "act", "--json").stdout)["items"]
    return [item["entry"]["predicate"]["act"] for item in items]


def test_a_rotated_key_signs_on_and_what_the_old_one_signed_holds(cli, tmp_path):
    before = tmp_path / "before.json"
    before.write_text(json.dumps(call(cli, n=1)))
    rotated = json.loads(cli("journal", "rotate-key", "--json").stdout)
    after = tmp_path / "after.json"
    after.write_text(json.dumps(call(cli, n=2)))
    assert verify(cli, "--known", str(before), "--known", str(after))["ok"]
    assert b"a retired key" in cli("verify", str(before)).stdout
    assert cli("verify", str(after)).returncode == 0
    assert cli("verify", str(after), "--key", rotated["new"]).returncode == 0
    assert cli("verify", str(after), "--key", rotated["old"]).returncode == 1
    exported = tmp_path / "journal.jsonl"
    cli("journal", "export", "--output", str(exported))
    for vkey in (rotated["old"], rotated["new"]):
        assert cli("verify", str(exported), "--key", vkey).returncode == 0
    assert acts(cli) == ["key.rotated"]


def test_a_stolen_retired_key_and_an_edited_entry_make_no_outcome_that_verifies(cli, tmp_path):
    """The entry of the call was read where it lay, and not held against what the newest key signed for."""
    outcome = call(cli, n=1)
    stolen = parse_pem((cli.home / "state" / "installation.key").read_text())
    assert cli("journal", "rotate-key").returncode == 0
    true, outcome["output"] = outcome["attestation"]["execution_sha256"], {"n": 2}
    attested = {name: value for name, value in outcome["attestation"].items() if name != "envelope"}
    attested["output_sha256"] = digest(outcome["output"])
    del attested["execution_sha256"]
    attested["execution_sha256"] = sha256_hex(canonical_strict(attested))
    subject = {"name": f"call/{attested['call_id']}", "digest": {"sha256": attested["execution_sha256"]}}
    statement = {"_type": STATEMENT_TYPE, "subject": [subject], "predicateType": PREDICATE_TYPE, "predicate": attested}
    envelope = dsse_sign(stolen, PAYLOAD_TYPE, canonical_strict(statement))
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(outcome | {"attestation": attested | {"envelope": envelope}}))
    assert "the journal does not contain what it signed here" in refused(cli, forged)
    with closing(sqlite3.connect(cli.home / "state" / "palyra.db")) as connection:
        (body,) = connection.execute("SELECT body FROM entries WHERE idx = 1").fetchone()
        body = body.replace(true.encode(), attested["execution_sha256"].encode())
        leaf = sha256(b"\x00" + body).digest()
        connection.execute("UPDATE entries SET body = ?, leaf_hash = ? WHERE idx = 1", (body, leaf))
        connection.commit()
    assert "the journal does not contain what it signed here" in refused(cli, forged)


@pytest.mark.parametrize("size", [2, 3, 10**9])
def test_a_stolen_retired_key_makes_no_receipt_that_verifies(cli, tmp_path, size):
    """The outcome is true, its receipt is not: of a tree that never was, or of another history of the first entries."""
    outcome = call(cli, n=1)
    stolen = parse_pem((cli.home / "state" / "installation.key").read_text())
    assert cli("journal", "rotate-key").returncode == 0
    call(cli, n=2)
    path = tmp_path / "outcome.json"
    path.write_text(json.dumps(outcome))
    assert cli("verify", str(path)).returncode == 0
    origin = outcome["receipt"]["checkpoint"].partition("\n")[0]
    note = sign_head(NoteSigner(origin, stolen), size, bytes(32))
    path.write_text(json.dumps(outcome | {"receipt": {"index": 1, "tree_size": size, "checkpoint": note}}))
    assert "the journal does not contain what it signed here" in refused(cli, path)
    path.write_text(json.dumps(outcome | {"receipt": outcome["receipt"] | {"index": 0}}))
    assert "the journal does not contain what it signed here" in refused(cli, path)


def test_an_act_is_journaled_under_who_did_it_whatever_the_environment_says(cli, monkeypatch):
    monkeypatch.setenv("LOGNAME", "somebody-else")
    call(cli, n=1)
    cli("secrets", "set", "A_KEY", stdin=b"what-nobody-may-see")
    cli("secrets", "delete", "A_KEY")
    cli("journal", "retain", "--records-days", "0")
    cli("journal", "rotate-key")
    items = json.loads(cli("journal", "tail", "--kind", "act", "--json").stdout)["items"]
    said = [item["entry"]["predicate"] for item in items]
    assert {act["act"] for act in said} >= {"secrets.set", "secrets.deleted", "records.deleted", "key.rotated"}
    assert {act["actor"] for act in said} == {owner_principal()} != {"user:somebody-else"}


def test_a_key_is_not_rotated_under_background_processes(cli):
    """Their keeper holds the old key: it could start none, stop none, and record no end."""
    input = json.dumps({"command": "sleep", "args": ["60"], "background": True, "lifetime": "detached"})
    with kept_home(cli.home):
        started = cli.outcome("call", "palyra.process.run", input, "--json")
        done = cli("journal", "rotate-key")
        assert (done.returncode, b"Background processes are kept" in done.stderr) == (125, True)
        assert cli("stop", started["output"]["process_id"]).returncode == 0
        assert cli("journal", "rotate-key").returncode == 0  # a keeper that keeps nothing is waited for
        started = cli.outcome("call", "palyra.process.run", input, "--json")
        assert cli("stop", started["output"]["process_id"]).returncode == 0
    assert verify(cli)["ok"]


def test_a_key_is_not_rotated_under_a_daemon(cli):
    """Its calls would run on, and nobody could record how they end."""
    call(cli, n=1)
    with serving(cli) as served:
        done = cli("journal", "rotate-key")
        assert (done.returncode, b"A daemon already serves this home." in done.stderr) == (125, True)
        assert served.ask("GET", "/console/v1/journal", unix=True)[0] == 200
        assert served.end()[0] == 0
    assert cli("journal", "rotate-key").returncode == 0
    assert verify(cli)["ok"]


def test_a_locked_key_is_opened_by_the_configured_file(cli, tmp_path):
    call(cli, n=1)
    secret = tmp_path / "passphrase"
    secret.write_text("correct horse\n")
    secret.chmod(0o600)
    (cli.home / "palyra.toml").write_text(f'[journal]\npassphrase_file = "{secret}"\n')
    assert cli("journal", "rotate-key", "--lock").returncode == 0
    assert b"ENCRYPTED" in (cli.home / "state" / "installation.key").read_bytes()
    assert call(cli, n=2)["success"]
    assert verify(cli)["ok"]
    secret.chmod(0o644)
    assert cli("call", "palyra.echo", "{}").returncode == 125
    (cli.home / "palyra.toml").unlink()
    done = cli("call", "palyra.echo", "{}")
    assert (done.returncode, b"passphrase" in done.stderr) == (126, True)
    assert verify(cli)["ok"]


def test_a_witness_anchors_the_journal_and_an_old_copy_does_not_start(cli, tmp_path):
    call(cli, n=1)
    shutil.copytree(cli.home, tmp_path / "old")
    heads = tmp_path / "heads.jsonl"
    assert cli("journal", "witness", "add", "vault", str(heads)).returncode == 0
    call(cli, n=2)
    said = verify(cli)
    assert (said["ok"], said["anchored"], said["unanchored"]) == (True, 3, 2)
    assert cli("journal", "checkpoint").returncode == 0
    assert verify(cli)["unanchored"] == 0
    (item,) = json.loads(cli("journal", "witness", "list", "--json").stdout)["items"]
    assert (item["name"], item["kind"], item["size"], item["problem"]) == ("vault", "file", 5, None)
    newest = tmp_path / "newest"
    shutil.copytree(cli.home, newest)
    for _ in range(2):  # grow, be witnessed, then put the copy back
        call(cli, n=3)
    assert cli("journal", "checkpoint").returncode == 0
    shutil.rmtree(cli.home)
    shutil.move(newest, cli.home)
    done = cli("call", "palyra.echo", "{}")
    assert (done.returncode, b"it was rolled back" in done.stderr) == (126, True)
    assert [finding["code"] for finding in verify(cli)["findings"]] == ["TRUNCATED"]


def test_what_a_witness_says_reaches_the_terminal_spelled_out(cli, tmp_path):
    """Its home is another's, who chooses what stands there; so does the row that leads to it."""
    call(cli, n=1)
    twin = Cli(tmp_path / "twin", cli.workspace)
    call(twin, n=1)
    assert cli("journal", "witness", "add", "vault", str(twin.home)).returncode == 0
    with closing(sqlite3.connect(twin.home / "state" / "palyra.db")) as other, other:
        other.execute("UPDATE seen_heads SET note = CAST(? AS TEXT)", (b"\x1b[31mall is well\xff",))
    with closing(sqlite3.connect(cli.home / "state" / "palyra.db")) as other, other:
        other.execute("UPDATE witnesses SET name = 'x' || char(27) || ']0;title' || char(7)")
    for words in (("journal", "checkpoint"), ("journal", "verify"), ("journal", "witness", "list"), ("doctor",)):
        done = cli(*words)
        assert (b"internal error" in done.stderr, b"\x1b" in done.stdout + done.stderr) == (False, False)
    assert b"UNREACHABLE: Could not decode" in cli("journal", "checkpoint").stderr


def holds(home: Path, text: bytes) -> list[str]:
    return [path.name for path in home.rglob("*") if path.is_file() and text in path.read_bytes()]


@pytest.mark.parametrize("how", ["redact", "retain"])
def test_what_a_person_was_shown_of_a_call_goes_with_it(cli, how):
    """The request that was approved held the command line, and nothing ever removed it."""
    cli.home.mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text('[tool_call.process_runner]\negress_enforcement_mode = "none"\n')
    words = ("call", "palyra.process.run", '{"command": "ls", "args": ["pin-4711"]}', "--as", "agent:demo", "--json")
    asked = json.loads(cli(*words).stdout)["approval"]["approval_id"]
    assert cli("approvals", "approve", asked, "--for", "3600").returncode == 0
    call_id = json.loads(cli(*words).stdout)["call_id"]
    remove = ("journal", "redact", call_id) if how == "redact" else ("journal", "retain", "--records-days", "0")
    assert b"still stands" in cli(*remove).stderr  # who grants it must see what is granted
    assert holds(cli.home, b"pin-4711") == ["palyra.db"]
    assert cli("approvals", "revoke", asked).returncode == 0
    done = cli(*remove)
    assert (done.returncode, b"still stands" in done.stderr, holds(cli.home, b"pin-4711")) == (0, False, [])
    assert verify(cli)["ok"]
    assert cli("approvals", "show", asked).returncode == 0


def test_redaction_and_retention_leave_a_journal_that_verifies(cli):
    first, second = call(cli, pin="4711"), call(cli, pin="4712")
    assert cli("journal", "redact", first["call_id"], "--reason", "asked for").returncode == 0
    shown = json.loads(cli("journal", "show", first["call_id"], "--json").stdout)
    assert (shown["outcome"], shown["details"], len(shown["entries"])) == (None, None, 2)
    assert verify(cli)["ok"]
    said = json.loads(cli("journal", "retain", "--records-days", "0", "--entries-days", "0", "--json").stdout)
    assert (said["calls"], said["sealed"]) == (1, 1)
    assert verify(cli)["ok"]
    proof = cli("journal", "prove", second["call_id"])
    assert (proof.returncode, b"urn:palyra:proof:v1" in proof.stdout) == (0, True)
    said = json.loads(cli("journal", "retain", "--entries-days", "0", "--json").stdout)
    assert said["dropped"] == 1
    assert verify(cli)["ok"]
    assert acts(cli) == ["opening.deleted", "records.deleted", "segment.sealed", "entries.pruned"]
    data = b"".join(path.read_bytes() for path in (cli.home / "state").rglob("*") if path.is_file())
    assert b'"pin":"471' not in data
    assert call(cli, n=1)["success"]
    assert cli("journal", "export", "--output", str(Path(cli.home) / "rest.jsonl")).returncode == 0
    assert cli("verify", str(Path(cli.home) / "rest.jsonl")).returncode == 0


@pytest.fixture(scope="module")
def three_calls(tmp_path_factory):
    with open_folder() as workspace:
        cli = Cli(tmp_path_factory.mktemp("asked") / "home", workspace)
        call(cli, n=1)
        call(cli, n=2)
        cli("call", "palyra.nothing", "{}")
        yield cli


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--status", "refused"), 1),
        (("--reason", "UNKNOWN_TOOL"), 1),
        (("--tool", "palyra.echo", "--kind", "result"), 2),
        (("--text", "echo completed"), 2),
        (("--principal", "agent:nobody"), 0),
        (("--since", "2100-01-01"), 0),
    ],
)
def test_the_journal_is_asked_by_filters(three_calls, words, count):
    page = json.loads(three_calls("journal", "tail", *words, "--json").stdout)
    assert (len(page["items"]), page["next"]) == (count, None)
    first = json.loads(three_calls("journal", "tail", "-n", "1", *words, "--json").stdout)
    assert len(first["items"]) == min(count, 1)


def test_a_changed_configuration_is_an_entry(cli):
    call(cli, n=1)
    (cli.home / "palyra.toml").write_text('posture = "developer"\n')
    call(cli, n=2)
    call(cli, n=3)
    assert acts(cli) == ["config.changed"]
    assert verify(cli)["ok"]


def test_a_call_whose_program_never_ran_does_not_contradict_its_intent(cli):
    """A fetch that was refused, a module nobody could compile: the engine itself says how they ended."""
    cli.home.mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text(
        'posture = "developer"\n[tool_call.process_runner]\nallowed_egress_hosts = ["127.0.0.1:9"]\n'
        "[tool_call.wasm_runtime]\nallow_inline_modules = true\n"
    )
    cli("call", "palyra.http.fetch", '{"url": "http://127.0.0.1:9/"}')
    cli("call", "palyra.plugin.run", '{"module_base64": "AGFzbQEAAAAAAAAAAAAAAAAA", "input": {}}')
    assert verify(cli)["ok"]
    assert cli("journal", "export", "--output", "all.jsonl").returncode == 0
    assert cli("verify", "all.jsonl").returncode == 0


def test_a_locked_key_is_not_followed_by_an_open_one_unasked(cli, tmp_path):
    """Who had chosen a passphrase lost it with the next key, without a word."""
    call(cli, n=1)
    secret = tmp_path / "passphrase"
    secret.write_text("what opens it\n")
    secret.chmod(0o600)
    (cli.home / "palyra.toml").write_text(f'[journal]\npassphrase_file = "{secret}"\n')
    key, locked = cli.home / "state" / "installation.key", []
    for words in ((), ("--lock",), (), ("--unlock",), ()):
        assert cli("journal", "rotate-key", *words).returncode == 0
        locked.append(b"ENCRYPTED" in key.read_bytes())
        call(cli, n=1)
    assert locked == [False, True, True, False, False]


@pytest.mark.parametrize(
    "words", [("rotate-key",), ("retain",), ("redact", "x"), ("witness", "add", "out", "heads.log")], ids=lambda w: w[0]
)
def test_where_there_is_no_home_none_is_made_to_change_its_journal(cli, words):
    """A --home with a slip in it gave a fresh home a second key, and the one that was meant none."""
    done = cli("journal", *words)
    said = f"palyra: There is no installation in {cli.home}.\nhint: Name its folder with --home.\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (1, b"", said)
    assert not cli.home.exists()
    assert not (cli.workspace / "heads.log").exists()
