"""Budgets through real processes: exact however many spend at once, shown in every outcome, extended by an operator."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from palyra.api import Palyra, Rejected
from tests.promises import promise

RUN = "01HF7YAT000000000000000RVN"
SPENDER = """
import asyncio, sys
from palyra.api import AsyncPalyra

async def main(home, run_id, count):
    async with AsyncPalyra.open(home) as palyra:
        run = palyra.run("agent:demo", ".", run_id=run_id)
        done = await asyncio.gather(*(run.call("palyra.echo", {"n": n}) for n in range(count)))
    print(sum(outcome.success for outcome in done), {str(o.reason) for o in done if not o.success} or "")

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def configure(cli, text: str) -> None:
    cli.home.mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text(text)


@promise("calls.budget-exact")
def test_sixty_four_calls_of_four_processes_on_a_budget_of_forty_run_exactly_forty(cli):
    configure(cli, "[tool_call]\nmax_calls_per_run = 40\n")
    argv = [sys.executable, "-c", SPENDER, str(cli.home), RUN, "16"]
    started = [subprocess.Popen(argv, cwd=cli.workspace, env=cli.environ, stdout=subprocess.PIPE) for _ in range(4)]
    said = [process.communicate(timeout=120)[0].decode().split() for process in started]
    assert sum(int(words[0]) for words in said) == 40
    assert {word for words in said for word in words[1:]} <= {"{'BUDGET_SPENT'}"}
    run = json.loads(cli("runs", "show", RUN, "--json").stdout)
    assert (run["budget"]["calls_used"], run["budget"]["attempts_used"]) == (40, 24)
    assert cli("journal", "verify").returncode == 0


@promise("calls.budget-exact")
def test_a_spent_run_is_refused_until_an_operator_extends_it(cli):
    configure(cli, "[tool_call]\nmax_calls_per_run = 1\n")
    echo = ("call", "palyra.echo", "{}", "--run", RUN, "--json")
    assert cli.outcome(*echo)["success"]
    refused = cli.outcome(*echo)
    assert (refused["reason"], refused["budget"]["calls_used"], refused["budget"]["calls_max"]) == (
        "BUDGET_SPENT",
        1,
        1,
    )
    assert cli("runs", "extend", RUN, "--calls", "1", "--as", "agent:demo").returncode == 1
    assert cli("runs", "extend", RUN, "--wall", "1").returncode == 1
    assert cli("runs", "extend", RUN).returncode == 2
    assert b"calls         1 of 2" in cli("runs", "extend", RUN, "--calls", "1").stdout
    assert cli.outcome(*echo)["budget"]["calls_used"] == 2
    assert cli("journal", "verify").returncode == 0


def test_a_run_that_an_operator_ended_takes_no_more_calls(cli):
    echo = ("call", "palyra.echo", "{}", "--run", RUN)
    assert cli("runs", "end", RUN).returncode == 1
    assert cli.outcome(*echo, "--json")["success"]
    ended = json.loads(cli("runs", "end", RUN, "--json").stdout)
    assert (ended["run_id"], ended["budget"]["calls_used"]) == (RUN, 1)
    for again in ("show", "end"):
        assert json.loads(cli("runs", again, RUN, "--json").stdout) == ended
    assert [run["ended_at_unix_ms"] for run in json.loads(cli("runs", "list", "--json").stdout)["items"]] == [
        ended["ended_at_unix_ms"]
    ]
    assert b"ended" in cli("runs", "show", RUN).stdout
    refused = cli(*echo)
    assert (refused.returncode, refused.stderr.splitlines()) == (
        126,
        [
            b"palyra: BAD_ARGUMENTS: This run has ended.",
            b"hint: Leave its id out (--run, run_id): the call is then a run of its own. Or name another.",
        ],
    )
    assert cli("journal", "tail", "--kind", "act", "--json").stdout.count(b'"run.ended"') == 1
    assert cli("journal", "verify").returncode == 0


def test_who_holds_a_run_that_was_ended_meanwhile_makes_no_more_calls_in_it(cli):
    """A session of another process did not hear of it, and went on."""
    with Palyra.open(cli.home) as palyra:
        run = palyra.run("agent:demo", cli.workspace, run_id=RUN)
        assert run.call("palyra.echo", {"n": 1}).success
        assert cli("runs", "end", RUN).returncode == 0
        late = run.call("palyra.echo", {"n": 2})
        assert (late.status, late.reason, late.message) == ("refused", "BAD_ARGUMENTS", "This run has ended.")
        with pytest.raises(Rejected, match="This run has ended"):
            palyra.run("agent:demo", cli.workspace, run_id=RUN)
    assert cli("journal", "verify").returncode == 0


@promise("calls.budget-exact")
def test_wall_time_and_output_are_counted_and_end_a_program_that_wants_more(cli):
    configure(cli, "[budget.run]\nwall_ms = 2000\noutput_bytes = 10\n")
    sleep = ("call", "palyra.process.run", '{"command": "sleep", "args": ["30"]}', "--run", RUN, "--json")
    first = cli.outcome(*sleep)
    assert (first["reason"], first["budget"]["wall_us_max"]) == ("TIMEOUT", 2_000_000)
    assert first["budget"]["wall_us_used"] >= 2_000_000
    assert cli.outcome(*sleep)["reason"] == "BUDGET_SPENT"
    assert cli("runs", "extend", RUN, "--wall", "60").returncode == 0
    talk = ("call", "palyra.process.run", '{"command": "echo", "args": ["0123456789abcdef"]}', "--run", RUN, "--json")
    assert cli.outcome(*talk)["status"] == "quota_exceeded"
    assert cli.outcome(*talk)["reason"] == "BUDGET_SPENT"
    assert cli("journal", "verify").returncode == 0


def test_a_background_process_is_settled_at_its_end(cli):
    configure(cli, "[budget.run]\nwall_ms = 600000\n")
    start = {"command": "sleep", "args": ["300"], "background": True, "lifetime": "detached"}
    begun = cli.outcome("call", "palyra.process.run", json.dumps(start), "--run", RUN, "--json")
    assert begun["success"], begun
    held = json.loads(cli("runs", "show", RUN, "--json").stdout)
    assert (held["reserved"]["wall_us"], held["budget"]["wall_us_used"]) == (600_000_000, 0)
    assert cli("stop", begun["output"]["process_id"]).returncode == 0
    after = json.loads(cli("runs", "show", RUN, "--json").stdout)
    assert (after["reserved"]["wall_us"], after["budget"]["wall_us_used"] > 0) == (0, True)
    assert cli("journal", "verify").returncode == 0


@promise("calls.budget-exact")
def test_a_kill_in_the_middle_counts_all_that_was_held_and_gives_it_back_once(cli):
    configure(cli, "[budget.run]\nwall_ms = 100000\n")
    nap = json.dumps({"command": "sleep", "args": ["60"], "timeout_ms": 40_000})
    calling = cli.start("call", "palyra.process.run", nap, "--run", RUN, "--json")
    for _ in range(100):
        run = json.loads(cli("runs", "show", RUN, "--json").stdout or "{}")
        if run.get("reserved", {}).get("wall_us"):
            break
    assert run["reserved"]["wall_us"] == 40_000_000
    calling.kill()
    calling.communicate(timeout=30)
    after = json.loads(cli("runs", "show", RUN, "--json").stdout)
    assert (after["reserved"]["wall_us"], after["budget"]["wall_us_used"]) == (0, 40_000_000)
    assert cli("journal", "verify").returncode == 0
