"""The journal from the outside: what anyone with a database tool could do to it is found and named."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from tests.promises import promise


def make_calls(cli, count: int = 4) -> None:
    for number in range(count):
        assert cli("call", "palyra.echo", json.dumps({"n": number})).returncode == 0


def verify(cli) -> tuple[int, dict]:
    done = cli("journal", "verify", "--json")
    return done.returncode, json.loads(done.stdout)


def tamper(cli, *statements: str) -> None:
    connection = sqlite3.connect(cli.home / "state" / "palyra.db")
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_an_untouched_journal_verifies(cli):
    make_calls(cli)
    code, report = verify(cli)
    assert (code, report["ok"], report["entries"]) == (0, True, 8)


@promise("journal.edited-entry")
@pytest.mark.parametrize("index", [0, 3, 7])
def test_deleting_any_row_is_found_and_the_entry_named(cli, index):
    make_calls(cli)
    tamper(cli, f"DELETE FROM entries WHERE idx = {index}")
    code, report = verify(cli)
    assert code == 1
    assert any(f["index"] == index or str(index) in f["detail"] for f in report["findings"])


@promise("journal.edited-entry")
@pytest.mark.parametrize("index", [0, 3, 7])
def test_editing_any_row_is_found_and_the_entry_named(cli, index):
    make_calls(cli)
    tamper(
        cli,
        "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'palyra.echo', 'palyra.ecHo') AS BLOB) "
        f"WHERE idx = {index}",
    )
    code, report = verify(cli)
    assert code == 1
    assert index in {f["index"] for f in report["findings"]}


@promise("journal.edited-entry")
def test_an_edited_stored_outcome_is_found(cli):
    make_calls(cli, 2)
    tamper(cli, "UPDATE calls SET status = 'refused' WHERE result_index = 3")
    assert verify(cli)[0] == 1


@promise("journal.truncated-tail")
def test_truncation_is_found_by_whoever_holds_a_receipt(cli, tmp_path):
    make_calls(cli, 3)
    receipt = tmp_path / "outcome.json"
    receipt.write_bytes(cli("call", "palyra.echo", "{}", "--json").stdout)
    assert cli("journal", "verify", "--known", str(receipt)).returncode == 0
    tamper(
        cli,
        "DELETE FROM calls WHERE result_index >= 6",
        "DELETE FROM openings WHERE entry >= 6",
        "DELETE FROM entries WHERE idx >= 6",
        "DELETE FROM checkpoints WHERE size > 6",
    )
    assert cli("journal", "verify", "--known", str(receipt)).returncode == 1


def test_show_and_tail_tell_of_a_call(cli):
    outcome = cli.outcome("call", "palyra.echo", '{"x": 1}', "--json")
    shown = json.loads(cli("journal", "show", outcome["call_id"], "--json").stdout)
    assert (len(shown["entries"]), shown["outcome"]["output"]) == (2, {"x": 1})
    assert cli("journal", "show", "01HF7YAT00000000000000N0NE").returncode == 1
    assert outcome["call_id"].encode() in cli("journal", "tail").stdout


@promise("journal.salted-commitments")
def test_inputs_and_outputs_never_stand_in_an_entry(cli):
    cli("call", "palyra.echo", '{"pin": "value-4711"}')
    items = json.loads(cli("journal", "tail", "--json").stdout)["items"]
    assert "4711" not in json.dumps(items)


def test_a_crowd_of_runs_at_once_in_one_home_all_succeed_and_verify(cli):
    started = [cli.start("run", "--", "true") for _ in range(24)]
    failed = [(p.returncode, err) for p in started for err in [p.communicate(timeout=240)[1]] if p.returncode != 0]
    assert failed == []
    code, report = verify(cli)
    assert (code, report["findings"], report["entries"]) == (0, [], 48)


def test_one_more_run_neither_waits_for_nor_marks_a_long_one(cli):
    long = cli.start("run", "--", "sleep", "60")
    try:
        _wait_for_intents(cli, 1)
        started = time.monotonic()
        assert cli("run", "--", "true").returncode == 0
        assert time.monotonic() - started < 30
        report = verify(cli)[1]
        assert (report["ok"], report["open_calls"]) == (True, 1)
    finally:
        long.send_signal(signal.SIGINT)
        long.communicate(timeout=60)
    assert long.returncode == 130
    assert verify(cli)[1]["open_calls"] == 0


def _wait_for_intents(cli, count: int) -> None:
    """Looks into the file: a command for each look would slow down what it waits for."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if _intents(cli.home / "state" / "palyra.db") >= count:
            return
        time.sleep(0.05)
    raise AssertionError("the calls never started")


def _intents(database) -> int:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            bodies = connection.execute("SELECT body FROM entries").fetchall()
    except sqlite3.OperationalError:  # until there is an installation
        return 0
    return sum(b":intent:v1" in body for (body,) in bodies)


BUSY = """
import asyncio, json, sys
from palyra import AsyncPalyra

async def main():
    async with AsyncPalyra.open(sys.argv[1]) as palyra:
        async def one(n):
            run = palyra.run("user:busy", sys.argv[2])
            seconds = "60" if n < 4 else "0.05"  # some are surely under way when all is killed
            while True:
                outcome = await run.call("palyra.process.run", {"command": "sleep", "args": [seconds]})
                if outcome.receipt:
                    print(json.dumps([outcome.receipt["index"], outcome.call_id]), flush=True)
        await asyncio.gather(*(one(n) for n in range(100)))

asyncio.run(main())
"""


@promise("journal.killed-process")
def test_sigkill_amid_a_hundred_concurrent_calls_loses_nothing_acknowledged(cli):
    """And what had started is closed as interrupted at the next start."""
    argv = [sys.executable, "-c", BUSY, str(cli.home), str(cli.workspace)]
    with subprocess.Popen(argv, env=cli.environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        acknowledged = [json.loads(process.stdout.readline()) for _ in range(30)]
        os.kill(process.pid, signal.SIGKILL)
        rest = process.stdout.read().splitlines()
    acknowledged += [json.loads(line) for line in rest if line.endswith(b"]")]
    code, report = verify(cli)
    assert (code, report["findings"], report["open_calls"]) == (0, [], 0)
    items = json.loads(cli("journal", "tail", "-n", "1000", "--json").stdout)["items"]
    kept = {item["index"]: item["entry"]["predicate"] for item in items}
    assert [kept[index]["call_id"] for index, _ in acknowledged] == [call_id for _, call_id in acknowledged]
    assert "INTERRUPTED" in {said.get("reason") for said in kept.values()}


# ── without the key ──────────────────────────────────────────────────────────


def leave_one_open(cli) -> None:
    """A call whose owner was killed."""
    long = cli.start("run", "--", "sleep", "60")
    _wait_for_intents(cli, 1)
    long.kill()
    long.communicate(timeout=60)


def test_edited_details_of_an_open_call_are_never_signed(cli):
    leave_one_open(cli)
    forged = b'{"decision": {"effect": "allow", "policies": ["forged"]}, "executor": "forged", "plan_sha256": "f"}'
    connection = sqlite3.connect(cli.home / "state" / "palyra.db")
    with connection:
        sha256 = hashlib.sha256(forged).digest()
        connection.execute("INSERT INTO blobs VALUES (?, ?, 0)", (sha256, forged))
        connection.execute("UPDATE calls SET details = ?, input_sha256 = 'forged'", (sha256,))
        connection.execute("DELETE FROM openings WHERE entry = 0 AND field = 'details'")
    connection.close()
    assert cli("run", "--", "true").returncode == 0
    items = json.loads(cli("journal", "tail", "--json").stdout)["items"]
    intent, result = (item["entry"]["predicate"] for item in items[:2])
    assert (result["status"], result["decision"], result["executor"]) == (
        "interrupted",
        intent["decision"],
        intent["executor"],
    )
    assert (
        b"forged"
        not in sqlite3.connect(cli.home / "state" / "palyra.db")
        .execute("SELECT data FROM calls JOIN blobs ON sha256 = outcome WHERE result_index = 1")
        .fetchone()[0]
    )
    assert "KEPT" in {finding["code"] for finding in verify(cli)[1]["findings"]}


def test_an_invented_open_call_is_not_closed_but_found(cli):
    make_calls(cli, 1)
    tamper(
        cli,
        "INSERT INTO calls SELECT '01HF7YAT0000000000000F0RGE', run_id, tool, principal, input_sha256, 'open', NULL, "
        "'boot', 1, 1, details, NULL, intent_index, NULL, opened_unix_ms, NULL FROM calls",
    )
    done = cli("call", "palyra.echo", "{}", "--verbose")
    assert (done.returncode, b"was left open" in done.stderr) == (0, True)
    code, report = verify(cli)
    assert (code, report["entries"]) == (1, 4)
    assert "KEPT" in {finding["code"] for finding in report["findings"]}


def test_a_dangling_call_and_a_broken_head_are_findings_and_no_abort(cli):
    leave_one_open(cli)
    tamper(cli, "UPDATE head SET frontier = zeroblob(32)")
    code, report = verify(cli)
    assert (code, {finding["code"] for finding in report["findings"]}) == (1, {"HEAD", "DANGLING"})


def test_an_open_row_with_broken_details_stops_no_command(cli):
    leave_one_open(cli)
    tamper(
        cli,
        "INSERT INTO blobs VALUES (x'00', CAST('{' AS BLOB), 0)",
        "UPDATE calls SET details = x'00'",
    )
    assert cli("run", "--", "true").returncode == 0
    assert verify(cli)[0] == 1


@pytest.mark.parametrize("words", [("verify",), ("tail",), ("show", "0"), ("checkpoint",)])
def test_reading_a_home_that_is_not_there_creates_nothing(cli, words):
    done = cli("journal", *words)
    assert (done.returncode, done.stdout, cli.home.exists()) == (1, b"", False)
    assert b"There is no installation" in done.stderr


def test_a_broken_configuration_does_not_stop_an_audit(cli):
    make_calls(cli, 1)
    (cli.home / "palyra.toml").write_text("nonsense =")
    assert [cli("journal", word).returncode for word in ("verify", "tail", "checkpoint")] == [0, 0, 0]


def test_an_outcome_with_a_key_twice_too_many_or_too_deep_does_not_verify(cli, tmp_path):
    text = cli("call", "palyra.echo", "{}", "--json").stdout.decode().strip()
    file = tmp_path / "outcome.json"
    assert text.startswith('{"call_id"')
    for changed in (
        '{"message":"approved",' + text[1:],
        '{"extra":1,' + text[1:],
        '{"call_id":1}',
        text.replace('"hint":null,', ""),
        text[:-1] + ',"deep":' + "[" * 900 + "]" * 900 + "}",
    ):
        file.write_text(changed)
        done = cli("verify", str(file))
        assert (done.returncode, done.stdout.split(b":")[0]) == (1, b"SHAPE"), changed[:60]
    file.write_text("hello")
    said = cli("verify", str(file)).stdout
    assert said.startswith(b"SHAPE: The file is not JSON (")
    assert b"palyra run --json" in said
    file.write_text(text)
    assert cli("verify", str(file)).returncode == 0


def test_a_receipt_that_names_another_calls_entry_does_not_verify(cli, tmp_path):
    """Only the range of the index was checked, so a receipt could be led to any other entry of the journal."""
    first, second = (json.loads(cli("call", "palyra.echo", "{}", "--json").stdout) for _ in range(2))
    file = tmp_path / "outcome.json"
    file.write_text(json.dumps(second))
    assert cli("verify", str(file)).returncode == 0
    for index in range(second["receipt"]["tree_size"]):
        file.write_text(json.dumps(second | {"receipt": second["receipt"] | {"index": index}}))
        done = cli("verify", str(file))
        is_own = index == second["receipt"]["index"]
        assert done.returncode == (0 if is_own else 1), index
        assert is_own or done.stdout.startswith(b"INDEX: "), index
    file.write_text(json.dumps(first | {"receipt": second["receipt"]}))
    assert cli("verify", str(file)).stdout.startswith(b"INDEX: ")


def test_a_journal_shorter_than_the_receipt_is_said(cli, tmp_path):
    """A home that was put back from a copy kept verifying what it no longer has."""
    make_calls(cli, 1)
    shutil.copytree(cli.home, tmp_path / "copy")
    file = tmp_path / "outcome.json"
    file.write_bytes(cli("call", "palyra.echo", "{}", "--json").stdout)
    assert cli("verify", str(file)).returncode == 0
    shutil.rmtree(cli.home)
    shutil.copytree(tmp_path / "copy", cli.home)
    done = cli("verify", str(file))
    assert done.returncode == 1
    assert done.stdout.startswith(b"SHORTER: ")
    make_calls(cli, 2)
    done = cli("verify", str(file))
    assert done.returncode == 1
    assert done.stdout.startswith((b"HISTORY: ", b"INDEX: "))
