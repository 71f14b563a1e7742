"""What holds for every command: --json is one JSON value also when it fails; global options stand where one likes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

NOWHERE = "01HF7YAT0000000000000000AA"


def one_value(done):
    lines = done.stdout.splitlines()
    assert len(lines) == 1, (done.stdout, done.stderr)
    return json.loads(lines[0])


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["console"], "UNREACHABLE", 1),
        (["logs", NOWHERE], "NOT_FOUND", 1),
        (["stop", NOWHERE], "NOT_FOUND", 1),
        (["token", "revoke", NOWHERE], "NOT_FOUND", 1),
        (["runs", "show", NOWHERE], "NOT_FOUND", 1),
        (["secrets", "delete", "NOPE"], "NOT_FOUND", 1),
        (["journal", "show", NOWHERE], "NOT_FOUND", 1),
        (["tools", "show", "palyra.nope"], "UNKNOWN_TOOL", 1),
        (["explain", "NOPE"], "BAD_ARGUMENTS", 1),
        (["secrets", "set", "EMPTY"], "BAD_ARGUMENTS", 1),
        (["policy", "diff", "./nowhere"], "USAGE", 2),
        (["policy", "nope"], "USAGE", 2),
        (["call", "palyra.echo", "{}", "--bogus"], "USAGE", 125),
    ],
)
def test_every_command_takes_json_and_writes_one_json_value_also_when_it_fails(cli, words, code, exit_code):
    if words[0] == "journal":
        cli("call", "palyra.echo", "{}")
    done = cli(*words, "--json")
    error = one_value(done)["error"]
    assert (error["code"], done.returncode) == (code, exit_code)
    assert set(error) == {"code", "message", "hint"}
    assert error["message"] in done.stderr.decode()


@pytest.mark.parametrize("words", [["call", "palyra.echo", "{}"], ["tools", "list"], ["run", "--", "ls"]])
def test_a_configuration_that_cannot_be_read_is_one_json_value_too(cli, words):
    cli.home.mkdir(mode=0o700)
    (cli.home / "palyra.toml").write_text("bogus = 1\n")
    (cli.home / "palyra.toml").chmod(0o600)
    done = cli("--json", *words)
    error = one_value(done)["error"]
    assert (error["code"], done.returncode) == ("CONFIG", 125)
    assert "palyra.toml:1: Unknown key bogus." in error["message"]


@pytest.mark.parametrize("words", [("--help",), ("serve", "--help")])
def test_what_the_help_of_palyrad_names_is_a_command(cli, words):
    """`palyrad --help` named `palyrad serve`, which was `palyra serve serve`."""
    program = "import sys; sys.argv[0] = 'palyrad'; from palyra.cli.entry import serve_main; serve_main()"
    done = subprocess.run([sys.executable, "-c", program, *words], env=cli.environ, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Usage: palyrad serve [OPTIONS]")


def test_a_journal_that_is_not_there_is_one_json_value(cli):
    done = cli("journal", "verify", "--json")
    assert (one_value(done)["error"]["code"], done.returncode) == ("JOURNAL_DOWN", 1)


@pytest.mark.parametrize("words", [["run", "--", "ls"], ["call", "palyra.echo", "{}"]])
def test_a_call_that_cannot_be_recorded_is_refused_with_journal_down_and_126(cli, words):
    (cli.home / "state").mkdir(parents=True, mode=0o700)
    (cli.home / "state" / "palyra.db").write_bytes(b"this is no database" * 300)
    done = cli(*words)
    assert (done.returncode, done.stderr.startswith(b"palyra: JOURNAL_DOWN: "), done.stdout) == (126, True, b"")
    assert done.stderr.splitlines()[1].startswith(b"hint: ")


@pytest.mark.parametrize(
    "words",
    [["--json", "tools", "list"], ["tools", "--json", "list"], ["tools", "list", "--json"]],
)
def test_global_options_are_accepted_before_and_after_the_commands_name(cli, words):
    assert "palyra.echo" in {item["name"] for item in one_value(cli(*words))["items"]}


def test_a_home_between_the_noun_and_its_verb_is_the_home(cli, tmp_path):
    other = tmp_path / "other"
    assert cli("token", "--home", str(other), "--json", "create", "--principal", "agent:a").returncode == 0
    assert one_value(cli("token", "--home", str(other), "list", "--json"))["items"][0]["principal"] == "agent:a"
    assert one_value(cli("token", "list", "--json"))["items"] == []
    assert one_value(cli("skills", "trust", "--json", "list"))["items"] == []


def test_a_replay_tells_of_the_journal_it_replayed(cli):
    cli("call", "palyra.echo", "{}")
    told = one_value(cli("journal", "verify", "--replay", "--json"))
    assert (told["ok"], told["entries"], told["decisions"], told["items"]) == (True, 2, 1, [])
    said = cli("journal", "verify", "--replay").stdout.decode()
    assert "The journal verifies: 2 entries" in said
    assert "1 decisions were made again" in said


def test_bench_names_its_rows(cli):
    """What it measures is the machine's business; that it is there, and refuses what it does not know, is ours."""
    done = cli("bench", "no_such_row", "--json")
    assert (done.returncode, one_value(done)["error"]["code"]) == (2, "USAGE")
    assert b"no such row: no_such_row; there are tier_b, " in done.stderr


def test_words_complete_in_a_shell(cli):
    """Shell completions: nouns, verbs, also those whose module is imported only when it is run."""

    def completed(words: str, at: int) -> list[str]:
        environ = {**cli.environ, "_PALYRA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        start = "import sys; sys.argv[0] = 'palyra'; from palyra.cli.main import main; main()"
        done = subprocess.run([sys.executable, "-c", start], env=environ, capture_output=True, timeout=60)
        return [line.partition(",")[2] for line in done.stdout.decode().splitlines()]

    assert completed("palyra appr", 1) == ["approvals"]
    assert {"check", "explain", "use"} <= set(completed("palyra policy ", 2))
