"""The hook as a host starts it: with a daemon, without one, and when something is wrong."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from palyra.cli import hook_entry
from tests.command_line import Cli
from tests.folders import open_folder
from tests.serving import serving

ENTRY = Path(hook_entry.__file__)


def start(cli, agent: str, event: bytes, home: Path | None = None) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-I", "-S", str(ENTRY), agent, str(home or cli.home)]
    return subprocess.run(words, input=event, capture_output=True, env=cli.environ, timeout=60)


def claude(cli, command: str) -> bytes:
    event = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": command},
        "cwd": str(cli.workspace),
        "session_id": "story",
    }
    return json.dumps(event).encode()


def said(done: subprocess.CompletedProcess[bytes]) -> tuple[str, str]:
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)["hookSpecificOutput"]
    return value["permissionDecision"], value["permissionDecisionReason"]


def answers(cli) -> list[dict[str, Any]]:
    items = json.loads(cli("journal", "tail", "-n", "100", "--json").stdout)["items"]
    found = [item["entry"]["predicate"] for item in items]
    return [predicate["details"] for predicate in found if predicate.get("act") == "hook.answered"]


@pytest.fixture
def daemon(cli):
    words = [*cli.argv, "serve", "--port", "0", "--json"]
    with subprocess.Popen(words, cwd=cli.workspace, env=cli.environ, stdout=subprocess.PIPE) as running:
        running.stdout.readline()
        yield cli
        running.terminate()
        assert running.wait(30) == 0


def story(cli) -> None:
    assert said(start(cli, "claude-code", claude(cli, "pwd && ls")))[0] == "allow"
    permission, reason = said(start(cli, "claude-code", claude(cli, "cat /etc/shadow")))
    assert permission == "deny"
    assert "OUTSIDE_WORKSPACE" in reason
    permission, reason = said(start(cli, "claude-code", claude(cli, "ls; python3 -c 'import os'")))
    assert (permission, "INTERPRETER_DENIED" in reason) == ("deny", True)
    wrong = start(cli, "codex", b"not an event")
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert wrong.stderr.startswith(b"palyra: MALFORMED: ")


def test_a_hook_with_a_daemon_answers_from_the_policies_and_is_journaled(daemon):
    story(daemon)
    assert [(found["permission"], found["reason"]) for found in answers(daemon)][-4:] == [
        ("allow", None),
        ("deny", "OUTSIDE_WORKSPACE"),
        ("deny", "INTERPRETER_DENIED"),
        ("deny", "MALFORMED"),
    ]


def test_a_hook_finds_a_daemon_whose_socket_is_elsewhere(cli, tmp_path):
    with serving(cli, "--socket", str(tmp_path / "elsewhere.sock")) as served:
        assert served.socket == tmp_path / "elsewhere.sock"
        line = hook_entry.connect(str(cli.home))
        assert line is not None
        line.close()
        served.end(signal.SIGKILL)
    assert hook_entry.connect(str(cli.home)) is None
    with serving(cli) as served:
        line = hook_entry.connect(str(cli.home))
        assert line is not None
        line.close()
        assert served.end()[0] == 0


def test_a_hook_without_a_daemon_says_the_same(cli):
    story(cli)
    found = answers(cli)
    assert [one["permission"] for one in found] == ["allow", "deny", "deny", "deny"]
    assert found[0]["programs"] == ["pwd", "ls"]
    assert "/etc/shadow" not in json.dumps(found)
    assert cli("journal", "verify").returncode == 0


def test_what_policy_asks_about_is_asked_of_the_hosts_user_and_denied_where_there_is_nobody(cli):
    cli.home.mkdir(mode=0o700)
    (cli.home / "palyra.toml").write_text('[tool_call.process_runner]\negress_enforcement_mode = "none"\n')
    assert said(start(cli, "claude-code", claude(cli, "ls")))[0] == "ask"
    assert said(start(cli, "codex", claude(cli, "ls")))[0] == "deny"


def test_a_policy_that_cannot_be_read_is_a_no(cli):
    (cli.home / "policies").mkdir(parents=True, mode=0o700)
    cli.home.chmod(0o700)
    (cli.home / "policies" / "broken.cedar").write_text("permit (")
    done = start(cli, "claude-code", claude(cli, "ls"))
    assert done.returncode == 2 or said(done)[0] == "deny"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 500 Broken\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}\n",
        b"HTTP/1.1 200 OK\r\nPalyra-Exit: x\r\nContent-Length: 3\r\n\r\n{}\n",
        b"\xff" * 100,
    ],
)
def test_a_daemon_that_answers_badly_is_a_no(cli, tmp_path, answer):
    """A connection that breaks, an error, an answer cut short or without its exit code."""
    home = tmp_path / "h"
    (home / "run").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "run" / "palyrad.sock"))
        listener.listen()

        def reply() -> None:
            line, _ = listener.accept()
            line.recv(65536)
            line.sendall(answer)
            line.close()

        replying = threading.Thread(target=reply)
        replying.start()
        done = start(cli, "claude-code", claude(cli, "ls"), home)
        replying.join()
    assert done.returncode == 2
    assert done.stdout == b""


@pytest.mark.parametrize("words", [[], ["claude-code"], ["claude-code", "a", "b"]])
def test_a_hook_that_is_installed_wrongly_is_a_no(words):
    done = subprocess.run([sys.executable, "-I", "-S", str(ENTRY), *words], input=b"{}", capture_output=True)
    assert done.returncode == 2


def test_an_agents_token_may_not_ask_under_another_agents_name(daemon):
    made = json.loads(daemon("token", "create", "--principal", "agent:x", "--json").stdout)
    request = (
        "POST /v1/hooks/claude-code HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {made['token']}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    )
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(daemon.home / "run" / "palyrad.sock"))
        line.sendall(request.encode())
        assert line.recv(4096).startswith(b"HTTP/1.1 403 ")


def test_the_entry_imports_nothing_of_weight():
    """It runs before every tool of the agent: what costs milliseconds has no place in it."""
    code = f"""
import sys
before = set(sys.modules)
exec(open({str(ENTRY)!r}).read().split("if __name__")[0])
print(" ".join(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    light = {"__future__", "_collections_abc", "_socket", "_stat", "genericpath", "os", "os.path", "posixpath", "stat"}
    assert set(done.stdout.split()) <= light
    assert "_socket" in done.stdout


def test_install_status_and_uninstall_from_the_command_line(cli, tmp_path):
    environ = cli.environ | {"CLAUDE_CONFIG_DIR": str(tmp_path / "claude"), "HOME": str(tmp_path)}

    def hook(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*cli.argv, "hook", *words], env=environ, capture_output=True)

    settings = tmp_path / "claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_bytes(b'{"model":"m"}')
    assert hook("status", "claude-code").returncode == 1
    assert hook("install", "claude-code").returncode == 0
    assert hook("status", "claude-code", "--json").returncode == 0
    command = json.loads(settings.read_bytes())["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    done = subprocess.run(["sh", "-c", command], input=claude(cli, "ls"), capture_output=True, env=cli.environ)
    assert said(done)[0] == "allow"
    assert hook("uninstall", "claude-code").returncode == 0
    assert settings.read_bytes() == b'{"model":"m"}'
    assert hook("install", "vim").returncode == 2


def test_status_without_an_agent_tells_of_each_and_help_shows_no_inner_command(cli, tmp_path, monkeypatch):
    for name in ("HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.setitem(cli.environ, name, str(tmp_path))
    items = json.loads(cli("hook", "status", "--json").stdout)["items"]
    assert [(one["agent"], one["state"]) for one in items] == [
        ("claude-code", "absent"),
        ("codex", "absent"),
        ("cursor", "absent"),
    ]
    assert b"answer" not in cli("hook", "--help").stdout


def test_a_home_whose_path_is_too_long_for_a_socket_is_served_by_a_shorter_one(cli, tmp_path):
    deep = Cli(tmp_path / ("d" * 100) / "home", cli.workspace)
    deep.home.parent.mkdir()
    alone = deep("console")
    assert (alone.returncode, b"palyra serve --socket PATH" in alone.stderr) == (1, True)
    with open_folder() as short, serving(deep, "--socket", str(short / "s.sock")) as served:
        assert json.loads(deep("console", "--json").stdout)["url"].startswith("http://127.0.0.1:")
        line = hook_entry.connect(str(deep.home))
        assert line is not None
        line.close()
        assert served.end()[0] == 0
