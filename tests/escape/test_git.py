"""git driven by what an agent made: a call that was judged to run no code runs none, whatever lies in the workspace.

The files are written by the test, as an earlier call with `tee` and `cp` could have; each would leave a mark.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from palyra import Palyra
from palyra.api import Outcome, SyncRun, grant
from palyra.errors import Reason
from palyra.guard.look_guarded import find_guarded
from palyra.guard.look_links import Allowance
from tests.promises import promise

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")]
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b.c")
TIERS = ["c", "b"]


@pytest.fixture(params=TIERS)
def tier(request):
    return request.param


@pytest.fixture
def run(home: Path, workspace: Path, tier: str):
    with Palyra.open(str(home)) as palyra:
        yield palyra.run("agent:probe", workspace, grant=grant(tier=tier, root_tier_b=True))


def git(run: SyncRun, *args: str) -> Outcome:
    outcome = run.call("palyra.process.run", {"command": "git", "args": list(args)})
    if outcome.reason is Reason.UNENFORCEABLE:
        pytest.skip(f"this tier is not to be had here: {outcome.message}")
    return outcome


def told(*args: str, at: Path, given: str = "") -> str:
    environ = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    words = ["git", *IDENTITY, *args]
    return subprocess.run(
        words, cwd=at, env=environ, input=given, check=True, capture_output=True, text=True
    ).stdout.strip()


def plainly(*args: str, at: Path) -> None:
    told(*args, at=at)


def repository(at: Path, *words: str) -> Path:
    at.mkdir(exist_ok=True)
    plainly("init", "-q", *words, at=at)
    return at


def committed(at: Path) -> Path:
    repository(at)
    (at / "file").write_text("x")
    plainly("add", "file", at=at)
    plainly("commit", "-qm", "x", at=at)
    return at


def trap(place: Path, mark: Path) -> str:
    """A program that leaves a mark; git can run it and does nothing worse for it."""
    place.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    place.chmod(0o755)
    return str(place)


@promise("git.agent-code")
def test_a_hook_that_an_agent_made_does_not_run(run: SyncRun, workspace: Path) -> None:
    repository(workspace)
    for name in ("pre-commit", "post-commit", "reference-transaction", "post-checkout"):
        trap(workspace / ".git" / "hooks" / name, workspace / "ran")
    (workspace / "file").write_text("x")
    assert git(run, "add", "file").success
    done = git(run, *IDENTITY, "commit", "-m", "x")
    assert done.success, done.output
    assert git(run, "checkout", "-b", "other").success
    assert not (workspace / "ran").exists()


def test_with_interpreters_granted_the_hooks_run_as_in_any_git(home: Path, workspace: Path, tier: str) -> None:
    committed(workspace)
    trap(workspace / ".git" / "hooks" / "post-checkout", workspace / "ran")
    with Palyra.open(str(home)) as palyra:
        free = palyra.run("user:me", workspace, grant=grant(tier=tier, root_tier_b=True, interpreters=True))
        assert git(free, "checkout", "-b", "other").success
    assert (workspace / "ran").exists()


@promise("git.agent-code")
def test_a_file_system_monitor_of_the_repository_does_not_run(run: SyncRun, workspace: Path) -> None:
    repository(workspace)
    plainly("config", "core.fsmonitor", trap(workspace / "monitor", workspace / "ran"), at=workspace)
    assert git(run, "status").success
    assert not (workspace / "ran").exists()


@promise("git.planted-repository")
def test_a_workspace_made_to_look_like_a_bare_repository_is_none(run: SyncRun, workspace: Path) -> None:
    repository(workspace, "--bare")
    plainly("config", "core.bare", "false", at=workspace)
    plainly("config", "core.worktree", str(workspace), at=workspace)
    plainly("config", "core.fsmonitor", trap(workspace / "monitor", workspace / "ran"), at=workspace)
    git(run, "status")
    assert not (workspace / "ran").exists()


@promise("git.planted-repository")
def test_status_and_diff_do_not_look_into_a_nested_repository_named_by_the_index(run: SyncRun, workspace: Path) -> None:
    repository(workspace)
    inner = committed(workspace / "inner")
    plainly("add", "inner", at=workspace)
    plainly("config", "core.fsmonitor", trap(workspace / "monitor", workspace / "ran"), at=inner)
    (inner / "file").write_text("y")
    os.utime(inner / "file", (1, 1))
    assert git(run, "status").success
    assert git(run, "diff").success
    assert not (workspace / "ran").exists()


def linked(workspace: Path, commit: str, *parents: str) -> str:
    """A commit whose tree alone says that a/b/inner is a submodule: no index holds it."""
    tree = f"160000 commit {commit}\tinner\n"
    for name in ("b", "a"):
        tree = f"040000 tree {told('mktree', '--missing', at=workspace, given=tree)}\t{name}\n"
    words = [word for parent in parents for word in ("-p", parent)]
    return told("commit-tree", "-m", "x", *words, told("mktree", at=workspace, given=tree), at=workspace)


@pytest.mark.parametrize("how", ["--submodule=diff", "--submodule=log", "--submodule"])
def test_a_diff_of_trees_starts_no_git_in_a_repository_that_they_call_a_submodule(
    run: SyncRun, workspace: Path, how: str
) -> None:
    """Three folders down, in no index: nobody looked at its settings, and `--ignore-submodules=none` asked for it."""
    inner, first, second = _two_commits(workspace)
    (inner / ".gitattributes").write_text("* diff=x\n")
    plainly("config", "diff.x.textconv", trap(workspace / "convert", workspace / "ran"), at=inner)
    trees = (linked(workspace, first), linked(workspace, second))
    shown = git(run, "diff", how, "--ignore-submodules=none", *trees)
    assert (shown.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)
    plainly("config", "diff.submodule", how.partition("=")[2] or "log", at=workspace)
    shown = git(run, "diff", "--ignore-submodules=none", *trees)
    assert shown.success
    assert f"+Subproject commit {second}" in str(shown.output["stdout"])
    assert not (workspace / "ran").exists()


def test_a_merge_fetches_nothing_by_a_program_of_a_repository_that_only_trees_name(
    run: SyncRun, workspace: Path
) -> None:
    inner, first, _ = _two_commits(workspace)
    for key, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "x",
        "remote.x.url": "/nowhere",
        "remote.x.promisor": "true",
        "remote.x.uploadpack": trap(workspace / "upload", workspace / "ran"),
    }.items():
        plainly("config", key, value, at=inner)
    base = linked(workspace, first)
    git(run, "merge-tree", "--write-tree", linked(workspace, "1" * 40, base), linked(workspace, "2" * 40, base))
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("words", [("fetch",), ("pull", "--no-rebase")])
def test_what_comes_with_a_fetch_starts_no_git_in_a_repository_that_it_calls_a_submodule(
    run: SyncRun, workspace: Path, words: tuple[str, ...]
) -> None:
    """The repository has one submodule, as many do; a commit that is fetched says that it is another folder."""
    inner, *_ = _two_commits(workspace)
    place = '[submodule "x"]\n\tpath = %s\n\turl = ./nowhere\n'
    (workspace / ".gitmodules").write_text(place % "lib")
    plainly("add", ".gitmodules", at=workspace)
    plainly("commit", "-qm", "x", at=workspace)
    plainly("config", "submodule.x.url", "./nowhere", at=workspace)
    for key, value in {
        "remote.origin.url": "/nowhere",
        "remote.origin.uploadpack": trap(workspace / "upload", workspace / "ran"),
        "protocol.file.allow": "always",
    }.items():
        plainly("config", key, value, at=inner)
    other = workspace / "z" / "y" / "other"
    other.parent.mkdir(parents=True)
    plainly("clone", "-q", ".", str(other), at=workspace)
    (other / ".gitmodules").write_text(place % "a/b/inner")
    plainly("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},a/b/inner", at=other)
    plainly("commit", "-qm", "y", ".gitmodules", "a/b/inner", at=other)
    done = git(run, *words, "--recurse-submodules", "./z/y/other", "HEAD")
    assert (done.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)
    assert git(run, *words, "./z/y/other", "HEAD").success
    assert not (workspace / "ran").exists()


@promise("git.planted-repository")
@pytest.mark.parametrize(
    "words", ["checkout", "switch", "reset --hard", "restore --source", "read-tree -u -m HEAD"], ids=lambda words: words
)
def test_what_only_a_commit_calls_a_submodule_is_not_entered_to_move_it(
    run: SyncRun, workspace: Path, words: str
) -> None:
    """Its repository lies behind a link in .git/modules, where nobody looked, and its filters ran."""
    committed(workspace)
    (workspace / "a" / "b" / "c").mkdir(parents=True)
    inner = committed(workspace / "a" / "b" / "c" / "inner")
    (inner / ".gitattributes").write_text("* filter=x\n")
    plainly("add", ".", at=inner)
    plainly("commit", "-qm", "y", at=inner)
    newest = told("rev-parse", "HEAD", at=inner)
    plainly("checkout", "-q", "HEAD~1", at=inner)
    plainly("config", "filter.x.smudge", trap(workspace / "program", workspace / "ran"), at=inner)
    plainly("config", "submodule.active", ".", at=workspace)
    plainly("checkout", "-qb", "two", at=workspace)
    (workspace / ".gitmodules").write_text('[submodule "s"]\n\tpath = a/b/c/inner\n\turl = ./nowhere\n')
    plainly("add", ".gitmodules", at=workspace)
    plainly("update-index", "--add", "--cacheinfo", f"160000,{newest},a/b/c/inner", at=workspace)
    plainly("commit", "-qm", "y", at=workspace)
    plainly("checkout", "-q", "-", at=workspace)
    store = workspace / "a" / "b" / "c" / "store" / "s"
    store.parent.mkdir()
    (inner / ".git").rename(store)
    (inner / ".git").write_text("gitdir: ../store/s\n")
    (workspace / ".git" / "modules").mkdir()
    (workspace / ".git" / "modules" / "s").symlink_to("../../a/b/c/store/s")
    places = ["."] if "--source" in words else []
    done = git(run, words.split()[0], "--recurse-submodules", *words.split()[1:], "two", *places)
    assert (done.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)


def _with_unseen_submodule(workspace: Path) -> Path:
    """A branch and a stash that alone call a/b/c/inner a submodule, and say that git has to look into it."""
    committed(workspace)
    (workspace / "a" / "b" / "c").mkdir(parents=True)
    inner = committed(workspace / "a" / "b" / "c" / "inner")
    link = f"160000,{told('rev-parse', 'HEAD', at=inner)},a/b/c/inner"
    ignoring = '[submodule "s"]\n\tpath = a/b/c/inner\n\turl = ./nowhere\n\tignore = none\n'
    for last in (("commit", "-qm", "y"), ("stash", "-q")):
        if "commit" in last:
            plainly("checkout", "-qb", "two", at=workspace)
        (workspace / ".gitmodules").write_text(ignoring)
        plainly("add", ".gitmodules", at=workspace)
        plainly("update-index", "--add", "--cacheinfo", link, at=workspace)
        plainly(*last, at=workspace)
        plainly("checkout", "-q", "--recurse-submodules=no", "master", at=workspace)
    (inner / ".gitattributes").write_text("* filter=x\n")
    (inner / "file").write_text("y")
    return inner


@pytest.mark.parametrize(
    "words",
    [
        *("checkout two", "switch two", "checkout -b x two", "checkout --quiet --no-quiet two", "stash pop"),
        *("stash apply", "stash branch x", "merge --autostash two", "rebase --autostash two"),
        "-c rebase.autoStash=1 rebase two",
    ],
)
def test_what_only_a_commit_calls_a_submodule_is_not_looked_into_to_report_it(
    run: SyncRun, workspace: Path, words: str
) -> None:
    """`ignore = none` in the .gitmodules that comes with it stands above what git was told, and no index held it."""
    inner = _with_unseen_submodule(workspace)
    plainly("config", "filter.x.clean", trap(workspace / "program", workspace / "ran"), at=inner)
    if "auto" in words:
        (workspace / "file").write_text("z")
    done = git(run, *IDENTITY, *words.split())
    assert (done.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)
    plainly("config", "--unset", "filter.x.clean", at=inner)
    assert git(run, *IDENTITY, *words.split()).success, "nothing there names a program"


@pytest.mark.parametrize("words", ["checkout -q two", "switch --quiet two", "stash pop -q", "merge two", "rebase two"])
def test_a_git_that_reports_nothing_goes_on_beside_a_repository_with_programs(
    run: SyncRun, workspace: Path, words: str
) -> None:
    inner = _with_unseen_submodule(workspace)
    plainly("config", "filter.x.clean", trap(workspace / "program", workspace / "ran"), at=inner)
    assert git(run, *IDENTITY, *words.split()).success
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("words", ["commit --allow-empty -m x", "merge --abort", "merge two"])
def test_a_stash_that_a_call_says_was_left_reports_as_well(run: SyncRun, workspace: Path, words: str) -> None:
    """Whoever writes .git/MERGE_AUTOSTASH has the next commit put it back."""
    inner = _with_unseen_submodule(workspace)
    plainly("config", "filter.x.clean", trap(workspace / "program", workspace / "ran"), at=inner)
    (workspace / ".git" / "MERGE_AUTOSTASH").write_text(told("rev-parse", "stash@{0}", at=workspace) + "\n")
    if "abort" in words:
        (workspace / ".git" / "MERGE_HEAD").write_text(told("rev-parse", "two", at=workspace) + "\n")
    done = git(run, *IDENTITY, *words.split())
    assert (done.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)


def test_the_end_of_a_bisection_reports_as_well(run: SyncRun, workspace: Path) -> None:
    inner = _with_unseen_submodule(workspace)
    plainly("bisect", "start", at=workspace)
    plainly("config", "filter.x.clean", trap(workspace / "program", workspace / "ran"), at=inner)
    done = git(run, "bisect", "reset", "two")
    assert (done.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)


def test_a_stash_that_settings_ask_for_reports_as_well(run: SyncRun, workspace: Path) -> None:
    inner = _with_unseen_submodule(workspace)
    plainly("config", "filter.x.clean", trap(workspace / "program", workspace / "ran"), at=inner)
    plainly("config", "rebase.autoStash", "true", at=workspace)
    (workspace / "file").write_text("z")
    done = git(run, *IDENTITY, "rebase", "two")
    assert (done.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)


def test_a_repository_planted_deep_in_a_submodule_is_not_obeyed_once_a_commit_calls_it_one(
    run: SyncRun, workspace: Path
) -> None:
    """`git submodule update --init --recursive` checks a commit out and goes on into what that calls submodules."""
    repository(workspace)
    outer = committed(workspace / "outer")
    (outer / "x" / "y").mkdir(parents=True)
    planted = committed(outer / "x" / "y" / "planted")
    first = told("rev-parse", "HEAD", at=planted)
    plainly("branch", "kept", at=planted)
    (planted / ".gitattributes").write_text("* filter=x\n")
    plainly("add", ".", at=planted)
    plainly("commit", "-qm", "y", at=planted)
    place = '[submodule "%s"]\n\tpath = %s\n\turl = ./nowhere\n'
    (outer / ".gitmodules").write_text(place % ("planted", "x/y/planted"))
    plainly("add", ".gitmodules", at=outer)
    plainly("update-index", "--add", "--cacheinfo", f"160000,{first},x/y/planted", at=outer)
    plainly("commit", "-qm", "y", at=outer)
    second = told("rev-parse", "HEAD", at=outer)
    plainly("branch", "kept", at=outer)
    plainly("update-index", "--force-remove", "x/y/planted", at=outer)
    plainly("reset", "-q", "--hard", "HEAD~1", at=outer)
    (workspace / ".gitmodules").write_text(place % ("outer", "outer"))
    plainly("add", ".gitmodules", at=workspace)
    plainly("update-index", "--add", "--cacheinfo", f"160000,{second},outer", at=workspace)
    plainly("commit", "-qm", "x", at=workspace)
    plainly("config", "submodule.outer.url", "./nowhere", at=workspace)
    plainly("config", "filter.x.smudge", trap(workspace / "smudge", workspace / "ran"), at=planted)
    assert git(run, "submodule", "update", "--init", "--recursive").reason is Reason.INTERPRETER_DENIED
    assert not (workspace / "ran").exists()
    plainly("config", "--unset", "filter.x.smudge", at=planted)
    assert git(run, "submodule", "update", "--init", "--recursive").reason is None, "nothing there names a program"


def _two_commits(workspace: Path) -> tuple[Path, str, str]:
    repository(workspace)
    (workspace / "a" / "b").mkdir(parents=True)
    inner = committed(workspace / "a" / "b" / "inner")
    first = told("rev-parse", "HEAD", at=inner)
    (inner / "file").write_text("y")
    plainly("commit", "-qam", "y", at=inner)
    return inner, first, told("rev-parse", "HEAD", at=inner)


def test_settings_in_a_home_that_is_the_workspace_are_not_obeyed(run: SyncRun, workspace: Path) -> None:
    """Tier B's home is the workspace: a file `.gitconfig` there would be the user's own settings."""
    repository(workspace)
    program = trap(workspace / "filter", workspace / "ran")
    (workspace / ".gitconfig").write_text(f'[filter "x"]\n\tclean = {program}\n[core]\n\tfsmonitor = {program}\n')
    (workspace / ".gitattributes").write_text("file filter=x\n")
    (workspace / "file").write_text("x")
    assert git(run, "add", "file").success
    assert not (workspace / "ran").exists()


@pytest.mark.skipif(shutil.which("gpg") is None, reason="there is no gpg")
def test_gpg_runs_no_agent_that_settings_in_the_workspace_name(run: SyncRun, workspace: Path, tmp_path: Path) -> None:
    """`git commit -S` runs no code but gpg, which starts what ~/.gnupg/gpg.conf names as its agent."""
    repository(workspace)
    keys, settings = tmp_path / "keys", workspace / ".gnupg"
    for folder in (keys, settings):
        folder.mkdir(mode=0o700)
    gpg(keys, "--passphrase", "", "--quick-gen-key", "a <a@b.c>", "ed25519", "sign", "never")
    gpg(settings, "--no-autostart", "--import", "-", given=gpg(keys, "--export"))
    subprocess.run(["gpgconf", "--homedir", str(keys), "--kill", "all"], check=True, capture_output=True)
    (settings / "gpg.conf").write_text(f"agent-program {trap(workspace / 'agent', workspace / 'ran')}\n")
    git(run, *IDENTITY, "commit", "-S", "--allow-empty", "-m", "x")
    assert not (workspace / "ran").exists()


def gpg(home: Path, *words: str, given: bytes = b"") -> bytes:
    argv = ["gpg", "--homedir", str(home), "--batch", "--quiet", *words]
    return subprocess.run(argv, input=given, check=True, capture_output=True).stdout


@promise("git.push-to-folder")
@pytest.mark.parametrize("words", [("./evil", "HEAD:refs/heads/x"), ("evil", "HEAD:refs/heads/x"), ("--repo=./evil",)])
def test_a_push_to_a_folder_whose_hooks_would_run_is_refused(run: SyncRun, workspace: Path, words: list[str]) -> None:
    committed(workspace)
    evil = repository(workspace / "evil", "--bare")
    trap(evil / "hooks" / "pre-receive", workspace / "ran")
    outcome = git(run, "push", *words)
    assert (outcome.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)


@promise("git.agent-code")
def test_an_editor_and_a_password_program_of_the_repository_do_not_run(run: SyncRun, workspace: Path) -> None:
    repository(workspace)
    program = trap(workspace / "program", workspace / "ran")
    for key in (
        "core.editor",
        "sequence.editor",
        "core.askPass",
        "credential.helper",
        "core.sshCommand",
        "gpg.program",
    ):
        plainly("config", key, program, at=workspace)
    (workspace / "file").write_text("x")
    plainly("add", "file", at=workspace)
    plainly("commit", "-qm", "x", at=workspace)
    assert git(run, *IDENTITY, "commit", "--amend").success
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("word", ["view", "visualize"])
def test_a_bisection_does_not_show_itself_by_a_program_of_the_workspace(
    run: SyncRun, workspace: Path, word: str
) -> None:
    """git takes every name that begins with `git` for a program of its own, and one with a slash for a path."""
    committed(workspace)
    plainly("commit", "-q", "--allow-empty", "-m", "y", at=workspace)
    (workspace / "git").mkdir()
    (workspace / "git" / "x").write_text("#!/bin/sh\necho got in > mark\n")
    (workspace / "git" / "x").chmod(0o755)
    plainly("bisect", "start", "HEAD", "HEAD~1", at=workspace)
    assert git(run, "bisect", word, "git/x").reason is Reason.INTERPRETER_DENIED
    assert not (workspace / "mark").exists()


@promise("git.push-to-folder")
@pytest.mark.parametrize("name", ["evil", "origin"])
@pytest.mark.parametrize("place", ["remotes", "branches"])
def test_a_push_to_a_remote_that_a_file_of_the_agents_makes_a_folder_runs_no_hook_there(
    run: SyncRun, workspace: Path, name: str, place: str
) -> None:
    """Old gits kept remotes in files, and every git still reads them: no argument tells where `git push` goes."""
    committed(workspace)
    trap(repository(workspace / "sub", "--bare") / "hooks" / "pre-receive", workspace / "ran")
    (workspace / ".git" / place).mkdir(exist_ok=True)
    (workspace / ".git" / place / name).write_text("URL: ./sub\n" if place == "remotes" else "./sub\n")
    outcome = git(run, "push", *(["evil", "HEAD"] if name == "evil" else ["--all"]))
    assert not outcome.success
    assert not (workspace / "ran").exists()
    assert git(run, "ls-remote", "./sub").success, "reading it is no push"


@promise("git.push-to-folder")
def test_the_word_push_is_no_push(run: SyncRun, workspace: Path) -> None:
    """A file that is stashed, a branch, a folder that is fetched from: all of it worked but for its name."""
    committed(workspace)
    committed(workspace / "push")
    (workspace / "file").write_text("y")
    stashed = git(run, *IDENTITY, "stash", "push", "file")
    assert stashed.success, stashed.output or stashed.message
    assert git(run, "branch", "push").success
    for words in (["ls-remote", "push"], ["fetch", "./push", "master:refs/heads/from-push"]):
        done = git(run, *words)
        assert done.success, (done.message, done.output)


@promise("git.agent-code")
@pytest.mark.parametrize("words", [["-msa/b"], ["-kms", "a/b"], ["-ms", "a/b"]])
def test_a_strategy_hidden_in_a_bundle_of_rebase_is_a_program(run: SyncRun, workspace: Path, words: list[str]) -> None:
    """rebase -m has no value, as merge -m has: what follows it in its word is -s and the name of a program."""
    committed(workspace)
    plainly("branch", "other", at=workspace)
    (workspace / "git-merge-a").mkdir()
    trap(workspace / "git-merge-a" / "b", workspace / "ran")
    for number in ("1", "2"):
        (workspace / number).write_text(number)
        plainly("add", number, at=workspace)
        plainly("commit", "-qm", number, at=workspace)
        plainly("checkout", "-q", "other", at=workspace)
    assert git(run, "rebase", *words, "master").reason is Reason.INTERPRETER_DENIED
    assert not (workspace / "ran").exists()


@promise("git.planted-repository")
def test_settings_of_another_folder_that_a_commondir_names_are_not_obeyed(run: SyncRun, workspace: Path) -> None:
    """The config that is closed is then no longer the one that git reads."""
    committed(workspace)
    shutil.copytree(workspace / ".git", workspace / "other")
    trap(workspace / "filter", workspace / "ran")
    plainly("config", "-f", str(workspace / "other" / "config"), "filter.x.clean", "./filter", at=workspace)
    (workspace / ".gitattributes").write_text("* filter=x\n")
    (workspace / "file").write_text("z")
    (workspace / ".git" / "commondir").write_text("../other\n")
    assert git(run, "add", "file").reason is Reason.INTERPRETER_DENIED
    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("words", [("status",), ("diff",), ("diff", "HEAD"), ("log", "-p"), ("commit", "-am", "x")])
def test_a_submodule_is_not_looked_into_to_see_that_it_moved(
    run: SyncRun, workspace: Path, words: tuple[str, ...]
) -> None:
    nested, _ = with_submodule(workspace)
    trap(workspace / "ran.sh", workspace / "ran")
    plainly("config", "core.fsmonitor", str(workspace / "ran.sh"), at=nested)
    git(run, *IDENTITY, *words)
    assert not (workspace / "ran").exists()


def test_a_submodule_that_moved_is_seen_and_committed(run: SyncRun, workspace: Path) -> None:
    _, moved_to = with_submodule(workspace)
    assert git(run, "status", "--short").output["stdout"] == " M nested\n"
    assert f"+Subproject commit {moved_to}" in git(run, "diff").output["stdout"]
    assert git(run, "add", "nested").success
    assert git(run, *IDENTITY, "commit", "-m", "moved").success
    assert "nested | 2 +-" in git(run, "log", "--stat", "-1").output["stdout"]
    assert told("rev-parse", "HEAD:nested", at=workspace) == moved_to


def with_submodule(workspace: Path) -> tuple[Path, str]:
    """A repository whose last commit calls `nested` a submodule, which has moved on since; and where to."""
    nested = committed(repository(repository(workspace) / "nested"))
    plainly("add", "nested", at=workspace)
    plainly("commit", "-q", "-m", "nested", at=workspace)
    plainly("commit", "-q", "--allow-empty", "-m", "moved", at=nested)
    return nested, told("rev-parse", "HEAD", at=nested)


@promise("git.agent-code")
def test_no_setting_of_one_call_takes_back_what_git_was_told(run: SyncRun, workspace: Path) -> None:
    """What -c says stands above the environment."""
    repository(workspace)
    assert git(run, "-c", "diff.ignoreSubmodules=none", "status").reason is Reason.INTERPRETER_DENIED
    assert git(run, "-c", "diff.ignoreSubmodules=all", "status").success


@promise("git.agent-code")
@pytest.mark.parametrize("key", ["filter.x.clean", "filter.x.process", "diff.external", "include.path"])
@pytest.mark.parametrize("below", ["", "inner", "a/inner", "a/b/c/inner"])
def test_a_program_that_the_agents_own_settings_name_is_code(
    run: SyncRun, workspace: Path, key: str, below: str
) -> None:
    """Where there was no config to close, an earlier call could write one; git obeys those of nested ones as well."""
    committed(workspace)
    place = workspace / below
    place.parent.mkdir(exist_ok=True, parents=True)
    if below:
        committed(place)
        plainly("add", below, at=workspace)  # an earlier call, which only puts it into the index
    plainly("config", key, trap(workspace / "program", workspace / "ran"), at=place)
    (workspace / ".gitattributes").write_text("* filter=x\n")
    (workspace / "file").write_text("y")
    outcome = git(run, "add", ".")
    assert (outcome.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)
    assert key.partition(".")[0] in str(outcome.message)


def test_a_repository_that_a_file_leads_to_within_the_workspace_is_the_agents(run: SyncRun, workspace: Path) -> None:
    committed(workspace)
    (workspace / ".git").rename(workspace / "other")
    (workspace / ".git").write_text("gitdir: other\n")
    assert git(run, "status").reason is Reason.INTERPRETER_DENIED


LEADS = {
    "blanks": (" /usr/x", "gitdir:  /usr/x\n"),
    "a blank behind a link's name": ("link ", "gitdir: link \n"),
    "the end of a text": ("other", "gitdir: other\0x\n"),
    "the folder it works in": ("other", "gitdir: /proc/self/cwd/other\n"),
}


@promise("git.planted-repository")
@pytest.mark.parametrize("how", LEADS)
def test_a_file_that_leads_git_where_nobody_looked_makes_it_run_nothing(
    run: SyncRun, workspace: Path, how: str
) -> None:
    """Read a little otherwise than git does, each led out of the workspace, where nothing is the agent's."""
    place, text = LEADS[how]
    _trapped(workspace)
    (workspace / "link").symlink_to("/usr")
    (workspace / place).parent.mkdir(exist_ok=True, parents=True)
    (workspace / ".git").rename(workspace / place)
    (workspace / ".git").write_text(text)
    assert git(run, "diff", "--stat").reason is Reason.INTERPRETER_DENIED
    assert not (workspace / "ran").exists()


@promise("git.planted-repository")
@pytest.mark.parametrize("name", [".git", ".git/config", ".git/index"])
def test_a_link_that_leads_git_elsewhere_than_us_makes_it_run_nothing(run: SyncRun, workspace: Path, name: str) -> None:
    """/proc/self/cwd is the workspace to git, and to us the folder that we were started in."""
    _trapped(workspace)
    (workspace / name).rename(workspace / "other")
    (workspace / name).symlink_to("/proc/self/cwd/other")
    assert git(run, "diff", "--stat").reason is Reason.INTERPRETER_DENIED
    assert not (workspace / "ran").exists()


def _trapped(workspace: Path) -> None:
    committed(workspace)
    plainly("config", "filter.x.clean", trap(workspace / "program", workspace / "ran"), at=workspace)
    (workspace / ".gitattributes").write_text("* filter=x\n")
    (workspace / "file").write_text("y")


def test_hooks_and_settings_beside_a_separate_git_folder_are_closed(home: Path, workspace: Path) -> None:
    """`.git` says where they are, under any name: one that is planted there runs with the operator's next commit."""
    committed(workspace)
    (workspace / ".git").rename(workspace / "other")
    (workspace / ".git").write_text("gitdir: other\n")
    (workspace / "hook").write_text("#!/bin/sh\n")
    before = (workspace / "other" / "config").read_bytes()
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:probe", workspace)
        for words in ("cp hook other/hooks/pre-commit", "cp hook other/config", "mv other another", "rm .git"):
            command, *args = words.split()
            outcome = run.call("palyra.process.run", {"command": command, "args": args})
            assert outcome.output is not None
            assert outcome.output["exit_code"] == 1, words
    assert not (workspace / "other" / "hooks" / "pre-commit").exists()
    assert (workspace / "other" / "config").read_bytes() == before


def test_hooks_that_the_repositorys_settings_lead_to_are_closed(home: Path, workspace: Path) -> None:
    """The operator's next commit runs them, outside of every sandbox: `.git/hooks` is not the only place."""
    committed(workspace)
    hooks = workspace / "tools" / "hooks"
    hooks.mkdir(parents=True)
    plainly("config", "core.hooksPath", "tools/hooks", at=workspace)
    (workspace / "hook").write_text("#!/bin/sh\n")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:probe", workspace)
        for words in ("cp hook tools/hooks/pre-commit", "mv tools old"):
            command, *args = words.split()
            outcome = run.call("palyra.process.run", {"command": command, "args": args})
            assert outcome.output is not None
            assert outcome.output["exit_code"] == 1, words
    assert list(hooks.iterdir()) == []


def _closed_by(workspace: Path) -> set[str]:
    protected, _ = find_guarded(str(workspace), Allowance())
    return {os.path.relpath(path, workspace) for path in protected}


@pytest.mark.parametrize("said", ["häken", "./häken/", "~/work/häken", "absolute", "x/../häken"])
def test_hooks_are_closed_however_settings_spell_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """The settings were read as Latin-1, and a home as a folder called `~`."""
    workspace = tmp_path / "work"
    committed(repository(workspace))
    (workspace / "häken").mkdir()
    (workspace / "x").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    path = str(workspace / "häken") if said == "absolute" else said
    plainly("config", "core.hooksPath", path, at=workspace)
    assert "häken" in _closed_by(workspace)


def test_hooks_of_a_submodule_are_those_among_its_own_files(workspace: Path, tmp_path: Path) -> None:
    """They were looked for in .git/modules, where its repository is."""
    committed(workspace)
    other = committed(tmp_path / "other")
    allowed = ("-c", "protocol.file.allow=always")
    plainly(*allowed, "submodule", "--quiet", "add", str(other), "a/b/c/inner", at=workspace)
    (workspace / "a" / "b" / "c" / "inner" / "own").mkdir()
    plainly("config", "core.hooksPath", "own", at=workspace / "a" / "b" / "c" / "inner")
    assert "a/b/c/inner/own" in _closed_by(workspace)


def test_hooks_of_a_worktree_and_of_a_separate_git_folder_are_closed(workspace: Path) -> None:
    committed(workspace)
    plainly("worktree", "add", "-q", "tree", at=workspace)
    plainly("config", "core.hooksPath", "own", at=workspace)
    for place in (workspace, workspace / "tree"):
        (place / "own").mkdir()
    assert {"own", "tree/own"} <= _closed_by(workspace)
    plainly("config", "--unset", "core.hooksPath", at=workspace)
    plainly("config", "extensions.worktreeConfig", "true", at=workspace)
    plainly("config", "--worktree", "core.hooksPath", "own", at=workspace / "tree")
    assert _closed_by(workspace) & {"own", "tree/own"} == {"tree/own"}
    apart = repository(workspace / "apart", "--separate-git-dir", str(workspace / "store"))
    plainly("config", "core.hooksPath", "own", at=apart)
    (apart / "own").mkdir()
    assert "apart/own" in _closed_by(workspace)


def test_hooks_that_husky_starts_are_closed_below_the_top_too(workspace: Path) -> None:
    """`core.hooksPath` names `_`, whose programs run what lies beside it."""
    committed(workspace)
    (workspace / "web" / ".husky" / "_").mkdir(parents=True)
    (workspace / "web" / ".husky" / "_" / "h").write_text("#!/usr/bin/env sh\n")
    plainly("config", "core.hooksPath", "web/.husky/_", at=workspace)
    assert {"web/.husky", "web/.husky/_"} <= _closed_by(workspace)


def test_hooks_are_closed_where_git_is_a_link(workspace: Path) -> None:
    committed(workspace)
    (workspace / "store").mkdir()
    (workspace / ".git").rename(workspace / "store" / "git")
    (workspace / ".git").symlink_to("store/git")
    (workspace / "own").mkdir()
    plainly("config", "core.hooksPath", "own", at=workspace)
    assert "own" in _closed_by(workspace)


def test_a_git_that_is_a_link_within_the_workspace_is_usable(run: SyncRun, workspace: Path) -> None:
    """Each file that it does not have counted as one that only git sees."""
    committed(workspace)
    (workspace / "store").mkdir()
    (workspace / ".git").rename(workspace / "store" / "git")
    (workspace / ".git").symlink_to("store/git")
    assert git(run, "status").success


def test_settings_that_name_no_program_of_their_own_leave_git_usable(run: SyncRun, workspace: Path) -> None:
    committed(workspace)
    for key, value in (
        ("filter.lfs.clean", "git-lfs clean -- %f"),
        ("filter.lfs.smudge", "git-lfs smudge -- %f"),
        ("filter.lfs.process", "git-lfs filter-process"),
        ("filter.lfs.required", "true"),
        ("diff.renames", "true"),
        ("alias.x", "!id"),
        ("remote.origin.url", "https://example.com/x"),
        ("branch.main.merge", "refs/heads/main"),
    ):
        plainly("config", key, value, at=workspace)
    assert git(run, "status").success


def test_submodules_are_updated_though_every_settings_file_stays_as_it_was(run: SyncRun, workspace: Path) -> None:
    """git writes core.worktree of each again, and for --init where it comes from; both failed on a closed file."""
    committed(workspace)
    committed(workspace / "origin")
    allowed = ("-c", "protocol.file.allow=always")
    plainly(*allowed, "submodule", "--quiet", "add", "./origin", "sub", at=workspace)
    plainly("commit", "-qm", "sub", at=workspace)
    plainly("config", "--remove-section", "submodule.sub", at=workspace)
    files = [workspace / ".git" / "config", workspace / ".git" / "modules" / "sub" / "config"]
    before = [file.read_bytes() for file in files]
    (workspace / "sub" / "file").unlink()
    updated = git(run, "submodule", "update", "--init", "--force")
    assert updated.success, (updated.message, updated.output)
    assert (workspace / "sub" / "file").read_text() == "x"
    if updated.output["tier"] == "C":
        assert [file.read_bytes() for file in files] == before
        assert not git(run, "config", "user.name", "x").success


# ── what git left half done ──────────────────────────────────────────────────


def stopped(workspace: Path, *words: str) -> Path:
    """A rebase on the host that met a conflict."""
    committed(workspace)
    plainly("checkout", "-qb", "topic", at=workspace)
    (workspace / "file").write_text("topic")
    plainly("commit", "-qam", "topic", at=workspace)
    plainly("checkout", "-q", "-", at=workspace)
    (workspace / "file").write_text("main")
    plainly("commit", "-qam", "main", at=workspace)
    for key, value in (("user.name", "a"), ("user.email", "a@b.c")):
        plainly("config", key, value, at=workspace)
    with pytest.raises(subprocess.CalledProcessError):
        plainly("rebase", *words, "HEAD", "topic", at=workspace)
    return workspace / ".git" / "rebase-merge"


def test_a_rebase_that_stopped_at_a_conflict_is_gone_on_with(run: SyncRun, workspace: Path) -> None:
    steps = stopped(workspace)
    (workspace / "file").write_text("both")
    assert git(run, "add", "file").success
    assert git(run, "rebase", "--continue").success
    assert not steps.exists()
    assert git(run, "log", "--format=%s").output["stdout"] == "topic\nmain\nx\n"


def test_a_rebase_that_stopped_at_a_conflict_is_given_up(run: SyncRun, workspace: Path) -> None:
    steps = stopped(workspace)
    assert git(run, "rebase", "--abort").success
    assert not steps.exists()
    assert (workspace / "file").read_text() == "topic"


@promise("git.rebase-steps")
def test_a_rebase_whose_next_step_is_a_command_is_code(run: SyncRun, workspace: Path) -> None:
    steps = stopped(workspace, "-x", "touch mark")
    (workspace / "file").write_text("both")
    assert git(run, "add", "file").success
    assert git(run, "rebase", "--continue").reason is Reason.INTERPRETER_DENIED
    assert steps.is_dir()
    assert not (workspace / "mark").exists()


@promise("git.rebase-steps")
def test_who_goes_on_with_a_rebase_runs_no_hook_that_could_write_its_next_steps(home: Path, workspace: Path) -> None:
    """Granted or not: the operator's own `git rebase --continue` obeys what would stand there."""
    stopped(workspace)
    hook = workspace / ".git" / "hooks" / "post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho exec id >> .git/rebase-merge/git-rebase-todo; touch mark\n")
    hook.chmod(0o755)
    (workspace / "file").write_text("both")
    with Palyra.open(str(home)) as palyra:
        granted = palyra.run("agent:probe", workspace, grant=grant(interpreters=True))
        assert git(granted, "add", "file").success
        assert git(granted, "rebase", "--continue").success
    assert not (workspace / "mark").exists()


@promise("git.rebase-steps")
def test_code_finds_the_steps_of_a_rebase_closed(home: Path, workspace: Path) -> None:
    steps = stopped(workspace)
    code = "echo exec id >> .git/rebase-merge/git-rebase-todo; git rebase --skip"
    with Palyra.open(str(home)) as palyra:
        granted = palyra.run("agent:probe", workspace, grant=grant(interpreters=True))
        outcome = granted.call("palyra.process.run", {"command": "sh", "args": ["-c", code]})
    assert outcome.hint is not None
    assert 'args=["rebase", "--continue"]' in outcome.hint
    assert "exec" not in (steps / "git-rebase-todo").read_text()


def test_who_switches_to_a_branch_of_a_remote_is_not_told_that_it_failed_and_then_that_it_did_not(
    home: Path, tmp_path: Path
) -> None:
    """Where its settings are closed git could not write which branch follows which, and said both."""
    source = committed(tmp_path / "source")
    plainly("branch", "topic", at=source)
    plainly("clone", "-q", str(source), "copy", at=tmp_path)
    with Palyra.open(str(home)) as palyra:
        outcome = git(palyra.run("agent:probe", tmp_path / "copy"), "switch", "topic")
    assert (outcome.output["stdout"], outcome.output["stderr"]) == ("", "Switched to a new branch 'topic'\n")
