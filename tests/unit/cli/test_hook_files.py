"""The hosts' settings: twice changes nothing, out again is byte for byte, and what is not understood stays as it is."""

from __future__ import annotations

import json

import pytest

from palyra.cli.hook_config import state_of, with_hook, without_hook
from palyra.cli.hook_files import HookFile
from palyra.errors import ConfigError
from palyra.protocol.agent_events import Agent

AGENTS = list(Agent)
ODD = b'{\r\n    "model": "x", "hooks": {"PreToolUse": [{"matcher": "Bash"}]},\n\t"z": [1,2],   "a": "\xc3\xa9" }'


@pytest.fixture(params=AGENTS, ids=str)
def file(request, tmp_path) -> HookFile:
    (tmp_path / "host").mkdir()
    return HookFile(agent=request.param, path=tmp_path / "host" / "settings.json", home=tmp_path / "home")


def test_installing_twice_changes_nothing(file):
    assert file.install() is True
    first, times = file.path.read_bytes(), file.path.stat()
    assert file.install() is False
    assert file.path.read_bytes() == first
    assert file.path.stat().st_mtime_ns == times.st_mtime_ns
    assert file.state() == "installed"


@pytest.mark.parametrize("before", [b"{}", b"{}\n", ODD, b'{"hooks": {}}', b' { "hooks" : { "stop" : [ ] } } '])
def test_uninstalling_restores_the_file_byte_for_byte(file, before):
    file.path.write_bytes(before)
    file.path.chmod(0o640)
    file.install()
    assert file.path.read_bytes() != before
    file.install()
    assert file.uninstall() == "restored"
    assert file.path.read_bytes() == before
    assert file.path.stat().st_mode & 0o777 == 0o640
    assert file.uninstall() == "absent"
    assert not list((file.home / "hooks").iterdir())


def test_a_file_that_was_not_there_is_gone_again(file):
    file.install()
    assert file.uninstall() == "removed"
    assert not file.path.exists()


def test_a_folder_that_was_not_there_is_gone_again(tmp_path):
    file = HookFile(agent=Agent.CODEX, path=tmp_path / "none" / "hooks.json", home=tmp_path / "home")
    file.install()
    file.uninstall()
    assert not (tmp_path / "none").exists()


def test_what_the_user_changed_since_stays_and_only_our_entries_go(file):
    file.path.write_bytes(b'{"model": "x"}')
    file.install()
    value = json.loads(file.path.read_bytes())
    file.path.write_text(json.dumps(value | {"model": "y"}))
    assert file.uninstall() == "taken out"
    left = json.loads(file.path.read_bytes())
    assert left == {"model": "y"}
    assert file.copy.read_bytes() == b'{"model": "x"}'


def test_hooks_of_others_stay_where_they_are(file):
    others = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "theirs"}]}]}}
    file.path.write_text(json.dumps(others))
    file.install()
    value = json.loads(file.path.read_bytes())
    assert others["hooks"]["PreToolUse"][0] in value["hooks"]["PreToolUse"]
    file.path.write_text(json.dumps(value))
    assert file.uninstall() == "taken out"
    assert json.loads(file.path.read_bytes()) == others


def test_a_hook_of_others_with_a_name_like_ours_or_in_our_group_stays(file):
    theirs = {"type": "command", "command": "python3 ~/bin/hook_entry.py --block-secrets"}
    others = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [theirs]}]}}
    file.path.write_text(json.dumps(others))
    file.install()
    value = json.loads(file.path.read_bytes())
    assert others["hooks"]["PreToolUse"][0] in value["hooks"]["PreToolUse"]
    value["hooks"]["PreToolUse"][-1]["hooks"].append(theirs)
    file.path.write_text(json.dumps(value))
    assert file.uninstall() == "taken out"
    left = json.loads(file.path.read_bytes())["hooks"]["PreToolUse"]
    assert [hook for group in left for hook in group["hooks"]] == [theirs, theirs]


@pytest.mark.parametrize(
    "before",
    [b"", b"not json", b"// comment\n{}", b"[]", b'{"hooks": []}', b'{"hooks": {"PreToolUse": {}}}',
     b'{"hooks": {"beforeShellExecution": "x", "PreToolUse": "x"}}', b'{"a": 1, "a": 2}', b"\xff\xfe{}", b"[" * 9999],
)  # fmt: skip
def test_what_is_not_understood_is_refused_and_left_as_it_is(file, before):
    file.path.write_bytes(before)
    with pytest.raises(ConfigError):
        file.install()
    assert file.path.read_bytes() == before
    assert not file.home.exists()


def test_a_link_into_dotfiles_stays_a_link(file, tmp_path):
    real = tmp_path / "dotfiles.json"
    real.write_bytes(b"{}")
    file.path.symlink_to(real)
    file.install()
    assert file.path.is_symlink()
    assert b"hook_entry.py" in real.read_bytes()
    file.uninstall()
    assert real.read_bytes() == b"{}"


def test_an_older_installation_is_replaced_and_status_says_that_it_is_outdated(tmp_path):
    path = tmp_path / "settings.json"
    old = HookFile(agent=Agent.CLAUDE_CODE, path=path, home=tmp_path / "old home")
    old.install()
    new = HookFile(agent=Agent.CLAUDE_CODE, path=path, home=tmp_path / "home")
    assert new.state() == "outdated"
    new.install()
    assert new.state() == "installed"
    assert path.read_bytes().count(b"hook_entry.py") == 1


def test_the_command_survives_blanks_and_quotes_in_paths(tmp_path):
    import shlex

    home = tmp_path / "it's a home"
    file = HookFile(agent=Agent.CURSOR, path=tmp_path / "hooks.json", home=home)
    assert shlex.split(file.command)[-1] == str(home)


def test_pure_halves_agree():
    for agent in AGENTS:
        made = with_hook(agent, None, "python /x/palyra/cli/hook_entry.py x", where="f")
        assert state_of(agent, made, "python /x/palyra/cli/hook_entry.py x", where="f") == "installed"
        assert "hook_entry.py" not in without_hook(made, where="f").decode()
