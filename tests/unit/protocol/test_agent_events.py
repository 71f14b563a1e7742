"""What hosts ask their hooks about, as calls of ours."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Reason, Rejected
from palyra.protocol.agent_answers import Answer, Permission, answer, refusal
from palyra.protocol.agent_events import Agent, line_calls, parse_event

WORK = "/srv/project"


def event(tool: str, given: Any, *, agent: Agent = Agent.CLAUDE_CODE, cwd: str = WORK, project: str = "") -> Any:
    value = {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": given, "cwd": cwd, "session_id": "s"}
    return parse_event(agent, json.dumps(value).encode(), project=project)


def run(command: str, *args: str, cwd: str = ".") -> tuple[str, dict[str, Any]]:
    return "palyra.process.run", {"command": command, "args": list(args), "cwd": cwd}


def test_a_line_is_one_call_for_each_program():
    found = event("Bash", {"command": "git status && ls | wc -l"})
    assert found.calls == (run("git", "status"), run("ls"), run("wc", "-l"))
    assert (found.known, found.own, found.workspace, found.session) == (True, False, WORK, "s")


def test_code_is_an_interpreter_with_code():
    assert event("Bash", {"command": "echo $X"}).calls == (run("bash", "-c", "echo $X"),)
    long = "echo $X " + "y" * 5000
    assert event("Bash", {"command": long}).calls == (
        ("palyra.process.run", {"command": "bash", "args": ["-s"], "stdin": long, "cwd": "."}),
    )


def test_cd_moves_what_follows_and_is_looked_at_itself():
    assert line_calls("cd src && ls ..", WORK, WORK) == (
        ("palyra.fs.list", {"path": "src"}),
        run("ls", "..", cwd="src"),
    )


@pytest.mark.parametrize("line", ["cd a/.. && cat ../s", "cd a && cd .. && cat ../s", "cd ../a/../b && ls"])
def test_a_way_back_behind_a_name_is_code_because_that_may_be_a_link(line: str) -> None:
    """With `set -P`, or zsh's CHASE_LINKS, `cd deep/link && cd ..` is the folder above where the link leads."""
    assert line_calls(line, WORK, f"{WORK}/src") == (
        ("palyra.process.run", {"command": "bash", "args": ["-c", line], "cwd": "src"}),
    )
    moved = line_calls("cd .. && cd src && ls ..", WORK, f"{WORK}/src")
    assert [tool for tool, _ in moved[:2]] == ["palyra.fs.list"] * 2


def test_a_folder_of_the_shells_own_memory_is_none_of_the_workspace() -> None:
    """zsh, where each cd is remembered: `cd a/b && cd +1` is where it came from, and `..` means another folder."""
    calls = line_calls("cd a/b && cd +1 && cat ../s", WORK, WORK)
    assert calls[1] == ("palyra.process.run", {"command": "cd", "args": ["+1"], "cwd": "a/b"})


@pytest.mark.parametrize("line", ["cd x || cat ../s", "cd x ; cat ../s", "cd x | cat ../s", "ls; cd x && cat ../s"])
def test_cd_that_may_not_happen_is_code_because_dot_dot_means_another_folder_then(line):
    assert line_calls(line, WORK, WORK) == (run("bash", "-c", line),)


def test_codex_sends_words_and_they_are_taken_as_they_are():
    given = {"command": ["bash", "-lc", "git status"]}
    assert event("shell", given, agent=Agent.CODEX).calls == (run("git", "status"),)
    given = {"command": ["python3", "-c", "1"]}
    assert event("shell", given, agent=Agent.CODEX).calls == (run("python3", "-c", "1"),)


def test_a_patch_is_a_change_of_each_file_it_names():
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Move to: ../b.py\n+x\n*** Delete File: c\n*** End Patch"
    paths = [given["path"] for _, given in event("apply_patch", {"command": patch}, agent=Agent.CODEX).calls]
    assert paths == ["a.py", "../b.py", "c"]


def test_an_indented_header_of_a_patch_hides_no_file():
    patch = "*** Begin Patch\n*** Add File: a.py\n+x\n  *** Update File: /root/.bashrc\n+y\n*** End Patch"
    paths = [given["path"] for _, given in event("apply_patch", {"command": patch}, agent=Agent.CODEX).calls]
    assert paths == ["a.py", "/root/.bashrc"]


def test_a_line_is_judged_in_the_folder_that_codex_is_told_to_run_it_in():
    inside = event("exec_command", {"cmd": "cat x", "workdir": "src"}, agent=Agent.CODEX)
    outside = event("exec_command", {"cmd": "cat id_rsa", "workdir": "/root/.ssh"}, agent=Agent.CODEX)
    assert (inside.calls, outside.calls) == ((run("cat", "x", cwd="src"),), (run("cat", "id_rsa", cwd="/root/.ssh"),))


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("exec_command", {"command": "ls", "cmd": "cat /root/.ssh/id_rsa"}),
        ("exec_command", {"cmd": "ls", "shell": "/srv/project/evil"}),
        ("exec_command", {"cmd": "ls", "workdir": ["/root"]}),
        ("NotebookEdit", {"file_path": "a", "notebook_path": "/root/.bashrc"}),
        ("apply_patch", {"command": "*** Add File: a", "input": "*** Add File: /root/.bashrc"}),
        ("Glob", {"pattern": "*/../../*"}),
        ("Glob", {"pattern": "{..,x}/*"}),
        ("Glob", {"pattern": "{x,/root}/*"}),
    ],
)
def test_what_the_host_could_take_otherwise_than_it_is_judged_is_refused(tool, given):
    with pytest.raises(Rejected):
        event(tool, given, agent=Agent.CODEX)


@pytest.mark.parametrize(
    ("tool", "given", "call"),
    [
        ("Read", {"file_path": f"{WORK}/a/b.txt"}, ("palyra.fs.read", {"path": "a/b.txt"})),
        ("Read", {"file_path": "/etc/shadow"}, ("palyra.fs.read", {"path": "/etc/shadow"})),
        ("Read", {"file_path": f"{WORK}/../x"}, ("palyra.fs.read", {"path": f"{WORK}/../x"})),
        ("Write", {"file_path": f"{WORK}/n", "content": "t"}, ("palyra.fs.write", {"path": "n", "text": "t"})),
        ("Edit", {"file_path": f"{WORK}/n", "new_string": "t"}, ("palyra.fs.write", {"path": "n", "text": "t"})),
        ("Glob", {"pattern": "**"}, ("palyra.fs.list", {"path": "."})),
        ("Glob", {"pattern": "src/*.ts", "path": "web"}, ("palyra.fs.list", {"path": "web/src"})),
        ("Glob", {"pattern": "/root/.ssh/*"}, ("palyra.fs.list", {"path": "/root/.ssh"})),
        ("Glob", {"pattern": "/*/id_rsa"}, ("palyra.fs.list", {"path": "/"})),
        ("Glob", {"pattern": "../*"}, ("palyra.fs.list", {"path": f"{WORK}/.."})),
        ("Grep", {"pattern": "x", "path": "src"}, ("palyra.fs.search", {"pattern": "x", "path": "src"})),
        ("WebFetch", {"url": "https://example.org/"}, ("palyra.http.fetch", {"url": "https://example.org/"})),
    ],
)
def test_files_and_pages_are_our_own_tools(tool, given, call):
    assert event(tool, given).calls == (call,)


def test_the_project_is_the_workspace_where_the_agent_is_inside_it():
    assert event("Bash", {"command": "ls"}, cwd=f"{WORK}/src", project=WORK).calls == (run("ls", cwd="src"),)
    assert event("Bash", {"command": "ls"}, cwd="/elsewhere", project=WORK).workspace == "/elsewhere"
    assert event("Bash", {"command": "ls"}, cwd=f"{WORK}-other", project=WORK).workspace == f"{WORK}-other"


def test_tools_we_know_nothing_of_are_unknown_and_our_own_are_left_alone():
    assert (event("Task", {}).known, event("Task", {}).own) == (False, False)
    assert event("mcp__palyra__palyra_echo", {}).own is True
    assert event("mcp__palyra__acme_echo", {}).own is True


@pytest.mark.parametrize(
    "tool",
    ["mcp__evil-palyra__palyra_echo", "mcp__palyra-x__palyra_echo", "mcp__palyra__x__palyra_echo", "mcp__palyra",
     "mcp__palyra__", "mcp__xpalyra__run", "MCP:palyra_echo", "palyra_echo", "xmcp__palyra__palyra_echo",
     "mcp____palyra_echo"],
)  # fmt: skip
def test_another_servers_tool_is_not_taken_for_ours_by_its_name(tool):
    assert (event(tool, {}).own, event(tool, {}).known) == (False, False)
    asked = {"hook_event_name": "beforeMCPExecution", "tool_name": tool, "workspace_roots": [WORK]}
    assert parse_event(Agent.CURSOR, json.dumps(asked).encode()).own is False, "Cursor does not say whose tool it is"


def test_our_server_is_the_one_that_the_configuration_names():
    def own(tool: str, server: str) -> bool:
        asked = {"hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": {}, "cwd": WORK}
        return parse_event(Agent.CODEX, json.dumps(asked).encode(), mcp_server=server).own

    assert own("mcp__guarded__palyra_echo", "guarded")
    assert not own("mcp__palyra__palyra_echo", "guarded")
    assert not own("mcp____palyra_echo", "")


def test_cursor_asks_about_lines_and_files():
    base = {"workspace_roots": [WORK], "conversation_id": "c"}
    shell = base | {"hook_event_name": "beforeShellExecution", "command": "ls", "cwd": ""}
    assert parse_event(Agent.CURSOR, json.dumps(shell).encode()).calls == (run("ls"),)
    read = base | {"hook_event_name": "beforeReadFile", "file_path": f"{WORK}/.env", "content": "SECRET"}
    assert parse_event(Agent.CURSOR, json.dumps(read).encode()).calls == (("palyra.fs.read", {"path": ".env"}),)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"not json", b"[]", b"{}", b'{"hook_event_name": 1}', b'{"hook_event_name": "PreToolUse"}',
        b'{"hook_event_name": "PreToolUse", "cwd": "/x", "tool_name": "Bash", "tool_input": []}',
        b'{"hook_event_name": "PreToolUse", "cwd": "/x", "tool_name": "Bash", "tool_input": {"command": ""}}',
        b'{"hook_event_name": "PreToolUse", "cwd": "/x", "tool_name": "apply_patch", "tool_input": {"input": "x"}}',
        b"\xff\xfe", b"[" * 10_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("agent", [Agent.CLAUDE_CODE, Agent.CODEX])
def test_what_is_no_event_is_malformed(agent, data):
    with pytest.raises(Rejected) as wrong:
        parse_event(agent, data)
    assert wrong.value.reason is Reason.MALFORMED


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(Agent),
    st.fixed_dictionaries(
        {"hook_event_name": st.sampled_from(["PreToolUse", "beforeShellExecution", "beforeReadFile", "x"])},
        optional={
            "cwd": st.just("/w") | JSON,
            "tool_name": st.sampled_from(["Bash", "Read", "Write", "Grep", "apply_patch", "x"]) | JSON,
            "tool_input": st.fixed_dictionaries({}, optional={"command": JSON, "file_path": JSON, "path": JSON}) | JSON,
            "command": JSON,
            "workspace_roots": JSON,
        },
    ),
)
def test_an_odd_event_is_read_or_refused_and_nothing_else(agent, value):
    with contextlib.suppress(Rejected):
        parse_event(agent, json.dumps(value).encode())


# ── answers ──


def test_each_host_is_answered_in_its_own_words():
    claude = json.loads(answer(Agent.CLAUDE_CODE, "PreToolUse", Permission.ASK, "why").stdout)
    assert claude["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "ask",
        "permissionDecisionReason": "why",
    }
    cursor = json.loads(answer(Agent.CURSOR, "beforeShellExecution", Permission.DENY, "why").stdout)
    assert cursor == {"permission": "deny", "user_message": "why", "agent_message": "why"}


def test_a_host_that_cannot_ask_is_told_no():
    codex = json.loads(answer(Agent.CODEX, "PreToolUse", Permission.ASK, "why").stdout)
    assert codex["hookSpecificOutput"]["permissionDecision"] == "deny"
    cursor = json.loads(answer(Agent.CURSOR, "beforeReadFile", Permission.ASK, "why").stdout)
    assert cursor["permission"] == "deny"


def test_nothing_is_said_where_palyra_decides_later_and_a_failure_is_a_no():
    assert answer(Agent.CLAUDE_CODE, "PreToolUse", Permission.NONE, "") == Answer(stdout=b"{}\n")
    assert refusal("why") == Answer(stderr=b"palyra: why\n", code=2)
