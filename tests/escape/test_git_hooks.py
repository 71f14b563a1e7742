"""No call that was judged to run no code runs a hook of the repository, whatever git makes of `core.hooksPath`.

Real git is tried over its subcommands with every hook there is: whoever finds one that ignores the setting finds it
here first. Then the calls themselves, in both tiers, with a hook that an earlier call could have written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra import Palyra
from palyra.api import Outcome, SyncRun, grant
from palyra.errors import Reason
from palyra.guard.command import classify
from palyra.guard.gitenv import git_environment
from palyra.guard.githooks import OBEYING, obeys_hooks_path
from palyra.guard.gitline import PLAIN
from palyra.guard.protected import HOOKS
from tests.promises import promise

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")]
ENVIRONMENT = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"} | {
    f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}
TOLD = ENVIRONMENT | dict(git_environment(alone=True))


def git(at: Path, line: str, environ: dict[str, str] = ENVIRONMENT) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *line.split()], cwd=at, env=environ, input=b"", capture_output=True, check=False)


def make_hooks(folder: Path, mark: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in HOOKS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {mark}\n")
        (folder / name).chmod(0o755)


def make_repository(at: Path) -> Path:
    """With what its subcommands work on: branches, tags, notes, a remote with stale names, a stash, a patch."""
    at.mkdir(exist_ok=True)
    git(at, "init -q -b main")
    for text in ("1\n", "1\n2\n", "1\n2\n3\n", "1\n2\n3\n4\n"):
        (at / "f").write_text(text)
        git(at, "add f")
        git(at, "commit -q -m x")
    for line in (
        "branch topic HEAD~1", "tag t", "notes add -m n", "update-ref refs/remotes/o/gone HEAD", "checkout -q topic",
        "update-ref refs/remotes/o/main HEAD", "symbolic-ref refs/remotes/o/HEAD refs/remotes/o/main", "remote add o .",
    ):  # fmt: skip
        assert git(at, line).returncode == 0, line
    (at / "g").write_text("g")
    git(at, "add g")
    git(at, "commit -q -m g")
    git(at, "format-patch -q -1 -o p")
    git(at, "checkout -q main")
    git(at, "bundle create b.bundle main")
    (at / "f").write_text("changed")
    git(at, "stash")
    return at


LINES = """
add .; am p/0001-g.patch; annotate f; apply p/0001-g.patch; archive HEAD; bisect start; bisect start HEAD HEAD~2
blame f; branch new; branch -D topic; branch -m topic t2; branch -M main m2; branch -c topic t3; bundle verify b.bundle
bundle unbundle b.bundle; cat-file -p HEAD; check-attr -a f; check-ignore f; cherry main topic; cherry-pick topic
checkout topic; checkout -b n; checkout --orphan n; checkout --detach; clean -fdx; clone . cl; clone --bare . cl; column
commit --allow-empty -m x; commit --amend -m x; commit-graph write; commit-tree HEAD^{tree} -m x; config user.name x
count-objects; describe --tags; diff HEAD~1; diff-files; diff-index HEAD; diff-tree HEAD; fast-export HEAD
fetch o main:xx; fetch --prune o; fetch --all; fetch . topic:zz; fetch b.bundle main:yy; for-each-ref; format-patch -1
fsck; gc; gc --prune=now; grep x; hash-object f; init; init --bare ib; init-db; log; ls-files; ls-remote .; ls-tree HEAD
merge topic; merge --no-ff topic -m x; merge --squash topic; merge-base main topic; merge-tree main topic; mktree
mv f f2; name-rev HEAD; notes add -f -m x; notes append -m x; notes remove; notes copy -f HEAD HEAD~1; notes prune
pack-refs --all --prune; prune; pull --no-rebase . topic; pull --rebase o topic; range-diff HEAD~2 HEAD~1 HEAD
read-tree HEAD; rebase topic; rebase --root; reflog; reflog expire --all --expire=now; reflog delete HEAD@{0}; remote
remote add z .; remote add -f -m main z .; remote rename o o2; remote remove o; remote set-head o main
remote set-head -d o; remote prune o; remote update -p; remote show -n o; remote set-branches o main; repack -ad
replace HEAD HEAD~1; replace --graft HEAD~1; rerere; reset --hard HEAD~1; restore f; rev-list HEAD; rev-parse HEAD
revert --no-edit HEAD; rm f; shortlog HEAD; show; show-branch; show-ref; sparse-checkout init; stage f; stash push
stash pop; stash apply; stash drop; stash clear; stash branch sb; status; submodule init; submodule update --init
submodule sync; submodule deinit --all; switch topic; switch -c n; switch --orphan n
symbolic-ref refs/heads/s refs/heads/main; symbolic-ref -d refs/remotes/o/HEAD; tag t2; tag -a t3 -m x; tag -d t
update-index --refresh; update-ref refs/heads/u HEAD; update-ref -d refs/heads/topic; whatchanged; worktree add -b w w
worktree prune; write-tree
"""
COMMANDS = [line.strip() for text in LINES.strip().splitlines() for line in text.split(";")]


@promise("git.ignored-hooks-path")
def test_no_subcommand_that_is_said_to_obey_runs_any_hook(tmp_path: Path) -> None:
    made, mark = make_repository(tmp_path / "made"), tmp_path / "ran"
    make_hooks(made / ".git" / "hooks", mark)
    ran = dict[str, str]()
    for line in COMMANDS:
        at = tmp_path / "at"
        shutil.copytree(made, at, symlinks=True)
        git(at, line, TOLD)
        if mark.exists():
            ran[line] = mark.read_text()
            mark.unlink()
        shutil.rmtree(at)
    assert {line for line in ran if line.split()[0] in OBEYING} == set(), ran
    assert {line.split()[0] for line in COMMANDS} <= PLAIN
    git(made, "bisect start")  # the hooks do run where nothing keeps them
    assert mark.exists()


@promise("git.ignored-hooks-path")
@pytest.mark.parametrize("tier", ["c", "b"])
@pytest.mark.parametrize(
    "line",
    ["bisect start", "bisect start HEAD HEAD~2", "remote prune o", "remote set-head -d o", "remote rename o p",
     "remote remove o"],
)  # fmt: skip
def test_a_hook_that_ignores_the_setting_makes_its_calls_code(
    home: Path, workspace: Path, tier: str, line: str
) -> None:
    make_repository(workspace)
    make_hooks(workspace / ".git" / "hooks", workspace / "ran")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run(
            "agent:probe", workspace, grant=grant(tier=tier, root_tier_b=tier == "b", executables=("timeout",))
        )
        for command, args in (("git", line.split()), ("timeout", ["9", "git", *line.split()])):
            outcome = call(run, command, *args)
            assert outcome.reason is Reason.INTERPRETER_DENIED, outcome.message
        assert call(run, "git", "status").success
        assert call(run, "git", "branch", "n").success
        assert not (workspace / "ran").exists()
        (workspace / ".git" / "hooks" / "reference-transaction").unlink()
        # In tier C a remote cannot be renamed all the same: the settings are closed.
        assert call(run, "git", *line.split()).reason is not Reason.INTERPRETER_DENIED
    assert not (workspace / "ran").exists()


def call(run: SyncRun, command: str, *args: str) -> Outcome:
    outcome = run.call("palyra.process.run", {"command": command, "args": list(args)})
    if outcome.reason is Reason.UNENFORCEABLE:
        pytest.skip(f"this tier is not to be had here: {outcome.message}")
    return outcome


def link_hooks(workspace: Path) -> None:
    make_hooks(workspace / "elsewhere", workspace / "ran")
    shutil.rmtree(workspace / ".git" / "hooks", ignore_errors=True)
    (workspace / ".git" / "hooks").symlink_to("../elsewhere")


def common_folder(workspace: Path) -> None:
    """`commondir` says that references, settings and hooks are another repository's."""
    shutil.copytree(workspace / ".git", workspace / "other", symlinks=True)
    (workspace / ".git" / "commondir").write_text("../other\n")
    make_hooks(workspace / "other" / "hooks", workspace / "ran")


def git_file(workspace: Path) -> None:
    (workspace / ".git").rename(workspace / "other")
    (workspace / ".git").write_text("gitdir: other\n")
    make_hooks(workspace / "other" / "hooks", workspace / "ran")


def bare(workspace: Path) -> None:
    for place in list((workspace / ".git").iterdir()):
        place.rename(workspace / place.name)
    (workspace / ".git").rmdir()
    make_hooks(workspace / "hooks", workspace / "ran")


def hooks_of_each_process(workspace: Path) -> None:
    """To git `/proc/self/cwd` is the workspace, to who looks it is somewhere else."""
    make_hooks(workspace / "elsewhere", workspace / "ran")
    shutil.rmtree(workspace / ".git" / "hooks", ignore_errors=True)
    (workspace / ".git" / "hooks").symlink_to("/proc/self/cwd/elsewhere")


def hook_of_each_process(workspace: Path) -> None:
    make_hooks(workspace / "elsewhere", workspace / "ran")
    (workspace / ".git" / "hooks").mkdir(exist_ok=True)
    hook = workspace / ".git" / "hooks" / "reference-transaction"
    hook.symlink_to("/proc/self/cwd/elsewhere/reference-transaction")


def linked_repository(workspace: Path) -> None:
    make_hooks(workspace / ".git" / "hooks", workspace / "ran")
    (workspace / ".git").rename(workspace / "other")
    (workspace / ".git").symlink_to("other")


def linked_through_proc(workspace: Path) -> None:
    make_hooks(workspace / ".git" / "hooks", workspace / "ran")
    (workspace / ".git").rename(workspace / "other")
    (workspace / ".git").symlink_to("/proc/self/cwd/other")


def not_executable_yet(workspace: Path) -> None:
    make_hooks(workspace / ".git" / "hooks", workspace / "ran")
    (workspace / ".git" / "hooks" / "reference-transaction").chmod(0o644)


PLACES = [link_hooks, hooks_of_each_process, hook_of_each_process, linked_repository, linked_through_proc,
          common_folder, git_file, bare, not_executable_yet]  # fmt: skip


@promise("git.ignored-hooks-path")
@pytest.mark.parametrize("tier", ["c", "b"])
@pytest.mark.parametrize("place", PLACES)
def test_no_place_hides_such_a_hook(home: Path, workspace: Path, tier: str, place: Callable[[Path], None]) -> None:
    make_repository(workspace)
    place(workspace)
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:probe", workspace, grant=grant(tier=tier, root_tier_b=tier == "b"))
        assert call(run, "git", "bisect", "start").reason is Reason.INTERPRETER_DENIED
    assert not (workspace / "ran").exists()


@promise("git.ignored-hooks-path")
@pytest.mark.parametrize(
    "line", ["git -C sub bisect start", "git --git-dir=sub/.git remote prune o", "git --bare bisect start",
             "env -C sub git bisect start", "env GIT_DIR=sub/.git git bisect start", "env -i git bisect start",
             "git --git-dir sub remote prune o", "git --work-tree=sub bisect start"],
)  # fmt: skip
def test_another_repository_is_code_by_the_words_alone(line: str) -> None:
    words = line.split()
    assert classify(words[0], words[1:]).runs_code


@promise("git.ignored-hooks-path")
@pytest.mark.parametrize(
    ("line", "obeys"),
    [
        ("git status", True), ("git", True), ("git --version", True), ("git commit -m x", True), ("git bisect", False),
        ("git -c user.name=x remote prune o", False), ("git --no-pager bisect good", False), ("git init", False),
        ("nice timeout 5 git bisect good", False), ("env A=b git log", True), ("xargs git log", False),
        ("find . -exec git log ;", False), ("env -S git log", False), ("git foo", False),
    ],
)  # fmt: skip
def test_which_calls_obey_is_told_by_their_words(line: str, obeys: bool) -> None:
    command, *args = line.split()
    assert obeys_hooks_path(command, args) is obeys
