"""What people get wrong on the command line: a sentence, what to do, the contract's exit code, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from palyra.model.call import Tier
from tests.conformance.arena import require

NO_ID = "01J9ZQ6Z4T2C6M0R4W5X8Y1ABC"
WRONG: tuple[tuple[str, int, str], ...] = (
    # 2: no such command, option or value
    ("frobnicate", 2, "No such command 'frobnicate'"),
    ("help run", 2, "No such command 'help'. Did you mean '--help'?"),
    ("version", 2, "Did you mean '--version'?"),
    ("jurnal tail", 2, "Did you mean 'journal'?"),
    ("journal verfy", 2, "Did you mean 'verify'?"),
    ("journal tail --since never", 2, "'never' is not a time"),
    ("journal tail --reason INTERPRETER_DENID", 2, "Did you mean INTERPRETER_DENIED?"),
    ("journal tail --status denied", 2, "no entry says 'denied'."),
    ("policy check nowhere", 2, "nowhere is neither a file nor a folder"),
    ("policy diff nowhere", 2, "Name a folder of policies"),
    ("policy replay nowhere", 2, "Name a folder of policies"),
    ("policy diff bad.cedar", 2, "does not end with `;`"),
    ("secrets set bad/name", 2, "cannot be a secret's name"),
    ("serve --port 99999", 2, "not in the range"),
    ("mcp --workspace nowhere", 2, "does not exist"),
    ("call palyra.echo --wait nan", 125, "write seconds from 0 to 86400"),
    ("call palyra.echo --wait -1", 125, "write seconds from 0 to 86400"),
    ("--config /dev/null run -- ls", 125, "must be a regular file"),
    ("--config deep.toml run -- ls", 125, "too deep to be read"),
    ("--home /proc/nowhere run -- ls", 126, "hint: Name another --home."),
    ("verify nowhere", 2, "nowhere: No such file or directory"),
    ("verify outcome.json --key 9f86d081884c7d65", 2, "palyra doctor prints it as NAME+HASH+KEY"),
    # 1: what was asked does not hold
    ("explain EGRES_DENIED", 1, "hint: Did you mean EGRESS_DENIED? palyra explain lists them all."),
    ("explain nonsense", 1, "hint: palyra explain lists them all."),
    ("policy use nowhere", 1, "palyra: nowhere: No such file or directory."),
    ("policy rollback --json", 1, "hint: palyra policy versions lists every use."),
    ("init --posture developer", 1, 'hint: Write posture = "developer" into '),
    ("approvals approve nope", 1, "hint: palyra approvals list"),
    ("approvals show nope --json", 1, "hint: palyra approvals list"),
    ("token create --principal nope", 1, "hint: Write it as agent:demo or user:alice."),
    (f"journal show {NO_ID}", 1, "hint: palyra journal tail"),
    ("skills install bad.toml", 1, "This is not a skill package"),
    ("stop nope", 1, "hint: palyra ps --all"),
    # 125: our own error, and wrong usage of what is transparent
    ("run --wat -- ls", 125, "No such option '--wat'"),
    ("run --read nowhere -- ls", 125, "'nowhere' does not exist"),
    ("run --allow ./x -- ls", 125, "'./x' is not a program name"),
    ("run --timeout nan -- ls", 125, "write seconds from"),
    ("--config nowhere run -- ls", 125, "hint: Check the path"),
    ("--config bad.toml run -- ls", 125, "at line 1"),
    ("--home bad.toml run -- ls", 125, "is not a folder"),
    ("--config near.toml run -- ls", 125, "Did you mean allowed_executables?"),
    ("--config credential.toml run -- ls", 125, "A credential has no secret."),
    ("serve --host 0.0.0.0 --port 0", 125, "can be reached from other machines"),
    # 126: the call is refused
    (
        "run --workspace nowhere -- ls",
        126,
        "hint: Use a folder of yours: mkdir -p /tmp/try && cd /tmp/try, or --workspace DIR",
    ),
    ("run --allow-host http://x.test/y -- ls", 126, "is a URL; a grant names a host.\nhint: Write x.test instead."),
    ("run --allow-raw db.test -- ls", 126, "'db.test' is not one host and port, which raw is for."),
    ("run -- ./script.sh", 126, "hint: For an installed program use command="),
    ("call palyra.echo {bad", 126, "MALFORMED"),
    ("call palyra.fs.write {}", 126, "needs exactly one of text, base64"),
    ("run --allow-host example.org:99999 -- ls", 126, "hint: Write a host as example.com, example.com:8443,"),
    # 2 again, now that there is something to export
    ("journal tail --before 99999999999999999999", 2, "is not in the range"),
    ("journal export --output nowhere/x", 2, "there is no folder nowhere"),
    ("journal export --output .", 2, "--output: . is a folder"),
)


def shell(cli: Any, script: str) -> subprocess.CompletedProcess[bytes]:
    """With mounts of its own, where root may have them; `"$@"` is palyra with its home."""
    own = ["unshare", "--mount"] if os.geteuid() == 0 else []
    words = [*own, "bash", "-c", script, "bash", *cli.argv]
    return subprocess.run(words, cwd=cli.workspace, env=cli.environ, capture_output=True, timeout=120)


def test_every_mistake_is_answered_with_a_sentence_and_the_right_code(cli: Any) -> None:
    (cli.workspace / "bad.toml").write_text("posture =\n")
    (cli.workspace / "bad.cedar").write_text("permit(\n")
    (cli.workspace / "deep.toml").write_text(f"x = {'[' * 5000}{']' * 5000}\n")
    (cli.workspace / "near.toml").write_text('[tool_call.process_runner]\nalowed_executables = ["ls"]\n')
    (cli.workspace / "credential.toml").write_text('[[credentials]]\nhost = "api.example.com"\n')
    (cli.workspace / "outcome.json").write_text("{}")
    assert cli("init").returncode == 0
    wrong = []
    for line, code, said in WRONG:
        done = cli(*line.split())
        told = done.stderr.decode()
        if done.returncode != code or said not in told or "Traceback" in told or "internal error" in told:
            wrong.append((line, done.returncode, told[-400:]))
    assert wrong == []


def test_a_port_in_use_is_named(cli: Any) -> None:
    from tests.serving import serving

    require(Tier.C)
    with serving(cli) as first:
        other = type(cli)(cli.home.with_name("other"), cli.workspace)
        done = other("serve", "--port", str(first.port))
    told = done.stderr.decode()
    assert (done.returncode, f"Port {first.port} of 127.0.0.1" in told, "Traceback" in told) == (125, True, False), told
    assert ", palyra serve)" in told
    assert "hint: Use --port " in told


def test_a_doctor_tells_of_a_configuration_that_cannot_be_read_and_of_all_the_rest(cli: Any) -> None:
    cli.home.mkdir(mode=0o700)
    (cli.home / "palyra.toml").write_text("posture =\n")
    done = cli("doctor", "--json")
    items = {item["check"]: item for item in json.loads(done.stdout)["items"]}
    assert (done.returncode, items["host"]["status"], items["config"]["status"]) == (1, "ok", "broken")
    assert "at line 1" in items["config"]["detail"]
    assert "palyra init" in items["config"]["fix"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_disk_that_fills_up_leaves_no_half_of_a_configuration_and_names_the_file(cli: Any, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f"""mount -t tmpfs -o size=20k tmpfs {disk} && head -c 64k /dev/zero > {disk}/full 2>/dev/null
        "$@" --home {disk}/home init; echo "exit $?"; find {disk}/home -name palyra.toml"""
    done = shell(cli, script)
    assert b"exit 125" in done.stdout
    assert b"palyra.toml" not in done.stdout
    assert b"No space left on device" in done.stderr


def test_output_that_cannot_be_written_is_an_error_of_its_own(cli: Any) -> None:
    cli("run", "--", "true")
    for words in ("journal tail --json", "tools list --json", "--help"):
        done = shell(cli, f'"$@" {words} > /dev/full')
        assert (done.returncode, b"No space left on device" in done.stderr) == (125, True), words


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk read-only")
def test_a_daemon_on_a_read_only_disk_says_so_without_a_traceback(cli: Any) -> None:
    cli("run", "--", "true")
    done = shell(cli, f'mount --bind -o ro {cli.home} {cli.home} && "$@" serve --port 0')
    told = done.stderr.decode()
    assert (done.returncode, "Read-only file system" in told, "Traceback" in told) == (125, True, False), told


@pytest.mark.parametrize(
    "words",
    [
        *(f"journal {verb}" for verb in ("show", "prove", "redact")),
        *(f"approvals {verb}" for verb in ("show", "approve", "deny", "revoke")),
        *("runs show", "token revoke", "policy explain", "skills show", "skills enable", "logs", "stop", "explain"),
    ],
)
def test_a_name_that_is_no_text_is_wrong_usage_or_nobodys(cli: Any, words: str) -> None:
    cli("call", "palyra.echo")
    done = subprocess.run(
        [*map(os.fsencode, cli.argv), *words.encode().split(), b"\xff"],
        cwd=cli.workspace,
        env=cli.environ,
        capture_output=True,
        check=False,
    )
    assert done.returncode in (1, 2)
    assert b"internal error" not in done.stderr
    assert b"hint: " in done.stderr


def test_an_argument_that_is_no_text_is_refused_in_words_of_the_command_line(cli: Any) -> None:
    words = [*map(os.fsencode, cli.argv), b"run", b"--", b"echo", b"a", b"\xff"]
    done = subprocess.run(words, cwd=cli.workspace, env=cli.environ, capture_output=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        126,
        b"palyra: MALFORMED: Argument 2 is not text in UTF-8.",
    )
    assert b"MALFORMED" in cli("journal", "tail").stdout


def test_text_is_text_in_a_locale_of_bytes(cli: Any) -> None:
    plain = cli.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = [*cli.argv, "run", "--", "echo", "\u00fc"]
    done = subprocess.run(words, cwd=cli.workspace, env=plain, capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, "\u00fc\n", b"")
