"""`palyra run`: transparent, and the exit codes, streams and refusals of the contract."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.promises import promise


def test_the_listing_is_printed_and_exits_0(cli):
    (cli.workspace / "hello.txt").write_text("hi")
    done = cli("run", "--", "ls", "-la")
    assert (done.returncode, b"hello.txt" in done.stdout, done.stderr) == (0, True, b"")


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("cat", "/etc/shadow"), b"OUTSIDE_WORKSPACE"),
        (("bash", "-c", "id"), b"INTERPRETER_DENIED"),
        (("no-such-program",), b"EXECUTABLE_DENIED"),
        (("ls", "../.."), b"OUTSIDE_WORKSPACE"),
        (("pkill", "python"), b"EXECUTABLE_DENIED"),
        (("/bin/ls",), b"BAD_ARGUMENTS"),
    ],
)
def test_a_refusal_exits_126_with_a_code_and_a_hint(cli, argv, code):
    done = cli("run", "--", *argv)
    first, second, *third = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (126, b"")
    assert first.startswith(b"palyra: " + code + b": ")
    assert second.startswith(b"hint: ")
    # The command that allows it, only where one does: of these, of bash.
    assert [line[:28] for line in third] == [b"allow: palyra policy allow 0"] * (argv[0] == "bash")


def test_the_programs_own_exit_code_and_signal_come_through(cli):
    assert cli("run", "--", "false").returncode == 1
    assert cli("run", "--", "ls", "nothing-here").returncode == 2
    killed = cli("run", "--allow-interpreters", "--", "sh", "-c", "kill -SEGV $$")
    assert killed.returncode == 128 + signal.SIGSEGV


def test_an_allowed_program_that_is_not_there_exits_127(cli):
    assert cli("run", "--allow", "no-such-program", "--", "no-such-program").returncode == 127


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="this machine has no shared memory")
def test_a_workspace_in_shared_memory_is_written_and_its_neighbours_are_not_seen(cli):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place, tempfile.NamedTemporaryFile(dir="/dev/shm") as other:
        look = f"echo hi > new; ls /dev/shm; test -e {other.name} && echo seen"
        done = cli("run", "--workspace", place, "--allow-interpreters", "--", "sh", "-c", look)
        assert (done.stdout, done.stderr) == (f"{Path(place).name}\n".encode(), b"")
        assert Path(place, "new").read_text() == "hi\n"


def test_stdin_reaches_the_program_and_its_streams_stay_apart(cli):
    done = cli("run", "--", "cat", stdin=b"one\ntwo\n" * 50_000)
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n" * 50_000)
    apart = cli("run", "--allow-interpreters", "--", "sh", "-c", "echo out; echo err >&2")
    assert (apart.stdout, apart.stderr) == (b"out\n", b"err\n")


def test_binary_output_passes_unchanged(cli):
    data = bytes(range(256)) * 100
    (cli.workspace / "blob").write_bytes(data)
    assert cli("run", "--", "cat", "blob").stdout == data


def test_a_timeout_exits_124_promptly_and_leaves_no_process(cli):
    started = time.monotonic()
    done = cli("run", "--timeout", "1", "--", "sleep", "31.4159")
    assert done.returncode == 124
    assert time.monotonic() - started < 20, "it ends, though the machine may be busy"
    assert b"31.4159" not in _all_command_lines()


def _all_command_lines() -> bytes:
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                found.append(Path(entry.path, "cmdline").read_bytes())
            except OSError:
                continue
    return b"\n".join(line for line in found if not line.startswith(b"/usr/bin/python3\0-m\0pytest"))


def test_json_is_one_outcome_whose_attestation_verifies(cli, tmp_path):
    outcome = cli.outcome("run", "--json", "--", "git", "--version")
    assert outcome["success"] is True
    assert outcome["output"]["stdout"].startswith("git version")
    assert outcome["attestation"]["executor"] == "sandbox_tier_c_linux_bubblewrap"
    file = tmp_path / "outcome.json"
    file.write_text(json.dumps(outcome))
    assert cli("verify", str(file)).returncode == 0
    file.write_text(json.dumps(outcome | {"success": False}))
    assert cli("verify", str(file)).returncode == 1
    outcome["output"]["stdout"] += "!"
    file.write_text(json.dumps(outcome))
    assert cli("verify", str(file)).returncode == 1


def test_a_refusal_with_json_is_one_outcome_and_still_said_on_stderr(cli):
    done = cli("run", "--json", "--", "bash")
    assert (done.returncode, json.loads(done.stdout)["reason"]) == (126, "INTERPRETER_DENIED")
    assert [line.split(b":")[0] for line in done.stderr.splitlines()] == [b"palyra", b"hint", b"allow"]


@promise("calls.output-quota")
def test_the_output_quota_ends_a_flood_and_returns_what_was_captured(cli):
    outcome = cli.outcome("run", "--json", "--max-output", "100K", "--", "yes")
    assert (outcome["status"], outcome["reason"]) == ("quota_exceeded", "QUOTA_EXCEEDED")
    assert 90_000 < len(outcome["output"]["stdout"]) <= 102_400
    assert cli("run", "--max-output", "1K", "--", "yes").returncode == 137


def test_ctrl_c_ends_the_call_which_is_attested_as_cancelled(cli):
    process = cli.start("run", "--json", "--", "sleep", "30")
    _wait_until_open(cli)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, json.loads(out)["reason"]) == (130, "CANCELLED")


def _wait_until_open(cli) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        told = cli("journal", "tail", "--json")  # which finds no journal until the call has made one
        listed = json.loads(told.stdout)["items"] if told.returncode == 0 else []
        if any(item["entry"]["predicateType"].endswith(":intent:v1") for item in listed):
            return
        time.sleep(0.05)
    raise AssertionError("the call never started")


@promise("secrets.redacted-output")
def test_a_secret_in_the_output_is_redacted_on_the_way_to_the_terminal(cli):
    token = "ghp_" + "a1B2" * 9
    (cli.workspace / "config").write_text(f"token {token}\n")
    done = cli("run", "--", "cat", "config")
    assert token.encode() not in done.stdout
    assert b"[redacted:" in done.stdout


def test_the_environment_is_rebuilt_and_never_inherited(cli):
    os.environ["PALYRA_TEST_SECRET"] = "do-not-inherit"
    try:
        done = cli("run", "--allow", "env", "--allow-interpreters", "--env", "TZ=UTC", "--", "env")
    finally:
        del os.environ["PALYRA_TEST_SECRET"]
    names = {line.partition(b"=")[0] for line in done.stdout.splitlines()}
    assert done.returncode == 0, done.stderr
    assert b"TZ" in names
    assert names <= {b"PATH", b"HOME", b"USER", b"LANG", b"LC_ALL", b"TERM", b"TMPDIR", b"TZ", b"PWD", b"LOGNAME"}


@promise("commands.environment")
def test_a_banned_environment_key_is_refused_even_for_the_operator(cli):
    done = cli("run", "--env", "LD_PRELOAD=/tmp/x.so", "--", "ls")
    assert (done.returncode, b"BAD_ARGUMENTS" in done.stderr) == (126, True)


def test_arguments_that_are_not_utf8_are_refused_not_changed(cli):
    done = cli("run", "--json", "--", "cat", b"\xff")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["reason"]) == (126, "MALFORMED")
    entry = json.loads(cli("journal", "tail", "--json").stdout)["items"][-1]["entry"]
    assert entry["predicate"]["execution_sha256"] == outcome["attestation"]["execution_sha256"]


def test_a_command_that_wants_another_word_shows_its_help_and_nothing_else(cli):
    alone = cli("tools")
    assert (alone.returncode, alone.stdout) == (2, b"")
    assert alone.stderr == cli("tools", "--help").stdout


def test_wrong_usage_of_run_is_125_and_of_others_2(cli):
    assert cli("run").returncode == 125
    assert cli("run", "--nope", "--", "ls").returncode == 125
    assert cli("tools", "--nope").returncode == 2
    assert cli("nope").returncode == 2


@promise("workspace.system-folders")
def test_the_workspace_may_not_be_the_root_or_a_home(cli):
    for folder in ("/", os.path.expanduser("~"), "/usr", "/etc", str(cli.home)):
        done = cli("run", "--workspace", folder, "--", "ls")
        assert (done.returncode, b"hint:" in done.stderr) == (126, True), folder


WITHOUT = {
    "bubblewrap": (("-Urm",), "mount --bind /dev/null /usr/bin/bwrap", "bubblewrap"),
    "user namespaces": (("-Ur",), "echo 0 > /proc/sys/user/max_user_namespaces", "max_user_namespaces"),
}


@pytest.mark.parametrize("missing", WITHOUT)
def test_without_a_sandbox_nothing_runs_and_doctor_names_the_fix(cli, missing):
    flags, breakage, fix = WITHOUT[missing]

    def broken(*args: str) -> subprocess.CompletedProcess[bytes]:
        script = f'{breakage} && exec "$@"'
        argv = ["unshare", *flags, "sh", "-c", script, "sh", *cli.argv, *args]
        return subprocess.run(argv, cwd=cli.workspace, env=cli.environ, capture_output=True, timeout=60)

    marker = cli.workspace / "ran"
    done = broken("run", "--", "touch", "ran")
    assert (done.returncode, b"UNENFORCEABLE" in done.stderr, marker.exists()) == (126, True, False), done.stderr
    assert b"hint: " in done.stderr
    doctor = broken("doctor", "--json")
    assert doctor.returncode == 1
    broken_checks = [item for item in json.loads(doctor.stdout)["items"] if item["status"] == "broken"]
    assert any(fix in item["fix"] for item in broken_checks), broken_checks


def test_a_protected_file_that_was_not_there_is_reported_when_a_call_makes_it(cli):
    plain = cli.outcome("run", "--json", "--", "touch", "notes")
    made = cli.outcome("run", "--json", "--", "touch", ".env", "Jenkinsfile")
    assert "protected_created" not in plain["output"]
    assert made["output"]["protected_created"] == [".env", "Jenkinsfile"]
    again = cli("run", "--", "sh", "-c", "echo x >> Jenkinsfile")
    assert again.returncode == 126
    refused = cli("run", "--allow-interpreters", "--", "sh", "-c", "echo x >> Jenkinsfile")
    assert refused.returncode != 0, "it is read-only from now on"
