"""The command line in surroundings that are broken or hostile: closed streams, odd homes, names with escapes."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest


def shell(cli, script: str, **extra: str) -> subprocess.CompletedProcess[bytes]:
    """`$@` is palyra with its home."""
    return subprocess.run(
        ["bash", "-c", script, "bash", *cli.argv],
        cwd=cli.workspace,
        env=cli.environ | extra,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )


# ── streams that are closed, full or left ──


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_good_as_dev_null(cli, closed):
    done = shell(cli, f'"$@" run -- ls {closed}; a=$?; "$@" call palyra.echo {{}} --json {closed}; echo $a $? >&2')
    assert done.stderr == b"0 0\n"


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_doctor_finds_the_same_with_a_closed_stream(cli, closed):
    whole, part = shell(cli, '"$@" doctor --json'), shell(cli, f'"$@" doctor --json {closed}')
    assert (part.returncode, json.loads(part.stdout)["ok"]) == (whole.returncode, json.loads(whole.stdout)["ok"])


def test_a_reader_that_leaves_cancels_the_call_quietly_with_141(cli):
    big = cli.workspace / "big"
    big.write_bytes(b"a" * (20 << 20))
    big.chmod(0o644)
    done = shell(cli, '"$@" run -- cat big | head -c1; exit ${PIPESTATUS[0]}')
    assert (done.returncode, done.stdout, done.stderr) == (141, b"a", b"")
    assert b"CANCELLED" in cli("journal", "tail", "-n", "1").stdout
    assert cli("journal", "verify").returncode == 0


@pytest.mark.parametrize("program", ["ls -la", "yes"])
def test_a_full_disk_is_named_and_no_success_and_the_call_is_on_record(cli, program):
    done = shell(cli, f'"$@" run -- {program} >/dev/full')
    said, hint = done.stderr.decode().splitlines()
    assert (done.returncode, said) == (125, "palyra: The output could not be written: No space left on device.")
    record = cli("journal", "show", hint.split("palyra journal show ")[1].split()[0]).stdout.decode()
    ended = "cancelled" if hint.startswith("hint: The call was cancelled;") else "completed"
    assert ended == "cancelled" or hint.startswith("hint: The program ran to its end;")
    assert ended in record
    assert (ended == "cancelled") or program != "yes"


def test_a_full_disk_under_both_streams_is_no_broken_pipe(cli):
    for words in ("run -- ls -la", "run -- sh", "tools list", "run --frobnicate -- ls"):
        done = shell(cli, f'"$@" {words} >/dev/full 2>/dev/full')
        assert (words, done.returncode) in {(words, 125), ("run -- sh", 126)}


@pytest.mark.parametrize(
    "words", ["--help", "tools list", "journal verify", "run --json -- ls", "call palyra.echo '{\"a\":1}'"]
)
def test_a_broken_pipe_is_141_in_every_command(cli, words):
    cli("call", "palyra.echo")  # so that there is a journal
    # The reader is gone before the first byte.
    gone = shell(cli, f'mkfifo f; (exec 3<f; exec 3<&-) & exec 4>f; wait; "$@" {words} >&4')
    assert (gone.returncode, gone.stderr) == (141, b"")


def test_what_latin_1_cannot_write_is_spelled_out(cli):
    done = shell(cli, '"$@" --home "$PWD/\u4e2d" init', PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u4e2d" in done.stdout


# ── usage ──


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e308", "-1", "0"])
def test_a_timeout_that_is_no_time_is_wrong_usage(cli, seconds):
    done = cli("run", "--timeout", seconds, "--", "ls")
    assert (done.returncode, b"--timeout" in done.stderr, b"internal" in done.stderr) == (125, True, False)


def test_a_size_of_five_thousand_digits_is_wrong_usage(cli):
    done = cli("run", "--memory", "9" * 5000, "--", "ls")
    assert (done.returncode, b"--memory" in done.stderr, b"internal" in done.stderr) == (125, True, False)


def test_a_deleted_current_folder_is_said_in_a_sentence(cli):
    script = 'mkdir gone; cd gone; rmdir ../gone; "$@" {}'
    for words, code in (("run -- ls", 125), ("call palyra.echo {}", 125), ("--home here policy show", 2)):
        done = shell(cli, script.replace("{}", words, 1))
        assert (done.returncode, b"current folder" in done.stderr) == (code, True), (words, done.stderr)


def test_a_home_that_cannot_be_one_is_wrong_usage(cli):
    for home in ("/tmp/" + "a" * 300, b"/tmp/\xff"):
        for words, code in ((("init", "--json"), 2), (("run", "--", "ls"), 125)):
            done = cli("--home", home, *words)
            assert (done.returncode, b"--home" in done.stderr, b"internal" in done.stderr) == (code, True, False)


def test_an_options_value_named_like_a_command_changes_no_exit_code(cli):
    assert cli("--home", "run", "journal", "tail", "--nosuch").returncode == 2


def test_init_under_umask_0_writes_what_the_next_command_accepts(cli):
    done = shell(cli, 'umask 0; "$@" init && "$@" policy show && "$@" run -- ls')
    assert done.returncode == 0, done.stderr
    modes = {path.stat().st_mode & 0o777 for path in (cli.home, cli.home / "policies")}
    assert (modes, (cli.home / "palyra.toml").stat().st_mode & 0o777) == ({0o700}, 0o600)


# ── errors ──


def test_a_broken_policy_stops_run_with_its_line_and_leaves_other_commands_alone(cli):
    cli("init")
    (cli.home / "policies" / "mine.cedar").write_text('\n@id("x") permit (principal, action, resource) when { 1 };')
    done = cli("run", "--", "ls")
    first, second = done.stderr.splitlines()
    assert b"palyra policy check" in second
    assert (done.returncode, b"mine.cedar:2: policy 'x'" in first, b"Traceback" in done.stderr) == (125, True, False)
    assert cli("journal", "verify").returncode == 0
    assert cli("ps").returncode == 0


@pytest.mark.parametrize("name", ["palyra.toml", "policies"])
def test_a_dangling_link_never_drops_the_operators_rules(cli, name):
    cli.home.mkdir(mode=0o700)
    (cli.home / name).symlink_to("nowhere")
    done = cli("run", "--", "ls")
    assert (done.returncode, name.encode() in done.stderr, done.stdout) == (125, True, b"")


@pytest.mark.parametrize("words", [("explain", "NOPE"), ("tools", "show", "nope")])
def test_with_json_an_error_is_json_too(cli, words):
    done = cli(*words, "--json")
    assert (done.returncode, set(json.loads(done.stdout)["error"])) == (1, {"code", "message", "hint"})


def test_the_demo_with_json_is_one_value(cli):
    done = cli("demo", "--json")
    value = json.loads(done.stdout)
    assert (done.returncode, value["ok"], {step["as_expected"] for step in value["steps"]}) == (0, True, {True})
    shown = {(step["status"], step["reason"]) for step in value["steps"]}
    assert {("completed", None), ("refused", "INTERPRETER_DENIED"), ("pending_approval", None)} <= shown
    assert "demo.echo: completed" in {step["title"] for step in value["steps"]}, "a skill is part of it"


# ── terminals ──


def test_no_escape_in_a_name_reaches_the_terminal(cli):
    given = '{"command": "a\\u001b[31m\\u202e\\u009bb"}'
    for words in (
        ("policy", "explain", "--tool", "palyra.process.run", "--input", given),
        ("sandbox", "explain", "--", "a\x1b[31m\u202e"),
        ("policy", "\x1b[31m\u202e"),
        ("--config", "/no\x1b[31m\u202ewhere", "policy", "show"),
        ("explain", "\x1b[31m"),
    ):
        done = cli(*words)
        said = done.stdout + done.stderr
        assert said
        assert not {"\x1b", "\u202e", "\x9b"} & set(said.decode()), words


def test_call_passes_bytes_on_unchanged_but_not_to_a_terminal(cli):
    (cli.workspace / "x").write_text("\x1b[31m\n")
    (cli.workspace / "x").chmod(0o644)
    words = ("call", "palyra.process.run", '{"command": "cat", "args": ["x"]}')
    assert cli(*words).stdout == b"\x1b[31m\n"
    ours, theirs = pty.openpty()
    subprocess.run([*cli.argv, *words], cwd=cli.workspace, env=cli.environ, stdout=theirs, timeout=60, check=True)
    os.close(theirs)
    assert os.read(ours, 1000) == b"\\x1b[31m\r\n"
    os.close(ours)


def test_a_refusal_begins_a_line_of_its_own_at_a_terminal_and_nothing_is_added_for_a_pipe(cli):
    words = ("run", "--max-output", "3", "--", "printf", "12345678")
    assert cli(*words).stderr.startswith(b"palyra: QUOTA_EXCEEDED")
    ours, theirs = pty.openpty()
    subprocess.run([*cli.argv, *words], cwd=cli.workspace, env=cli.environ, stdout=theirs, stderr=theirs, timeout=60)
    os.close(theirs)
    shown = os.read(ours, 1000)
    os.close(ours)
    assert shown.split(b"\r\n")[1].startswith(b"palyra: QUOTA_EXCEEDED")
