"""What an agent's host runs itself is in no sandbox: no plain yes to what only a sandbox would hold."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palyra.config.load import Home
from palyra.protocol.agent_answers import BLOCK
from palyra.protocol.agent_events import Agent
from palyra.wiring.embedded import Installation, open_installation
from palyra.wiring.hooks import answer_hook
from tests.promises import promise

Tool = tuple[str, dict[str, Any]]


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., list[str]]:
    """What the host is told about each of its tools, one after the other."""
    workspace = tmp_path / "project"
    for folder in (workspace, workspace / "sub"):
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (workspace / ".env").write_text("KEY=1\n")
    (workspace / "plain.txt").write_text("plain\n")
    (workspace / "link").symlink_to(".git/config")
    (workspace / "hooks").symlink_to(".git/hooks")

    async def one(installation: Installation, tool: str, given: dict[str, Any]) -> str:
        event = {"hook_event_name": "PreToolUse", "cwd": str(workspace), "tool_name": tool, "tool_input": given}
        said = await answer_hook(installation, Agent.CLAUDE_CODE, json.dumps(event).encode(), project=str(workspace))
        if said.code == BLOCK:
            return "deny"
        assert said.code == 0, said.stderr
        decision: str = json.loads(said.stdout).get("hookSpecificOutput", {}).get("permissionDecision", "none")
        return decision

    async def each(tools: tuple[Tool, ...]) -> list[str]:
        installation = await open_installation(Home(tmp_path / "home"), one_call=True)
        try:
            return [await one(installation, *tool) for tool in tools]
        finally:
            await installation.close()

    return lambda *tools: asyncio.run(each(tools))


def write(path: str) -> Tool:
    return "Write", {"file_path": path, "content": "[core]\n\tfsmonitor = touch escaped\n"}


def line(text: str) -> Tool:
    return "Bash", {"command": text}


@promise("commands.hook-approval")
def test_a_monitor_for_git_is_not_planted_and_run_by_three_plain_yeses(ask: Callable[..., list[str]]) -> None:
    """In a sandbox .git/config is closed and git obeys none; a host that is told yes asks nobody and has neither."""
    assert ask(write("evil"), line("cp evil .git/config"), line("git status")) == ["allow", "ask", "none"]


@promise("commands.hook-approval")
def test_what_other_programs_trust_is_written_only_where_a_person_agrees(ask: Callable[..., list[str]]) -> None:
    names = (".git/config", ".GIT/hooks/x", "sub/.git/config", ".env", ".envrc", ".github/workflows/x.yml",
             ".claude/settings.json", ".mcp.json", "link", "sub/../.git/config", ".npmrc", "sub/.hg/hgrc", "CLAUDE.md",
             "docs/agents.md", ".cargo/config.toml", ".direnv/x", "cloudbuild.yaml", "Buildspec.yml")  # fmt: skip
    assert set(ask(*map(write, names))) == {"ask"}
    programs = ("mv plain.txt .claude/settings.json", "rm .claude/settings.json", "sed -i s/a/b/ .git/config",
                "mkdir -p .git/hooks", "cp plain.txt link", "touch .env.local", "cp plain.txt .npmrc",
                "mv plain.txt sub/AGENTS.md", "tee .cargo/config.toml")  # fmt: skip
    assert set(ask(*map(line, programs))) == {"ask"}


@promise("commands.hook-approval")
def test_programs_that_only_a_sandbox_holds_get_no_plain_yes(ask: Callable[..., list[str]]) -> None:
    """A tar that writes to absolute names, a copy of a folder with a .git in it, git with its helpers; and jq, which
    prints an environment that is the user's own here."""
    lines = ("tar -P -xf a.tar", "cp -r sub other", "git fetch", "git log", "find . -delete", "jq -n env", "rm -rf .",
             "wc --files0-from=plain.txt", "du --fi=plain.txt", "sha256sum -c plain.txt",
             "md5sum --che plain.txt")  # fmt: skip
    assert set(ask(*map(line, lines))) == {"none"}


def test_a_hidden_file_is_not_read_on_a_plain_yes(ask: Callable[..., list[str]]) -> None:
    asked = (line("cat .env"), ("Read", {"file_path": ".env"}), line("grep -r KEY ."), ("Grep", {"pattern": "KEY"}))
    assert ask(*asked) == ["ask", "ask", "none", "none"]


def test_what_only_reads_and_plain_files_still_get_one(ask: Callable[..., list[str]]) -> None:
    asked = (line("ls -la && cat plain.txt | wc -l"), write("new.py"), ("Read", {"file_path": "plain.txt"}))
    assert ask(*asked) == ["allow", "allow", "allow"]
    assert ask(line("wc -c plain.txt"), line("sha256sum plain.txt"), line("du -c sub")) == ["allow", "allow", "allow"]
    assert ask(("Read", {"file_path": ".env.example"}), line("cat .git/config")) == ["allow", "allow"]


@promise("commands.hook-approval")
def test_a_line_that_the_shell_itself_obeys_gets_no_plain_yes(ask: Callable[..., list[str]], tmp_path: Path) -> None:
    """printf and test are programs that only read, and in a shell something else: each of these ran what the agent had
    written beside it, with the user's own rights."""
    lines = (
        "printf -v PATH ./bin && ls",
        "test -v 'a[$(touch escaped)]'",
        "printf %n PATH && ls",
        "printf -v 'a[$(touch escaped)]' x",
    )
    assert "allow" not in ask(*map(line, lines))
    shell = shutil.which("bash")
    if shell is not None:  # that it would have
        subprocess.run([shell, "-c", lines[1]], cwd=tmp_path, check=False)
        assert (tmp_path / "escaped").exists()


@promise("commands.hook-approval")
def test_output_that_is_thrown_away_goes_to_no_link_that_a_repository_brought(ask: Callable[..., list[str]]) -> None:
    """What follows > here is no blank and the device, but a file in a folder of that name."""
    for blank in ("\xa0", "\x0b", "\u3000"):
        assert ask(line(f"echo 'id > mark' >{blank}/dev/null")) != ["allow"]
    assert ask(line("echo a > /dev/null")) == ["allow"]


@promise("commands.hook-approval")
@pytest.mark.parametrize(
    "text",
    [
        "grep --binary '' /etc/passwd",
        "grep -C root /etc/passwd",
        "grep --context root ../secret",
        "grep -e -- -f/etc/passwd plain.txt",
        "fgrep --binary '' ../secret",
    ],
)
def test_no_spelling_makes_a_file_outside_pass_for_a_pattern(
    ask: Callable[..., list[str]], tmp_path: Path, text: str
) -> None:
    """Which word is the pattern depends on the grep: --binary has no value, and -C has none on a Mac."""
    (tmp_path / "project" / ".env").unlink()  # beside one, no grep gets a plain yes
    assert ask(line(text)) in (["none"], ["deny"])


def test_patterns_that_look_like_no_path_elsewhere_still_get_a_plain_yes(
    ask: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "project" / ".env").unlink()
    lines = ("grep -rn 'def x' plain.txt", "grep '^a/b' plain.txt", "wc -l plain.txt", "ls sub", "tail -n 5 plain.txt")
    assert ask(*(line(text) for text in lines)) == ["allow"] * len(lines)


def test_a_way_back_out_of_a_link_is_followed_on_the_disk(ask: Callable[..., list[str]]) -> None:
    """A repository brings the link along; by its letters `hooks/../config` is a plain file beside it."""
    asked = (write("hooks/../config"), write("sub/../new.py"), line("cp plain.txt hooks/../config"))
    assert ask(*asked) == ["ask", "allow", "ask"]


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs /proc")
def test_a_path_that_leads_each_process_elsewhere_is_not_judged_by_where_it_leads_us(
    ask: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/proc/self/cwd` is the folder of whoever looks: here the hook's, or a daemon's, and then the program's."""
    project = tmp_path / "project"
    for place in (project / "notes", tmp_path / "notes"):
        place.write_text("plain\n")
    (project / "sub" / "notes").symlink_to(tmp_path / "notes")
    (project / "here").symlink_to("/proc/self/cwd")
    monkeypatch.chdir(project)
    lines = ("cd sub && cat /proc/self/cwd/notes", "cd sub && cat ../here/notes", "cat /proc/thread-self/cwd/notes",
             "cat /dev/fd/../cwd/notes", "cd here && ls", "cat /proc/self/exe")  # fmt: skip
    assert set(ask(*map(line, lines))) == {"deny"}
    monkeypatch.chdir(project / "sub")
    assert set(ask(line("cat /proc/self/cwd/../notes"), line("cat here/../notes"))) == {"deny"}
    assert set(ask(("Read", {"file_path": "/proc/self/cwd/../notes"}), write("/proc/self/cwd/../notes"))) == {"deny"}
    assert ask(line("cat notes"), line("cat /dev/stdin"), line("ls 2>/dev/null")) == ["allow", "allow", "allow"]


@promise("commands.hook-approval")
def test_a_folder_is_not_left_by_links_that_a_repository_brings_along(
    ask: Callable[..., list[str]], tmp_path: Path
) -> None:
    """No argument names what lies outside: the program finds the way by itself."""
    project, outside = tmp_path / "project", tmp_path / "key"
    (project / ".env").unlink()  # which would have been reason enough
    outside.write_text("of the user alone\n")
    for folder in ("docs", "other"):
        (project / folder).mkdir()
    (project / "docs" / "notes").symlink_to(outside)
    (project / "docs" / "up").symlink_to(tmp_path)
    lines = ("grep -R . docs", "grep -nRH . docs", "grep -rS . docs", "egrep --deref . docs", "diff -rN docs other",
             "diff -N docs other", "diff -rN --label --no-dereference docs other",
             "ls -lLR docs", "ls --dereference docs", "du -aL docs", "cd docs && fgrep -R k")  # fmt: skip
    assert set(ask(*map(line, lines))) == {"none"}
    asked = ("grep -rn of docs", "ls -lR docs", "du -a docs", "grep Rust plain.txt")
    assert set(ask(*map(line, asked))) == {"allow"}
    said = subprocess.run(["grep", "-R", ".", "docs"], cwd=project, capture_output=True, text=True, check=False).stdout
    assert "of the user alone" in said, "that it would have"


@promise("commands.hook-approval")
def test_a_path_that_a_host_may_take_for_another_gets_no_yes(ask: Callable[..., list[str]]) -> None:
    """Hosts trim what they are given; file systems drop letters that nobody sees, and dots at the end."""
    names = (" .git/config ", "\t.git/config", ".git/config\n", ".gi\u200ct/config", ".git./config", ".git /config",
             "GIT~1/config", "file:///etc/passwd", "$HOME/.bashrc", "%USERPROFILE%/x", "\u3000.git/config")  # fmt: skip
    assert set(ask(*map(write, names))) == {"deny"}
    assert set(ask(*(("Read", {"file_path": name}) for name in names))) == {"deny"}
    assert ask(write("a b/c.d-é_~x.py"), write(".hidden")) == ["allow", "allow"]


@promise("commands.hook-terminal")
def test_what_a_terminal_obeys_gets_no_plain_yes(ask: Callable[..., list[str]]) -> None:
    """`echo` with OSC 52 fills the clipboard, and a bidi override shows the person another command."""
    raw = ("echo '\x1b]52;c;cm0gLXJmIH4K\x07'", "printf '\x1b[2J'", "grep '\x1b[8m' plain.txt", "ls '\u202egpj.x'",
           "cat 'plain\u200b.txt'", "echo '\x9b31m'", "echo 'a\rb'", "wc '\x08\x08'")  # fmt: skip
    assert set(ask(*map(line, raw))) <= {"ask", "deny"}
    made = (r"printf '\033]0;x\007'", r"echo -e '\e[2J'", r"echo -e '\x1b[2J'", r"printf '\u001b[2J'", r"tr a '\033'",
            r"printf 'a\rb'", "tr '[:print:]' '[:cntrl:]'", r"stat --printf='\033[2J' plain.txt",
            "base64 -d plain.txt", "base64 --deco plain.txt", "base64 -id plain.txt",
            r"paste -d '\b' plain.txt", r"printf '%b' '\0033c'")  # fmt: skip
    assert set(ask(*map(line, made))) <= {"none", "ask", "deny"}
    fine = ("echo hello", r"printf 'a\n'", r"printf 'a\tb\\\n'", "base64 plain.txt", "tr a b", "echo 'über 日本'")
    assert set(ask(*map(line, fine))) == {"allow"}
