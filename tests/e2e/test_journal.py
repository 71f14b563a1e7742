"""The journal from the outside: what anyone with a database tool could do to it is found and named."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest


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


@pytest.mark.parametrize("index", [0, 3, 7])
def test_deleting_any_row_is_found_and_the_entry_named(cli, index):
    make_calls(cli)
    tamper(cli, f"DELETE FROM entries WHERE idx = {index}")
    code, report = verify(cli)
    assert code == 1
    assert any(f["index"] == index or str(index) in f["detail"] for f in report["findings"])


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


def test_an_edited_stored_outcome_is_found(cli):
    make_calls(cli, 2)
    tamper(cli, "UPDATE calls SET status = 'refused' WHERE result_index = 3")
    assert verify(cli)[0] == 1


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


def test_inputs_and_outputs_never_stand_in_an_entry(cli):
    cli("call", "palyra.echo", '{"pin": "value-4711"}')
    items = json.loads(cli("journal", "tail", "--json").stdout)["items"]
    assert "4711" not in json.dumps(items)


def test_a_hundred_runs_at_once_in_one_home_all_succeed_and_verify(cli):
    started = [cli.start("run", "--", "true") for _ in range(100)]
    failed = [(p.returncode, err) for p in started for err in [p.communicate(timeout=240)[1]] if p.returncode != 0]
    assert failed == []
    code, report = verify(cli)
    assert (code, report["findings"], report["entries"]) == (0, [], 200)


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
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        items = json.loads(cli("journal", "tail", "-n", "1000", "--json").stdout)["items"]
        if sum(i["entry"]["predicateType"].endswith(":intent:v1") for i in items) >= count:
            return
        time.sleep(0.1)
    raise AssertionError("the calls never started")


BUSY = """
import asyncio, json, sys
from palyra import AsyncPalyra

async def main():
    async with AsyncPalyra.open(sys.argv[1]) as palyra:
        async def one(n):
            run = palyra.run("user:busy", sys.argv[2])
            while True:
                outcome = await run.call("palyra.process.run", {"command": "sleep", "args": ["0.05"]})
                if outcome.receipt:
                    print(json.dumps([outcome.receipt["index"], outcome.call_id]), flush=True)
        await asyncio.gather(*(one(n) for n in range(100)))

asyncio.run(main())
"""


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
