"""What frameworks send, as calls; what came of them, as frameworks want it."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from palyra.adapters.running import MAX_ARG_BYTES, command_input, explain, read_outcome, shell_words, without_shell
from palyra.errors import Reason
from palyra.model.outcome import Outcome, Status

DONE = Outcome(
    call_id="01JG0000000000000000000001",
    run_id="01JG0000000000000000000002",
    tool="palyra.process.run",
    status=Status.COMPLETED,
    success=True,
    output={"exit_code": 0, "signal": None, "stdout": "out", "stderr": "err"},
)
REFUSED = replace(
    DONE,
    status=Status.REFUSED,
    success=False,
    reason=Reason.OUTSIDE_WORKSPACE,
    message="Too far.",
    hint="Come back.",
    output={},
)


def test_a_line_that_is_one_plain_program_is_that_program():
    assert shell_words("ls -la 'a b'") == ["ls", "-la", "a b"]
    assert without_shell(["bash", "--login", "-c", "ls x"]) == ["ls", "x"]


@pytest.mark.parametrize("line", ["ls | wc", "ls > x", "echo $X", "cd x", "no-such-program-anywhere", "exit 7"])
def test_any_other_line_is_a_shells(line):
    assert shell_words(line) == ["sh", "-c", line]
    assert without_shell(["bash", "-c", line]) == ["bash", "-c", line]


def test_a_shell_with_arguments_of_its_own_stays_one():
    words = ["sh", "-c", "ls", "sh", "x"]
    assert without_shell(words) == words
    assert without_shell(["bash", "-x", "-c", "ls"]) == ["bash", "-x", "-c", "ls"]


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 5000, "a b 'c' $d\n" * 1000])
def test_a_long_line_comes_whole_to_the_shell_inside(text):
    line = f"cat <<'END_OF_IT'\n{text}\nEND_OF_IT"
    words = shell_words(line)
    assert all(len(word.encode()) <= MAX_ARG_BYTES for word in words)
    assert subprocess.run(words, capture_output=True, check=True).stdout.decode() == text + "\n"


def test_an_environment_is_set_inside_and_words_that_are_too_long_become_a_line():
    given = command_input(["printenv", "X"], env={"X": "1"}, cwd="sub", stdin="in", timeout_s=1.5)
    assert given == {
        "command": "env",
        "args": ["X=1", "printenv", "X"],
        "cwd": "sub",
        "stdin": "in",
        "timeout_ms": 1500,
    }
    assert command_input(["echo", "y" * 5000])["command"] == "sh"


def test_a_finished_program_is_its_exit_code_and_a_killed_one_128_and_the_signal():
    ran = read_outcome(DONE)
    assert (ran.exit_code, ran.stdout, ran.stderr, ran.refused) == (0, "out", "err", False)
    killed = read_outcome(replace(DONE, output={"exit_code": None, "signal": 9}))
    assert killed.exit_code == 137


def test_a_refusal_is_126_with_the_reason_where_a_model_reads_it():
    ran = read_outcome(REFUSED, "cat")
    assert (ran.exit_code, ran.refused) == (126, True)
    assert ran.stderr == "palyra: OUTSIDE_WORKSPACE: Too far.\nhint: Come back.\n" == explain(REFUSED)


def test_a_program_that_is_nowhere_is_127_and_one_that_is_forbidden_126():
    denied = replace(REFUSED, reason=Reason.EXECUTABLE_DENIED)
    assert read_outcome(denied, "no-such-program-anywhere").exit_code == 127
    assert read_outcome(denied, "sh").exit_code == 126


@pytest.mark.parametrize(
    ("status", "code", "timed_out", "truncated"),
    [
        (Status.TIMEOUT, 124, True, False),
        (Status.QUOTA_EXCEEDED, 137, False, True),
        (Status.PENDING_APPROVAL, 126, False, False),
        (Status.FAILED, 125, False, False),
    ],
)
def test_other_endings_have_the_codes_of_palyra_run(status, code, timed_out, truncated):
    ran = read_outcome(replace(REFUSED, status=status))
    assert (ran.exit_code, ran.timed_out, ran.truncated) == (code, timed_out, truncated)
