"""Approvals through the command line: two terminals, a kill, a race, a pty."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.promises import promise
from tests.serving import serving

OPEN = '[tool_call.process_runner]\negress_enforcement_mode = "none"\n[approvals]\nrequest_ms = {request_ms}\n'
LS = ("call", "palyra.process.run", '{"command": "ls"}', "--as", "agent:demo", "--json")


@pytest.fixture
def asking(cli):
    """A home whose calls ask, because their network is open."""
    configure(cli)
    return cli


def configure(cli, request_ms: int = 3_600_000, more: str = "") -> None:
    cli.home.mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text(OPEN.format(request_ms=request_ms) + more)


def only(cli) -> str:
    """The one request that waits."""
    (item,) = json.loads(cli("approvals", "list", "--json").stdout)["items"]
    approval_id: str = item["approval_id"]
    return approval_id


def acts(cli) -> list[str]:
    items = json.loads(cli("journal", "tail", "-n", "1000", "--json").stdout)["items"]
    return [item["entry"]["predicate"]["act"] for item in items if "act" in item["entry"]["predicate"]]


def verified(cli) -> bool:
    done = cli("journal", "verify")
    assert done.returncode == 0, done.stdout
    return True


def test_a_call_waits_for_a_person_and_runs_when_it_is_repeated(asking):
    first = asking(*LS)
    outcome = json.loads(first.stdout)
    assert (first.returncode, outcome["status"], outcome["reason"]) == (75, "pending_approval", None)
    assert set(outcome["approval"]) == {"approval_id", "expires_at_unix_ms", "url"}
    approval_id = only(asking)
    assert approval_id == outcome["approval"]["approval_id"]
    assert asking("approvals", "approve", approval_id).returncode == 0
    second = asking(*LS)
    done = json.loads(second.stdout)
    assert (second.returncode, done["status"], done["attestation"]["approval_id"]) == (0, "completed", approval_id)
    assert asking(*LS).returncode == 75, "once is once"
    assert acts(asking) == ["approval.requested", "approval.decided", "approval.requested"]
    assert verified(asking)


ASKS_FIRST = """
@id("local.ask-before-listing")
@reason("Listing needs a person's approval.")
forbid (principal is Agent, action == Action::"tool::execute", resource == Tool::"palyra.process.run")
when { context.effective_program == "ls" }
unless { context.approved };
"""
MARKED = """
[tool_call.process_runner]
allowed_egress_hosts = ["granted.test"]
[egress]
intercept = ["granted.test"]
"""


@pytest.mark.slow
def test_a_yes_and_a_no_count_in_the_next_process_where_tls_of_a_host_is_ended_here(cli):
    """Each process has an authority of its own for such hosts, in the bundle that the sandbox sees."""
    (cli.home / "policies").mkdir(mode=0o700, parents=True)
    cli.home.chmod(0o700)
    (cli.home / "palyra.toml").write_text(MARKED)
    (cli.home / "policies" / "local.cedar").write_text(ASKS_FIRST)
    assert cli(*LS).returncode == 75
    approval_id = only(cli)
    assert cli("approvals", "approve", approval_id).returncode == 0
    done = json.loads(cli(*LS).stdout)
    assert (done["status"], done["attestation"]["approval_id"]) == ("completed", approval_id)
    assert cli(*LS).returncode == 75, "once is once"
    assert cli("approvals", "deny", only(cli)).returncode == 0
    refused = json.loads(cli(*LS).stdout)
    assert (refused["status"], refused["reason"]) == ("refused", "NOT_APPROVED")


def test_a_call_that_waits_is_in_the_journal_by_its_id_and_can_be_proven(asking, tmp_path):
    """Every outcome carries its receipt, and the inclusion proof is there on request: a pending one's too."""
    outcome = json.loads(asking(*LS).stdout)
    call_id, index = outcome["call_id"], outcome["receipt"]["index"]
    shown = json.loads(asking("journal", "show", call_id, "--json").stdout)
    assert [entry["index"] for entry in shown["entries"]] == [index]
    proof = tmp_path / "proof.json"
    assert asking("journal", "prove", call_id, "--output", str(proof)).returncode == 0
    assert asking("verify", str(proof)).returncode == 0
    chosen = tmp_path / "one.jsonl"
    assert asking("journal", "export", "--call", call_id, "--output", str(chosen)).returncode == 0
    assert asking("verify", str(chosen)).returncode == 0
    assert b"palyra approvals show" in asking("policy", "explain", call_id).stdout


def test_in_two_terminals_the_door_that_waits_runs_the_call(asking):
    waiting = asking.start(*LS, "--wait", "30")
    approval_id = wait_for_request(asking)
    assert asking("approvals", "approve", approval_id).returncode == 0
    stdout, _ = waiting.communicate(timeout=30)
    assert (waiting.returncode, json.loads(stdout)["status"]) == (0, "completed")


def test_in_two_terminals_a_no_reaches_the_door_that_waits(asking):
    waiting = asking.start(*LS, "--wait", "30")
    approval_id = wait_for_request(asking)
    assert asking("approvals", "deny", approval_id, "--reason", "use staging").returncode == 0
    stdout, stderr = waiting.communicate(timeout=30)
    outcome = json.loads(stdout)
    assert (waiting.returncode, outcome["reason"]) == (126, "NOT_APPROVED")
    assert b"use staging" in stderr


def wait_for_request(cli) -> str:
    for _ in range(100):
        items = json.loads(cli("approvals", "list", "--json").stdout)["items"]
        if items:
            return str(items[0]["approval_id"])
    raise AssertionError("nothing was asked")


def test_a_wait_that_is_over_is_pending_and_a_request_that_is_over_is_refused(asking):
    assert asking(*LS, "--wait", "0.2").returncode == 75
    configure(asking, request_ms=1000)
    other = (*LS[:2], '{"command": "ls", "args": ["-a"]}', *LS[3:])
    done = asking(*other, "--wait", "20")
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (126, "APPROVAL_TIMEOUT")
    assert "approval.expired" in acts(asking)


def test_an_approval_survives_a_kill_of_everything(asking):
    waiting = asking.start(*LS, "--wait", "60")
    approval_id = wait_for_request(asking)
    waiting.send_signal(signal.SIGKILL)
    waiting.communicate(timeout=30)
    assert only(asking) == approval_id
    assert asking("approvals", "approve", approval_id).returncode == 0
    assert asking(*LS).returncode == 0
    assert verified(asking)


def test_two_processes_that_decide_at_once_decide_once(asking):
    asking(*LS)
    approval_id = only(asking)
    racing = [asking.start("approvals", verb, approval_id) for verb in ("approve", "deny") * 3]
    for process in racing:
        process.communicate(timeout=60)
    assert sorted(process.returncode for process in racing) == [0, 1, 1, 1, 1, 1]
    assert acts(asking).count("approval.decided") == 1
    assert verified(asking)


@promise("approvals.bound-to-call")
def test_parallel_repeats_use_a_grant_once(asking):
    asking(*LS)
    asking("approvals", "approve", only(asking))
    racing = [asking.start(*LS) for _ in range(6)]
    for process in racing:
        process.communicate(timeout=60)
    codes = [process.returncode for process in racing]
    assert (codes.count(0), set(codes) <= {0, 75, 126}) == (1, True)
    assert verified(asking)


def asks(principal: str, **input: object) -> tuple[str, ...]:
    return "call", "palyra.process.run", json.dumps(input), "--as", principal


OTHERS = {
    "argv": asks("agent:demo", command="ls", args=["-a"]),
    "env": asks("agent:demo", command="ls", env={"TZ": "UTC"}),
    "cwd": asks("agent:demo", command="ls", cwd="sub"),
    "host": asks("agent:demo", command="ls", requested_egress_hosts=["x.org"]),
    "principal": asks("agent:other", command="ls"),
    "door": ("run", "--as", "agent:demo", "--", "ls"),
}


@promise("approvals.bound-to-call")
def test_a_grant_is_not_for_another_call(asking):
    (asking.workspace / "sub").mkdir()
    asking(*LS)
    asking("approvals", "approve", only(asking), "--for", "3600")
    assert asking(*LS).returncode == 0
    assert {name: asking(*other).returncode for name, other in OTHERS.items()} == dict.fromkeys(OTHERS, 75)
    assert asking(*LS).returncode == 0


@promise("approvals.who-decides")
def test_agents_and_requesters_cannot_decide(asking):
    asking(*LS)
    approval_id = only(asking)
    done = asking("approvals", "approve", approval_id, "--as", "agent:demo")
    assert (done.returncode, b"CAPABILITY_DENIED" in done.stderr) == (1, True)
    asking("approvals", "deny", approval_id)
    asking("call", "palyra.process.run", '{"command": "ls"}', "--json")  # as the login itself
    own = only(asking)
    for extra in ((), ("--as", "user:somebody")):
        done = asking("approvals", "approve", own, *extra)
        assert (done.returncode, b"their own call" in done.stderr) == (1, True)


@promise("approvals.bound-to-call")
def test_a_revoked_grant_lets_nothing_through(asking):
    asking(*LS)
    approval_id = only(asking)
    asking("approvals", "approve", approval_id, "--for", "60")
    assert [g["approval_id"] for g in json.loads(asking("approvals", "grants", "--json").stdout)["items"]] == [
        approval_id
    ]
    assert asking("approvals", "revoke", approval_id).returncode == 0
    assert json.loads(asking("approvals", "grants", "--json").stdout)["items"] == []
    assert asking(*LS).returncode == 75
    assert verified(asking)


def test_a_no_is_taken_back_by_an_operator_and_the_same_call_asks_again(asking):
    asking(*LS)
    denied = only(asking)
    asking("approvals", "deny", denied)
    refused = asking(*LS)
    assert (refused.returncode, f"palyra approvals revoke {denied}".encode() in refused.stderr) == (126, True)
    late = asking("approvals", "approve", denied)
    assert (late.returncode, f"palyra approvals revoke {denied}".encode() in late.stderr) == (1, True)
    assert f"palyra approvals revoke {denied}".encode() in asking("approvals", "show", denied).stdout
    assert asking("approvals", "revoke", denied).returncode == 0
    assert asking(*LS).returncode == 75
    asking("approvals", "approve", only(asking))
    assert asking(*LS).returncode == 0
    assert verified(asking)


def test_a_pattern_is_shown_and_covers_what_it_says(asking):
    def ls(word: str) -> int:
        given = json.dumps({"command": "ls", "args": [word]})
        return asking("call", "palyra.process.run", given, "--as", "agent:demo").returncode

    for name in ("one.md", "two.md", "three.txt"):
        (asking.workspace / name).touch()
    assert ls("one.md") == 75
    approval_id = only(asking)
    assert asking("approvals", "approve", approval_id, "--for", "60", "--pattern", "ls **").returncode == 1
    assert asking("approvals", "approve", approval_id, "--for", "60", "--pattern", "ls *.md").returncode == 0
    assert b'pattern    "ls" "*.md"' in asking("approvals", "show", approval_id).stdout
    assert [ls("one.md"), ls("two.md"), ls("three.txt")] == [0, 0, 75]


@promise("approvals.shown-whole")
def test_show_tells_all_of_it_and_hides_no_character(asking):
    trick = "\x1b[2Kharmless\u202e\nargv       ls"
    given = json.dumps({"command": "ls", "args": [trick]})
    asking("call", "palyra.process.run", given, "--as", "agent:demo")
    approval_id = only(asking)
    text = asking("approvals", "show", approval_id).stdout.decode()
    assert ("\x1b" in text, "\u202e" in text) == (False, False)
    assert [line for line in text.splitlines() if line.startswith("argv")] == [
        r'argv       "ls" "\x1b[2Kharmless\u202e\x0aargv       ls"'
    ]
    value = json.loads(asking("approvals", "show", approval_id, "--json").stdout)
    assert value["call"]["argv"] == ["ls", trick]
    assert value["fatigue"]["same_call"] == {"asked": 1, "approved": 0, "denied": 0, "expired": 0}
    assert acts(asking).count("approval.viewed") == 2


def test_show_tells_what_differs_from_the_last_approval(asking):
    asking(*LS)
    first = only(asking)
    asking("approvals", "approve", first)
    asking("call", "palyra.process.run", '{"command": "ls", "args": ["-a"]}', "--as", "agent:demo")
    value = json.loads(asking("approvals", "show", only(asking), "--json").stdout)
    assert value["earlier_approval_id"] == first
    changed = {change["field"]: (change["before"], change["now"]) for change in value["changes"]}
    assert changed["argv"] == (["ls"], ["ls", "-a"])
    assert "cwd" not in changed


# ── a person at the terminal ──


class Terminal:
    """A pseudo-terminal with a palyra at it."""

    def __init__(self, cli, *args: str, stdin: int | None = None) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [*cli.argv, *args],
            cwd=cli.workspace,
            env=cli.environ,
            stdin=theirs if stdin is None else stdin,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def until(self, wanted: str, *, times: int = 1, seconds: float = 30) -> str:
        end = time.monotonic() + seconds
        while self.text.count(wanted) < times and time.monotonic() < end:
            if not select.select([self._ours], [], [], 0.2)[0]:
                continue
            try:
                self.text += os.read(self._ours, 4096).decode(errors="replace")
            except OSError:
                break
        assert self.text.count(wanted) >= times, self.text
        return self.text

    def end(self, seconds: float = 60) -> int:
        end = time.monotonic() + seconds
        while True:
            if not select.select([self._ours], [], [], 0.2)[0]:
                if time.monotonic() > end:
                    self._process.kill()
                continue
            try:
                chunk = os.read(self._ours, 4096)
            except OSError:
                chunk = b""
            if not chunk:
                break
            self.text += chunk.decode(errors="replace")
        os.close(self._ours)
        return self._process.wait(timeout=30)


QUESTION = "Type yes or no: "


@pytest.mark.parametrize(
    "command", [("run", "--", "ls"), ("call", "palyra.process.run", '{"command": "ls"}')], ids=["run", "call"]
)
def test_at_the_terminal_a_person_confirms_their_own_call(asking, command):
    (asking.workspace / "marker.txt").touch()
    terminal = Terminal(asking, *command)
    terminal.until(QUESTION)
    assert "marker.txt" not in terminal.text
    terminal.type("yes\n")
    assert (terminal.end(), "marker.txt" in terminal.text) == (0, True)
    (done,) = json.loads(asking("approvals", "list", "--state", "approved", "--json").stdout)["items"]
    assert (done["self_approved"], done["uses"], done["decided_by"]) == (True, 1, done["principal"])
    assert verified(asking)


@pytest.mark.parametrize("answer", ["no\n", "n\n"])
def test_at_the_terminal_no_is_no(asking, answer):
    terminal = Terminal(asking, "run", "--", "ls")
    terminal.until(QUESTION)
    terminal.type(answer)
    assert (terminal.end(), "NOT_APPROVED" in terminal.text) == (126, True)


def test_at_the_terminal_what_is_neither_yes_nor_no_runs_nothing_and_is_no_lasting_no(asking):
    (asking.workspace / "marker.txt").touch()
    terminal = Terminal(asking, "run", "--", "ls")
    for asked, answer in enumerate(["y\n", "yes please\n", "ys\nyes\n"], start=1):  # a pasted second line is no answer
        terminal.until(QUESTION, times=asked)
        terminal.type(answer)
    assert (terminal.end(), "marker.txt" in terminal.text) == (75, False)
    assert only(asking)


def test_at_the_terminal_a_slip_is_asked_about_again(asking):
    (asking.workspace / "marker.txt").touch()
    terminal = Terminal(asking, "run", "--", "ls")
    terminal.until(QUESTION)
    terminal.type("y\nyes\n")  # what was pasted behind it answers nothing
    terminal.until(QUESTION, times=2)
    assert "marker.txt" not in terminal.text
    terminal.type("yes\n")
    assert (terminal.end(), "marker.txt" in terminal.text) == (0, True)


def test_at_the_terminal_what_was_typed_ahead_is_no_answer(asking):
    terminal = Terminal(asking, "run", "--", "ls")
    terminal.type("yes\n")
    terminal.until(QUESTION)
    terminal.type("no\n")
    assert terminal.end() == 126


def test_at_the_terminal_the_end_of_input_leaves_it_pending(asking):
    terminal = Terminal(asking, "run", "--", "ls")
    terminal.until(QUESTION)
    terminal.type("\x04")
    assert terminal.end() == 75


def test_at_the_terminal_an_interrupt_cancels_the_call_and_the_request_waits_on(asking):
    terminal = Terminal(asking, "run", "--", "ls")
    terminal.until(QUESTION)
    terminal.interrupt()
    assert terminal.end() == 130
    assert only(asking)
    assert verified(asking)


def test_at_the_terminal_it_is_the_same_with_a_daemon_in_between(asking):
    (asking.workspace / "marker.txt").touch()
    with serving(asking):
        for flag, answer, code in (("-1", "no\n", 126), ("-a", "\x04", 75), ("-l", "yes\n", 0)):
            terminal = Terminal(asking, "run", "--", "ls", flag)
            terminal.until(QUESTION)
            terminal.type(answer)
            assert (terminal.end(), "marker.txt" in terminal.text) == (code, code == 0), terminal.text
        terminal = Terminal(asking, "run", "--", "ls")
        terminal.until(QUESTION)
        terminal.interrupt()
        assert terminal.end() == 130
        (done,) = json.loads(asking("approvals", "list", "--state", "approved", "--json").stdout)["items"]
        assert (done["self_approved"], done["uses"], done["decided_by"]) == (True, 1, done["principal"])
    assert verified(asking)


@promise("approvals.who-decides")
def test_at_the_terminal_an_agent_is_not_asked(asking):
    terminal = Terminal(asking, "run", "--as", "agent:demo", "--", "ls")
    assert (terminal.end(), QUESTION in terminal.text) == (75, False)


def test_a_pipe_cannot_confirm(asking):
    done = asking("run", "--", "ls", stdin=b"yes\n")
    assert done.returncode == 75
    ours, theirs = os.pipe()
    os.write(theirs, b"yes\n")
    terminal = Terminal(asking, "run", "--", "ls", stdin=ours)
    os.close(theirs)
    assert (terminal.end(), QUESTION in terminal.text) == (75, False)
    os.close(ours)


def test_one_line_in_the_bundle_turns_confirming_off(asking):
    policies = Path(asking.home) / "policies"
    policies.mkdir(mode=0o700)
    line = 'forbid (principal, action == Action::"approval::confirm", resource);'
    (policies / "four-eyes.cedar").write_text(f'@id("local.four-eyes")\n@reason("Four eyes.")\n{line}\n')
    terminal = Terminal(asking, "run", "--", "ls")
    assert (terminal.end(), QUESTION in terminal.text) == (75, False)
