"""Background processes from the command line: started by one process, seen, read and stopped by others."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.keeping import keepers_of, kept_home, processes_with, wait_for
from tests.promises import promise

RUN = "01HF7YAT000000000000000RVN"


@pytest.fixture(autouse=True)
def no_keeper_left(cli) -> Iterator[None]:
    with kept_home(cli.home):
        yield


def begin(cli, command: str, *args: str, run: str | None = None, **options) -> dict:
    call = {"command": command, "args": list(args), "background": True, "lifetime": "detached"} | options
    flags = ["--run", run] if run else []
    outcome = cli.outcome("call", "palyra.process.run", json.dumps(call), "--json", *flags)
    assert outcome["success"], outcome["message"]
    return outcome["output"]


def ask(cli, what: str, started: dict, *flags: str, **options) -> dict:
    given = json.dumps({"process_id": started["process_id"], **options})
    return cli.outcome("call", f"palyra.process.{what}", given, "--json", *flags)


def test_started_by_one_command_and_listed_read_and_stopped_by_others(cli):
    (cli.workspace / "log").write_text("one\n")
    started = begin(cli, "tail", "-f", "log", run=RUN)
    listed = cli.outcome("call", "palyra.process.list", "{}", "--run", RUN, "--json")["output"]
    assert [(item["process_id"], item["status"]) for item in listed["items"]] == [(started["process_id"], "running")]
    page = wait_for(lambda: (p := ask(cli, "output", started, "--run", RUN)["output"])["text"] and p)
    assert (page["text"], page["complete"]) == ("one\n", False)
    stopped = ask(cli, "stop", started, "--run", RUN)["output"]
    assert (stopped["status"], stopped["pid"]) == ("stopped", started["pid"])
    assert cli("journal", "verify").returncode == 0


def test_a_start_is_a_completed_attested_call_of_its_own_executor(cli, tmp_path):
    call = json.dumps({"command": "true", "background": True, "lifetime": "detached"})
    outcome = cli.outcome("call", "palyra.process.run", call, "--json")
    assert (outcome["status"], outcome["success"], outcome["reason"]) == ("completed", True, None)
    assert outcome["attestation"]["executor"] == "sandbox_tier_c_linux_bubblewrap"
    assert outcome["attestation"]["limits"]["wall_ms"] == 600_000
    (tmp_path / "outcome.json").write_text(json.dumps(outcome))
    assert cli("verify", str(tmp_path / "outcome.json")).returncode == 0


@promise("calls.background-lifetime")
def test_a_run_of_one_call_cannot_own_a_process(cli):
    done = cli("call", "palyra.process.run", '{"command": "sleep", "args": ["9"], "background": true}')
    first, hint = done.stderr.splitlines()
    assert (done.returncode, first.startswith(b"palyra: BAD_ARGUMENTS: ")) == (126, True)
    assert b'"lifetime": "detached"' in hint
    assert b"--run" in hint
    assert keepers_of(cli.home) == []


def test_a_run_that_goes_on_can(cli):
    started = begin(cli, "sleep", "73.1", run=RUN, lifetime="run_owned")
    assert (started["lifetime"], ask(cli, "status", started, "--run", RUN)["output"]["status"]) == (
        "run_owned", "running",
    )  # fmt: skip


def test_a_lifetime_without_background_is_refused(cli):
    outcome = cli.outcome("call", "palyra.process.run", '{"command": "ls", "lifetime": "detached"}', "--json")
    assert (outcome["status"], outcome["reason"]) == ("refused", "BAD_ARGUMENTS")


@promise("calls.background-lifetime")
def test_it_outlives_whoever_started_it_and_ends_at_its_lifetime(cli):
    cli.home.mkdir(mode=0o700)
    (cli.home / "palyra.toml").write_text("[tool_call.process_runner]\nbackground_lifetime_ms = 1500\n")
    started = begin(cli, "sleep", "73.2")
    assert processes_with("73.2"), "the command that started it is gone"
    wait_for(lambda: not processes_with("73.2"))
    shown = json.loads(cli("ps", "--all", "--json").stdout)["items"]
    assert [(item["process_id"], item["status"]) for item in shown] == [(started["process_id"], "expired")]
    acts = [item["entry"]["predicate"] for item in json.loads(cli("journal", "tail", "--json").stdout)["items"]]
    (act,) = [said for said in acts if said.get("act") == "process.ended"]
    assert (act["details"]["status"], act["run_id"]) == ("expired", shown[0]["run_id"])
    assert cli("journal", "verify").returncode == 0


def test_ps_logs_and_stop_are_the_operators(cli):
    """Whoever can open the home sees every process of it, in any run and of any principal."""
    (cli.workspace / "text").write_text("hello\n")
    call = json.dumps({"command": "tail", "args": ["-f", "text"], "background": True, "lifetime": "detached"})
    started = cli.outcome("call", "palyra.process.run", call, "--json", "--as", "agent:other")["output"]
    handle = started["process_id"]
    line = cli("ps").stdout.decode().splitlines()[1].split()
    assert (line[0], line[1], line[3], line[4]) == (handle, "running", "tail", "agent:other")
    wait_for(lambda: cli("logs", handle).stdout == b"hello\n")
    piece = {"stream": "stdout", "offset_bytes": 0, "text": "hello\n"}
    assert json.loads(cli("logs", handle, "--json").stdout) == {"items": [piece], "next": 6}, "one JSON value on stdout"
    stopped = json.loads(cli("stop", handle, "--json").stdout)
    assert (stopped["status"], stopped["principal"]) == ("stopped", "agent:other")
    assert stopped["stopped_by"].startswith("user:")
    assert json.loads(cli("ps", "--json").stdout) == {"items": [], "next": None}
    assert cli("stop", handle).stdout.split() == [handle.encode(), b"stopped"]
    assert json.loads(cli("logs", handle, "--json").stdout) == {"items": [piece], "next": None}


@pytest.mark.parametrize("command", ["logs", "stop"])
@pytest.mark.parametrize("handle", ["01HF7YAT0000000000000000AA", "1", "../../etc", "\x1b[31m"])
def test_a_handle_nobody_has_is_named_and_exits_1(cli, command, handle):
    done = cli(command, handle)
    assert (done.returncode, b"There is no background process" in done.stderr) == (1, True)
    assert b"\x1b" not in done.stderr


def test_logs_can_be_followed_to_the_end(cli):
    cli.home.mkdir(mode=0o700)
    (cli.home / "palyra.toml").write_text("[tool_call.process_runner]\nallow_interpreters = true\n")
    script = "for i in 1 2 3; do echo out $i; echo err $i >&2; sleep 0.4; done"
    started = begin(cli, "sh", "-c", script)
    following = cli.start("logs", started["process_id"], "--follow")
    out, err = following.communicate(timeout=60)
    assert (following.returncode, out, err) == (0, b"out 1\nout 2\nout 3\n", b"err 1\nerr 2\nerr 3\n")


def test_on_a_terminal_no_escape_sequence_of_a_program_gets_through(cli):
    (cli.workspace / "evil").write_bytes(b"\x1b]0;owned\x07\x1b[2Jhi\n")
    started = begin(cli, "cat", "evil")
    wait_for(lambda: b"exited" in cli("ps", "--all").stdout)
    master, terminal = pty.openpty()
    subprocess.run([*cli.argv, "logs", started["process_id"]], env=cli.environ, stdout=terminal, timeout=60)
    os.close(terminal)
    shown = os.read(master, 65536)
    os.close(master)
    assert (b"\x1b" in shown, b"\\x1b[2Jhi" in shown) == (False, True)
    assert cli("logs", started["process_id"]).stdout == b"\x1b]0;owned\x07\x1b[2Jhi\n"


@pytest.mark.slow
def test_twenty_starts_at_once_share_one_keeper(cli):
    call = json.dumps({"command": "sleep", "args": ["74.1"], "background": True, "lifetime": "detached"})
    started = [cli.start("call", "palyra.process.run", call, "--json") for _ in range(20)]
    outcomes = [json.loads(process.communicate(timeout=240)[0]) for process in started]
    assert [outcome["message"] for outcome in outcomes if not outcome["success"]] == []
    listed = json.loads(cli("ps", "--json").stdout)["items"]
    assert {item["process_id"] for item in listed} == {outcome["output"]["process_id"] for outcome in outcomes}
    (keeper,) = keepers_of(cli.home)
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not processes_with("74.1"))
    assert json.loads(cli("ps", "--json").stdout)["items"] == []
    lost = json.loads(cli("ps", "--all", "--json").stdout)["items"]
    assert [item["status"] for item in lost] == ["lost"] * 20
    report = json.loads(cli("journal", "verify", "--json").stdout)
    assert (report["ok"], report["entries"]) == (True, 80)
