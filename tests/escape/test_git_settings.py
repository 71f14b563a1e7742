"""What the operator's git obeys beside a repository's own settings is not the agent's to write in a workspace.

The settings are the operator's, as `git config` writes them; the attack is a plain `cp` or `mv` of a call.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from palyra import Palyra
from palyra.api import Outcome, SyncRun, grant
from palyra.errors import Reason
from palyra.guard.look import Looker
from palyra.guard.look_guarded import find_guarded
from palyra.guard.look_links import Allowance
from palyra.guard.look_named import BELIEVED_S
from palyra.guard.protected import HOOKS
from palyra.model.sights import LookRequest, WorkspaceSight
from tests.escape.test_git import committed, plainly, repository, trap
from tests.promises import promise

AS = "-c user.name=a -c user.email=a@b.c"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")]


@pytest.fixture
def run(home: Path, workspace: Path):
    with Palyra.open(str(home)) as palyra:
        yield palyra.run("agent:probe", workspace, grant=grant(interpreters=True))


def called(run: SyncRun, words: str) -> Outcome:
    command, *args = words.split()
    outcome = run.call("palyra.process.run", {"command": command, "args": args})
    if outcome.reason is Reason.UNENFORCEABLE:
        pytest.skip(f"this tier is not to be had here: {outcome.message}")
    return outcome


def refused(run: SyncRun, *lines: str) -> None:
    for words in lines:
        outcome = called(run, words)
        assert outcome.output is not None, (words, outcome.message)
        assert outcome.output["exit_code"] != 0, words


def closed_in(workspace: Path, *git_files: Path | str, home: Path | str = "") -> set[str]:
    allowance = Allowance(homes=(str(home),) if home else ())
    protected, _ = find_guarded(str(workspace), allowance, [str(file) for file in git_files])
    return {os.path.relpath(path, workspace) for path in protected}


def seen(workspace: Path, *git_files: Path) -> WorkspaceSight:
    looker = Looker(home="", state_home="", git_files=[str(file) for file in git_files])
    return looker.look(LookRequest(workspace=str(workspace), cwd="", command="")).workspace


def obeyed(workspace: Path, *words: str, **environ: str) -> None:
    """The operator's git, with the operator's own settings."""
    given = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", **environ}
    subprocess.run(["git", *words], cwd=workspace, env=given, check=False, capture_output=True)


# ── the operator's own ──


@pytest.mark.parametrize("by", ["its name", "a link"])
def test_settings_that_a_call_makes_where_git_looks_for_the_operators_are_told(
    workspace: Path, tmp_path: Path, by: str
) -> None:
    """That there were none was believed a moment longer than it was true."""
    (workspace / "dots").mkdir()
    (tmp_path / "config").symlink_to(workspace / "dots")
    file = (workspace / "dots" if by == "its name" else tmp_path / "config") / "settings"
    looker = Looker(home="", state_home="", git_files=[str(tmp_path / "none" / "config"), str(file)])
    before = looker.look(LookRequest(workspace=str(workspace), cwd="", command="")).workspace
    file.write_text("[core]\n\tfsmonitor = ./monitor\n")
    assert looker.appeared(before) == ("dots/settings",)


def test_settings_too_long_to_be_looked_at_are_not_believed_to_lead_nowhere(workspace: Path, tmp_path: Path) -> None:
    """The first call was refused, and the next one ran beside hooks that nobody had looked for."""
    file = tmp_path / "gitconfig"
    file.write_text(f"[core]\n\thooksPath = {workspace}/hooks\n")
    (workspace / "hooks").mkdir()
    short = Allowance(config_bytes=8)
    find_guarded(str(workspace), short, [str(file)])
    assert "not looked at" in short.problem
    assert closed_in(workspace, file) == {"hooks"}


def test_that_settings_lead_nowhere_is_believed_for_a_moment_only(workspace: Path, tmp_path: Path, monkeypatch) -> None:
    file = tmp_path / "gitconfig"
    file.write_text("[user]\n\tname = a\n")
    (workspace / "hooks").mkdir()
    assert closed_in(workspace, file) == set()
    file.write_text(f"[core]\n\thooksPath = {workspace}/hooks\n")
    later = time.monotonic() + BELIEVED_S
    monkeypatch.setattr("palyra.guard.look_named.time.monotonic", lambda: later)
    assert closed_in(workspace, file) == {"hooks"}


# ── included files ───────────────────────────────────────────────────────────


@promise("git.operator-settings")
def test_a_file_that_settings_include_is_not_the_agents_to_write(run: SyncRun, workspace: Path) -> None:
    """An edited one sets core.fsmonitor, and the operator's next `git status` runs it."""
    committed(workspace)
    (workspace / "tools").mkdir()
    (workspace / "tools" / "shared").write_text("[include]\n\tpath = more/inner\n")
    (workspace / "tools" / "more").mkdir()
    (workspace / "tools" / "more" / "inner").write_text("[diff]\n\trenames = true\n")
    plainly("config", "include.path", "../tools/shared", at=workspace)
    evil = f"[core]\n\tfsmonitor = {trap(workspace / 'monitor', workspace / 'ran')}\n"
    (workspace / "evil").write_text(evil)
    refused(
        run,
        "cp evil tools/shared",
        "cp evil tools/more/inner",
        "mv evil tools/more/inner",
        "mv tools/more tools/less",
        "mv tools old",
        "rm tools/shared",
    )
    obeyed(workspace, "status")
    assert not (workspace / "ran").exists()


def test_git_goes_on_working_where_settings_include_files(run: SyncRun, workspace: Path) -> None:
    committed(workspace)
    (workspace / ".gitshared").write_text("[user]\n\tname = a\n\temail = a@b.c\n")
    plainly("config", "include.path", "../.gitshared", at=workspace)
    plainly("add", ".gitshared", at=workspace)
    plainly("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "shared", at=workspace)
    (workspace / "file").write_text("y")
    for words in (
        "git status", "git stash", "git stash pop", "git commit -qam y", "git checkout -qb other", "git checkout -q -",
        "git worktree add -q tree", "git -C tree status",
        "git commit --allow-empty -qm z", "git rebase -q HEAD~1",
    ):  # fmt: skip
        done = called(run, words)
        assert done.success, (words, done.message, done.output)


@promise("git.operator-settings")
@pytest.mark.parametrize(
    "said",
    [
        "[include]\n\tpath = ../shared",
        "[INCLUDE] PATH=../shared",
        '[include]path="../sh\\\nared" ; of all',
        '[include]\n\tpath = "../shared" # of all',
        "[include]\n\tpath\n\tpath = ../shared",
        "[include]\n\tpath = .././x/..///shared",
        "[include]\n\tpath = ../linked/shared",
        "[include]\n\tpath = ../link",
        "[include]\n\tpath = ~/work/shared",
        "[include]\n\tpath = ABSOLUTE/shared",
        '[includeIf "gitdir:~/nowhere/"]\n\tpath = ../shared',
        '[includeIf "gitdir/i:/"]\n\tpath = ../shared',
        '[includeif "onbranch:none"]\n\tPath = ../shared',
        '[IncludeIf "hasconfig:remote.*.url:https://x/**"]\n\tpath = ../shared',
        '[includeIf "a \\"quoted\\" ]"]\n\tpath = ../shared',
        "[include]\n\tpath = /nowhere\n\tpath = ../shared\n\tpath = ../none",
        "[include]\n\tpath = ../shared\n[a line that git refuses",
        "\ufeff[include]\r\n\tpath = ../shared\r\n",
        "[include]\n\tpath = loop",
        '[include]\n\tpath = "../blank "',
        '[include]\n\tpath = ../blank" " # a comment',
        '[include]\n\tpath =   "../blank"\\\n" "  ',
    ],
)
def test_included_files_are_closed_however_settings_spell_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    workspace = repository(tmp_path / "work")
    (workspace / "x").mkdir()
    (workspace / "shared").write_text("")
    (workspace / "blank ").symlink_to("shared")
    (workspace / "link").symlink_to("shared")
    (workspace / "linked").symlink_to(".")
    (workspace / ".git" / "loop").write_text("[include]\n\tpath = loop\n\tpath = ./loop\n\tpath = ../shared\n")
    config = workspace / ".git" / "config"
    config.write_text(said.replace("ABSOLUTE", str(workspace)), encoding="utf-8")
    assert "shared" in closed_in(workspace)
    config.write_text(said.replace("path", "paths").replace("Path", "Paths").replace("PATH", "PATHS"))
    assert "shared" not in closed_in(workspace)


def test_files_that_include_each_other_through_links_for_ever_come_to_an_end(workspace: Path) -> None:
    repository(workspace)
    (workspace / "loop").symlink_to(".")
    (workspace / "a").write_text("[include]\n\tpath = loop/a\n\tpath = loop/loop/b\n")
    (workspace / "b").write_text("[include]\n\tpath = loop/b\n\tpath = ../nowhere/a\n")
    plainly("config", "include.path", "../a", at=workspace)
    assert {"a", "b"} <= closed_in(workspace)


def test_more_included_files_than_are_looked_at_keep_every_call_from_starting(run: SyncRun, workspace: Path) -> None:
    repository(workspace)
    (workspace / ".git" / "config").write_text("[include]\n" + "".join(f"\tpath = {at}\n" for at in range(5000)))
    outcome = called(run, "ls")
    assert outcome.reason is Reason.BAD_ARGUMENTS
    assert "include" in outcome.message
    assert outcome.hint is not None
    assert "git config --show-origin --list" in outcome.hint


def test_settings_of_submodules_and_worktrees_that_include_files_close_them(workspace: Path, tmp_path: Path) -> None:
    committed(workspace)
    other = committed(tmp_path / "other")
    plainly("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "deep/inner", at=workspace)
    plainly("worktree", "add", "-q", "tree", at=workspace)
    plainly("config", "extensions.worktreeConfig", "true", at=workspace)
    for name in ("of-submodule", "of-worktree", "of-main"):
        (workspace / name).write_text("")
    plainly("config", "include.path", "../../../../of-submodule", at=workspace / "deep" / "inner")
    plainly("config", "--worktree", "include.path", "../../../of-worktree", at=workspace / "tree")
    plainly("config", "--worktree", "include.path", "../of-main", at=workspace)
    assert {"of-main", "of-worktree"} <= closed_in(workspace)
    plainly("config", "include.path", "../../../../../of-submodule", at=workspace / "deep" / "inner")
    (workspace / ".git" / "modules" / "deep" / "inner" / "config").write_text(
        "[include]\n\tpath = ../../../../of-submodule\n[core]\n\tworktree = ../../../../deep/inner\n"
    )
    assert "of-submodule" in closed_in(workspace)


@promise("git.operator-settings")
def test_hooks_that_an_included_file_names_are_closed(workspace: Path) -> None:
    committed(workspace)
    (workspace / "tools").mkdir()
    (workspace / "shared").write_text("[core]\n\thooksPath = tools\n")
    plainly("config", "include.path", "../shared", at=workspace)
    assert {"shared", "tools"} <= closed_in(workspace)


def test_an_included_file_that_was_not_there_is_told_when_a_call_makes_it(run: SyncRun, workspace: Path) -> None:
    committed(workspace)
    plainly("config", "include.path", "../later", at=workspace)
    assert called(run, "cp file later").output["protected_created"] == ["later"]
    refused(run, "rm later")


@promise("git.operator-settings")
def test_a_link_on_the_way_to_a_closed_file_is_not_replaced(run: SyncRun, workspace: Path, tmp_path: Path) -> None:
    """What it leads to was closed, and the link was the agent's to make anew: of its own file the operator's git took
    the settings and the hooks."""
    committed(workspace)
    tmp_path.chmod(0o755)
    (tmp_path / "hooks").mkdir()
    (workspace / "conf").mkdir()
    (workspace / "conf" / "real").write_text("")
    (workspace / "shared").symlink_to("conf/real")
    (workspace / "folder").symlink_to("conf")
    shutil.rmtree(workspace / ".git" / "hooks")
    (workspace / ".git" / "hooks").symlink_to(tmp_path / "hooks")
    (workspace / ".github").symlink_to("nowhere")
    plainly("config", "include.path", "../shared", at=workspace)
    plainly("config", "--add", "include.path", "../folder/real", at=workspace)
    (workspace / "evil").write_text(f"[core]\n\tfsmonitor = {trap(workspace / 'monitor', workspace / 'ran')}\n")
    refused(
        run,
        "ln -sfn evil shared",
        "mv evil shared",
        "rm shared",
        "rm folder",
        "ln -sfnT evil folder",
        "find .git -name hooks -delete",
        "rm .github",
        "mv conf old",
    )
    assert called(run, "cat shared folder/real").success
    obeyed(workspace, "status")
    assert not (workspace / "ran").exists()


def test_a_folder_on_the_way_to_a_closed_file_is_not_made_a_link(run: SyncRun, workspace: Path) -> None:
    """`..` behind it led git to a file of the agent's: what the folder itself held was empty, and so not closed."""
    committed(workspace)
    (workspace / "sub").mkdir()
    (workspace / "other" / "inner").mkdir(parents=True)
    (workspace / "shared").write_text("")
    (workspace / "hooks").mkdir()
    plainly("config", "include.path", "../sub/../shared", at=workspace)
    plainly("config", "core.hooksPath", "other/inner/../../hooks", at=workspace)
    trap(workspace / "evil", workspace / "ran")
    refused(run, "rmdir sub", "mv sub x", "mv other/inner x", "mv other x")
    assert called(run, "cp file sub/new").success
    obeyed(workspace, "status")
    assert not (workspace / "ran").exists()


def test_a_link_that_the_operator_makes_anew_is_closed_in_sandboxes_started_before(
    run: SyncRun, workspace: Path
) -> None:
    """A checkout there and back does. The mount over the link was gone with it, and the next call's to replace."""
    committed(workspace)
    (workspace / "conf").mkdir()
    (workspace / "conf" / "real").write_text("")
    (workspace / "shared").symlink_to("conf/real")
    plainly("config", "include.path", "../shared", at=workspace)
    for _ in range(3):
        refused(run, "ln -sfn file shared")
        time.sleep(0.3)  # for the sandbox that is started ahead
    (workspace / "shared").unlink()
    (workspace / "shared").symlink_to("conf/real")
    refused(run, "ln -sfn file shared")


# ── the operator's own settings ──────────────────────────────────────────────


@pytest.mark.parametrize(
    ("said", "closed"),
    [
        ("[core]\n\thooksPath = tools\n", {"tools", "inner/tools"}),
        ("[core]\n\thooksPath = ~/work/tools\n", {"tools"}),
        ("[core]\n\thooksPath = WORK/tools/\n", {"tools"}),
        ('[includeIf "gitdir:~/work/"]\n\tpath = work/shared\n', {"shared", "inner/tools"}),
        ("[include]\n\tpath = ~/work/shared\n", {"shared", "inner/tools"}),
        ("[init]\n\ttemplateDir = ~/work/template\n", {"template"}),
    ],
)
def test_what_the_operators_own_settings_name_in_a_workspace_is_closed(
    tmp_path: Path, said: str, closed: set[str]
) -> None:
    """~/.gitconfig, the same under XDG_CONFIG_HOME, /etc/gitconfig."""
    workspace = committed(tmp_path / "work")
    committed(workspace / "inner")
    for name in ("tools", "inner/tools", "template"):
        (workspace / name).mkdir()
    (workspace / "shared").write_text("[core]\n\thooksPath = inner/../tools\n[core]\n\thooksPath = tools\n")
    own = tmp_path / ".gitconfig"
    own.write_text(said.replace("WORK", str(workspace)))
    assert closed <= closed_in(workspace, own, home=tmp_path)
    assert not closed & closed_in(workspace)


def test_hooks_of_husky_that_the_operators_own_settings_name_are_closed(tmp_path: Path) -> None:
    workspace = committed(tmp_path / "work")
    (workspace / "web" / "_").mkdir(parents=True)
    (workspace / "web" / "_" / "h").touch()
    (tmp_path / ".gitconfig").write_text("[core]\n\thooksPath = ~/work/web/_\n")
    assert {"web", "web/_"} <= closed_in(workspace, tmp_path / ".gitconfig", home=tmp_path)


def test_settings_of_the_operators_that_lie_in_the_workspace_are_closed(tmp_path: Path) -> None:
    """A folder of dot files, to which ~/.gitconfig is a link: an agent that works in it wrote aliases and filters."""
    workspace = tmp_path / "dotfiles"
    workspace.mkdir()
    (workspace / "gitconfig").write_text("[user]\n\tname = a\n")
    (tmp_path / ".gitconfig").symlink_to("dotfiles/gitconfig")
    assert closed_in(workspace, tmp_path / ".gitconfig", home=tmp_path) == {"gitconfig"}


def test_settings_of_the_operators_in_a_folder_of_dot_files_leave_git_usable(
    home: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the operator's git's: a sandbox has another home, and git in it obeys no filter of theirs."""
    committed(workspace)
    (workspace / "git").mkdir()
    (workspace / "git" / "config").write_text('[filter "x"]\n\tclean = cat\n[include]\n\tpath = more\n')
    (tmp_path / ".config").mkdir()
    (tmp_path / ".config" / "git").symlink_to(workspace / "git")
    monkeypatch.setenv("HOME", str(tmp_path))
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:probe", workspace)
        assert called(run, "git status").success
        refused(run, "cp file git/config")


@promise("git.operator-settings")
def test_an_agent_writes_no_hook_that_the_operators_own_settings_lead_to(
    home: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / ".gitconfig").write_text("[core]\n\thooksPath = tools/hooks\n[user]\n\tname = a\n\temail = a@b.c\n")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(own))
    committed(workspace)
    (workspace / "tools" / "hooks").mkdir(parents=True)
    trap(workspace / "hook", workspace / "ran")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:probe", workspace, grant=grant(interpreters=True))
        refused(run, "cp hook tools/hooks/pre-commit", "mv tools old")
        assert called(run, "git status").success
    obeyed(workspace, "commit", "--allow-empty", "-m", "x", HOME=str(own))
    assert not (workspace / "ran").exists()


# ── repositories around a workspace ──────────────────────────────────────────


@promise("git.operator-settings")
def test_hooks_and_settings_of_the_repository_around_a_workspace_are_closed(tmp_path: Path) -> None:
    """A package of a larger repository: its hooks lie in the package, its settings where no agent can look."""
    around = committed(tmp_path / "around")
    workspace = around / "packages" / "one"
    (workspace / "hooks").mkdir(parents=True)
    (workspace / "shared").write_text("")
    plainly("config", "core.hooksPath", "packages/one/hooks", at=around)
    plainly("config", "include.path", "../packages/one/shared", at=around)
    assert closed_in(workspace) == {"hooks", "shared"}


def test_hooks_of_a_worktree_whose_repository_lies_elsewhere_are_closed(tmp_path: Path) -> None:
    """The way in which agents are given a copy of their own: core.hooksPath is relative to each worktree's top."""
    main = committed(tmp_path / "main")
    plainly("config", "core.hooksPath", "tools/hooks", at=main)
    workspace = tmp_path / "tree"
    plainly("worktree", "add", "-q", str(workspace), at=main)
    (workspace / "tools" / "hooks").mkdir(parents=True)
    assert closed_in(workspace) == {".git", "tools/hooks"}


@promise("git.operator-settings")
def test_settings_and_hooks_of_worktrees_far_below_or_outside_are_closed(tmp_path: Path) -> None:
    """.git/worktrees says where they are; only two folders below the top are looked through for a `.git`."""
    workspace = committed(tmp_path / "work")
    plainly("config", "core.hooksPath", "own", at=workspace)
    plainly("config", "extensions.worktreeConfig", "true", at=workspace)
    for name, place in (("far", workspace / "a" / "b" / "c" / "far"), ("out", tmp_path / "out")):
        plainly("worktree", "add", "-q", str(place), at=workspace)
        (workspace / f"of-{name}").write_text("")
        plainly("config", "--worktree", "include.path", f"../../../of-{name}", at=place)
    (workspace / "a" / "b" / "c" / "far" / "own").mkdir()
    assert {"of-far", "of-out", "a/b/c/far/own", "a/b/c/far/.git"} <= closed_in(workspace)


def test_the_file_that_leads_to_a_submodule_far_below_is_closed(workspace: Path, tmp_path: Path) -> None:
    """Written anew it leads the operator's `git status` to a repository of the agent's, with settings of its own."""
    committed(workspace)
    other = committed(tmp_path / "other")
    plainly("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other), "a/b/c/inner", at=workspace)
    assert "a/b/c/inner/.git" in closed_in(workspace)


def test_a_pipe_in_the_place_of_an_included_file_is_told(workspace: Path) -> None:
    """Nothing can be closed that says something else to each who reads, and a process that stays could fill it."""
    committed(workspace)
    plainly("config", "include.path", "../later", at=workspace)
    os.mkfifo(workspace / "later")
    assert "later" in Looker(home="", state_home="").appeared(WorkspaceSight(path=str(workspace)))


def test_a_workspace_that_is_a_repositorys_own_folder_or_its_hooks_is_closed(tmp_path: Path) -> None:
    """No `.git` lies in it, and its hooks and settings were the agent's to write."""
    around = committed(tmp_path / "around")
    (around / ".git" / "trees" / "one" / "config").mkdir(parents=True)  # a worktree that somebody keeps there
    assert closed_in(around / ".git") == {"hooks", "config"}
    assert seen(around / ".git" / "hooks").unclosable
    sight = seen(around / ".git" / "trees" / "one")
    assert (sight.protected, sight.links, sight.masked, sight.guarded, sight.unclosable) == ((), (), (), (), "")


# ── hooks among everyday files ───────────────────────────────────────────────


@promise("git.operator-settings")
@pytest.mark.parametrize("said", [".", "./", "tools/..", "ABSOLUTE", "link"])
def test_nothing_writes_where_git_takes_each_file_at_the_top_for_a_hook(
    run: SyncRun, workspace: Path, said: str
) -> None:
    """A `pre-commit` that an agent makes there runs with the operator's next commit, and no mount covers a name that
    does not exist."""
    committed(workspace)
    (workspace / "tools").mkdir()
    (workspace / "link").symlink_to(".")
    trap(workspace / "evil", workspace / "ran")
    plainly("config", "core.hooksPath", said.replace("ABSOLUTE", str(workspace)), at=workspace)
    outcome = run.call("palyra.process.run", {"command": "cp", "args": ["evil", "pre-commit"]})
    assert outcome.reason is Reason.UNENFORCEABLE
    assert "core.hooksPath" in outcome.message
    assert outcome.hint is not None
    assert "git config core.hooksPath .githooks" in outcome.hint
    assert run.call("palyra.fs.read", {"path": "file"}).success
    obeyed(workspace, "commit", "--allow-empty", "-m", "x")
    assert not (workspace / "ran").exists()


def test_each_hook_among_everyday_files_is_closed_once_all_of_them_exist(run: SyncRun, workspace: Path) -> None:
    """As the hint has it; everyday files beside them are the agent's as ever."""
    committed(workspace)
    trap(workspace / "evil", workspace / "ran")
    plainly("config", "core.hooksPath", ".", at=workspace)
    hint = run.call("palyra.process.run", {"command": "ls", "args": []}).hint
    assert hint is not None
    subprocess.run(["sh", "-c", hint[hint.index("touch ") :]], cwd=workspace, check=True)
    refused(
        run, "cp evil pre-commit", "mv evil post-checkout", "rm update", "chmod +x commit-msg", "ln -sf evil pre-push"
    )
    (workspace / "file").write_text("y")
    for words in ("git stash", "git stash pop", "git commit -qam y", "git checkout -q HEAD~1", "cp file other"):
        done = called(run, words) if "commit" not in words else called(run, words.replace("git", f"git {AS}"))
        assert done.success, (words, done.message, done.output)
    obeyed(workspace, "commit", "--allow-empty", "-m", "x")
    assert not (workspace / "ran").exists()


def test_a_hook_that_is_a_link_counts_as_missing(workspace: Path) -> None:
    committed(workspace)
    plainly("config", "core.hooksPath", ".", at=workspace)
    for name in HOOKS:
        (workspace / name).touch()
    closed = Allowance()
    assert {os.path.basename(path) for path in find_guarded(str(workspace), closed)[0]} > HOOKS
    assert closed.unclosable == ""
    (workspace / "update").unlink()
    (workspace / "update").symlink_to("file")
    find_guarded(str(workspace), closed)
    assert closed.unclosable.endswith(": update.")


# ── many repositories ────────────────────────────────────────────────────────


def test_a_workspace_of_some_hundred_submodules_is_usable_and_closed(run: SyncRun, workspace: Path) -> None:
    """Beyond 170 of them every call was refused."""
    committed(workspace)
    for number in range(250):
        inner = workspace / ".git" / "modules" / f"s{number}"
        shutil.copytree(workspace / ".git", inner, ignore=shutil.ignore_patterns("modules", "*.sample"))
        (workspace / f"s{number}").mkdir()
        (workspace / f"s{number}" / ".git").write_text(f"gitdir: ../.git/modules/s{number}\n")
    assert called(run, "git -C s249 status").success
    refused(
        run,
        "cp file .git/modules/s249/hooks/pre-commit",
        "cp file .git/modules/s0/config",
        "cp file s249/.git",
        "mv s249 other",
        "mv .git/modules/s100 other",
    )


def test_a_workspace_of_too_many_submodules_is_told_what_to_do(run: SyncRun, workspace: Path) -> None:
    for number in range(700):
        inner = workspace / ".git" / "modules" / f"s{number}"
        for name in ("hooks", "config", "HEAD"):
            (inner / name).mkdir(parents=True)
        (inner / "config").rmdir()
        (inner / "config").touch()
        (inner / "commondir").touch()
    outcome = called(run, "ls")
    assert outcome.reason is Reason.BAD_ARGUMENTS
    assert outcome.message == "The workspace contains more than 2048 guarded files."
    assert outcome.hint is not None
    assert outcome.hint.startswith("Each submodule or repository in it counts for two or three")


def test_a_folder_of_hooks_everywhere_leaves_a_workspace_of_some_hundred_submodules_usable(tmp_path: Path) -> None:
    """An ordinary `git config --global core.hooksPath .githooks`: looking for it in each took all steps there are."""
    workspace = tmp_path / "one" / "two" / "work"
    for number in range(600):
        inner = workspace / ".git" / "modules" / "third" / f"s{number}"
        (inner / "hooks").mkdir(parents=True)
        (inner / "HEAD").touch()
        (inner / "config").write_text(f"[core]\n\tworktree = ../../../../third/s{number}\n")
        (workspace / "third" / f"s{number}").mkdir(parents=True)
        (workspace / "third" / f"s{number}" / ".git").write_text(f"gitdir: ../../.git/modules/third/s{number}\n")
    (tmp_path / "own").write_text("[core]\n\thooksPath = .githooks\n")
    sight = seen(workspace, tmp_path / "own")
    assert (sight.problem, len(sight.protected)) == ("", 1800)


# ── settings that are made to be looked at for long ──────────────────────────


def test_settings_of_many_branches_refuse_no_call_and_say_where_hooks_are(workspace: Path) -> None:
    """One of 2600 branches with `include` in its name, and every call in the workspace was refused."""
    committed(workspace)
    (workspace / "tools").mkdir()
    with (workspace / ".git" / "config").open("a") as config:
        for number in range(4000):
            config.write(f'[branch "fix/include-{number}"]\n\tremote = origin\n\tmerge = refs/heads/{number}\n')
        config.write("[core]\n\thooksPath = tools\n")
    sight = seen(workspace)
    assert sight.problem == ""
    assert f"{workspace}/tools" in sight.protected


def test_settings_of_nested_repositories_keep_nobody_waiting(workspace: Path) -> None:
    """An agent fills those of repositories that it makes; each was read for a second, before and after its calls."""
    for number in range(100):
        inner = workspace / f"r{number}" / ".git"
        inner.mkdir(parents=True)
        (inner / "config").write_text("[include]\n\tpath = x\n" + "#" * 250_000)
    sight = seen(workspace)
    assert sight.problem == "git's settings for this workspace are longer than 8 MiB in all, and not looked at."
    assert "git config --show-origin --list" in sight.remedy


def test_names_of_users_in_settings_are_asked_for_a_few_times_only(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of users may lie on another machine."""
    repository(workspace)
    asked: list[str] = []

    def expanded(path: str) -> str:
        asked.append(path)
        return path

    monkeypatch.setattr(os.path, "expanduser", expanded)
    (workspace / ".git" / "config").write_text("[core]\n" + "".join(f"\thooksPath = ~u{at}\n" for at in range(9000)))
    assert seen(workspace).problem == "The paths lead through too many folders and links to be checked."
    assert 0 < len(asked) < 1000


# ── folders that git copies, and repositories of others ──────────────────────


@pytest.mark.parametrize("inner", ["", "hooks"])
def test_nothing_writes_what_git_copies_into_each_new_repository(
    home: Path, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inner: str
) -> None:
    """A workspace that init.templateDir names, or its `hooks`: a hook of the agent's ran in the operator's next clone,
    and with each hook's name made at the top, as a hint had it, no less."""
    place = workspace / inner
    (workspace / "hooks").mkdir()
    (tmp_path / ".gitconfig").write_text(f"[init]\n\ttemplateDir = {workspace}\n")
    trap(place / "evil", tmp_path / "ran")
    tmp_path.chmod(0o755)
    for name in HOOKS:
        (place / name).touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:probe", place, grant=grant(interpreters=True))
        hook = "post-checkout" if inner else "hooks/post-checkout"
        outcome = run.call("palyra.process.run", {"command": "cp", "args": ["evil", hook]})
        assert outcome.reason is Reason.UNENFORCEABLE
        assert "init.templateDir" in outcome.message
        assert run.call("palyra.fs.read", {"path": "evil"}).success
    obeyed(tmp_path, "clone", "-q", str(committed(tmp_path / "source")), "copy", HOME=str(tmp_path))
    assert (tmp_path / "copy" / "file").exists()
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_repository_of_somebody_elses_around_a_workspace_closes_and_refuses_nothing(tmp_path: Path) -> None:
    """Whoever shares the machine makes one in /tmp: git obeys it only where the operator said so."""
    around = committed(tmp_path / "around")
    (around / "work" / "src").mkdir(parents=True)
    (around / "own").write_text("[safe]\n\tdirectory = *\n")
    plainly("config", "core.hooksPath", "work/src", at=around)
    assert closed_in(around / "work") == {"src"}
    os.chown(around / ".git", 4242, 4242)
    assert closed_in(around / "work") == set()
    assert closed_in(around / "work", around / "own") == {"src"}
    (around / ".git" / "config").write_text("[include]\n" + "".join(f"\tpath = {at}\n" for at in range(5000)))
    assert seen(around / "work").problem == ""
