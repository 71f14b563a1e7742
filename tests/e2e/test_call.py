"""`palyra call` and what bad input becomes: a coded, journaled refusal, never a traceback."""

from __future__ import annotations

import json

import pytest

from tests.promises import promise


def test_echo_returns_what_it_was_given(cli):
    outcome = cli.outcome("call", "palyra.echo", '{"a": [1, 2.5, null, "é"]}', "--json")
    assert (outcome["status"], outcome["output"]) == ("completed", {"a": [1, 2.5, None, "é"]})
    assert outcome["attestation"]["executor"] == "builtin"


@promise("calls.strict-input")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "MALFORMED"),
        (b'{"a": 1, "a": 2}', "MALFORMED"),
        (b"\xff\xfe", "MALFORMED"),
        (b"[" * 100_000, "TOO_LARGE"),
        (b"[" * 60_000, "MALFORMED"),
        (b" " * (10 << 20), "TOO_LARGE"),
        (b"[]", "MALFORMED"),
    ],
)
def test_bad_bytes_are_a_coded_journaled_refusal(cli, data, reason):
    done = cli("call", "palyra.echo", "-", "--json", stdin=data)
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["status"], outcome["reason"]) == (126, "refused", reason)
    assert b"Traceback" not in done.stderr
    entry = json.loads(cli("journal", "tail", "--json").stdout)["items"][-1]["entry"]
    assert entry["predicate"]["execution_sha256"] == outcome["attestation"]["execution_sha256"]


@pytest.mark.parametrize(
    ("tool", "given", "reason"),
    [
        ("palyra.nope", "{}", "UNKNOWN_TOOL"),
        ("palyra.process.run", '{"command": "ls", "surprise": 1}', "BAD_ARGUMENTS"),
        ("palyra.process.run", '{"command": "ls -la"}', "BAD_ARGUMENTS"),
        ("palyra.process.run", "{}", "BAD_ARGUMENTS"),
        ("palyra.artifact.read", '{"artifact_id": "01HF7YAT00000000000000ARTF"}', "BAD_ARGUMENTS"),
    ],
)
def test_unknown_tools_and_keys_are_refused(cli, tool, given, reason):
    outcome = cli.outcome("call", tool, given, "--json")
    assert (outcome["status"], outcome["reason"]) == ("refused", reason)


def test_a_failed_program_exits_1_and_shows_its_output(cli):
    done = cli("call", "palyra.process.run", '{"command": "ls", "args": ["missing"]}')
    assert (done.returncode, b"missing" in done.stderr) == (1, True)


def test_calls_of_one_run_share_its_budget(cli):
    run = "01HF7YAT000000000000000RVN"
    used = [cli.outcome("call", "palyra.echo", "{}", "--run", run, "--json")["budget"]["calls_used"] for _ in range(3)]
    assert used == [1, 2, 3]


@promise("calls.run-owner")
def test_another_principal_cannot_use_up_or_see_a_run_of_mine(cli):
    run = "01HF7YAT000000000000000RVN"
    cli.outcome("call", "palyra.echo", "{}", "--run", run, "--as", "user:alice", "--json")
    other = cli.outcome("call", "palyra.echo", "{}", "--run", run, "--as", "agent:mallory", "--json")
    assert (other["status"], other["reason"]) == ("refused", "CAPABILITY_DENIED")


def test_tools_are_listed_and_shown_with_their_schemas(cli):
    listed = json.loads(cli("tools", "list", "--json").stdout)
    assert {"palyra.echo", "palyra.process.run", "palyra.artifact.read"} <= {item["name"] for item in listed["items"]}
    shown = json.loads(cli("tools", "show", "palyra.process.run", "--json").stdout)
    assert shown["input_schema"]["additionalProperties"] is False
    assert cli("tools", "show", "palyra.nope").returncode == 1


def test_global_options_are_accepted_before_and_after_the_command(cli):
    import subprocess
    import sys

    before = subprocess.run(
        [sys.executable, "-m", "palyra", "--json", "--home", str(cli.home), "tools", "list"],
        env=cli.environ, capture_output=True,
    )  # fmt: skip
    after = subprocess.run(
        [sys.executable, "-m", "palyra", "tools", "list", "--home", str(cli.home), "--json"],
        env=cli.environ, capture_output=True,
    )  # fmt: skip
    assert before.stdout == after.stdout
    assert json.loads(before.stdout)["next"] is None


@pytest.mark.parametrize("flags", [("--as", "nobody"), ("--run", "not-a-ulid"), ("--device", "d" * 5000)])
def test_a_flag_that_cannot_be_used_is_a_recorded_refusal_too(cli, flags):
    done = cli("call", "palyra.echo", "{}", "--json", *flags)
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["status"], outcome["reason"]) == (126, "refused", "BAD_ARGUMENTS")
    entry = json.loads(cli("journal", "tail", "--json").stdout)["items"][-1]["entry"]
    assert entry["predicate"]["execution_sha256"] == outcome["attestation"]["execution_sha256"]


def test_the_flag_a_refusal_names_is_a_flag_of_the_command_that_was_refused(cli):
    given = '{"command": "bash", "args": ["-c", "echo $FOO"]}'
    refused = cli("call", "palyra.process.run", given)
    assert (refused.returncode, b"--allow-interpreters" in refused.stderr) == (126, True)
    allowed = cli("call", "palyra.process.run", given, "--allow-interpreters", "--env", "FOO=granted")
    assert (allowed.returncode, allowed.stdout) == (0, b"granted\n")


def test_an_empty_result_is_shown_as_one(cli):
    assert cli("call", "palyra.echo").stdout == b"{}\n"
