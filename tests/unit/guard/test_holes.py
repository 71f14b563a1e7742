"""Ways around the guard that were found by attack, one test each: none may come back."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.errors import Reason, Rejected
from palyra.guard.command import classify
from palyra.guard.facts import guard_process
from palyra.guard.look import MAX_TOLD, Looker
from palyra.guard.look_links import MAX_FOLDERS, MAX_STEPS, Allowance
from palyra.guard.paths import candidates
from palyra.model.call import OperatorGrant
from palyra.model.sights import ExecutableSight, LookRequest, PathSight, Sights, WorkspaceSight
from tests.promises import promise


def runs_code(*words: str) -> bool:
    return classify(words[0], words[1:]).runs_code


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    folder = (tmp_path / "ws").resolve()
    (folder / ".git" / "modules" / "lib" / "hooks").mkdir(parents=True)
    (folder / ".git" / "modules" / "lib" / "HEAD").write_text("")
    (folder / ".git" / "modules" / "lib" / "config").write_text("")
    return folder


def look(ws: Path, *args: str) -> Sights:
    looker = Looker(home="", state_home="")
    found = candidates(args)
    return looker.look(LookRequest(workspace=str(ws), cwd="", command="x", also=(), search_path=(), candidates=found))


def protected(ws: Path) -> set[str]:
    return {os.path.relpath(path, ws) for path in look(ws).workspace.protected}


# ── sed and find ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "script", [":l\fa~;1e id", "tl\va~;1e id", ":l}a~;1e id", ":l a~;1e id", ":l;a\\\n1e id", "p\r"]
)
def test_no_label_hides_code_in_a_sed_script(script):
    assert runs_code("sed", script, "f")


@pytest.mark.parametrize("script", [":a;N;$!ba;s/\\n/ /g", "$!{N;ba};:a", "\ts/a/b/\n"])
def test_sed_scripts_with_labels_stay_usable(script):
    assert not runs_code("sed", script, "f")


@pytest.mark.parametrize("inner", ["sed -n {} f", "tar cf o --checkpoint=1 {} f", "git {}", "sort x{}", "awk {} f"])
def test_find_does_not_put_file_names_where_code_is_read(inner):
    assert runs_code("find", "1e id", "-maxdepth", "0", "-exec", *inner.split(), ";")


def test_find_may_still_give_file_names_to_plain_programs():
    assert not runs_code("find", ".", "-exec", "cat", "{}", "+")


@pytest.mark.parametrize(
    "line",
    [
        "find . -name *.py -exec sed -i s/a/b/ {} +", "find src tests -type f -exec sed -n 1p {} ;",
        "find -name x -exec sed -i s/a/b/ {} +", "find -L ./src ( -name x -o -name y ) -exec sort {} ;",
        "find . -exec git add {} +", "find . -name *.log -exec tar -rf a.tar {} +", "find . -exec zip a.zip {} +",
        "find . -exec env CI=1 sed -i s/a/b/ {} ;", "find . -name *.tar -exec tar -xf {} ;",
    ],
)  # fmt: skip
def test_names_that_begin_like_a_path_are_no_options_and_no_scripts(line):
    """What every agent does to change many files at once was refused: such a name can be nothing but a file."""
    assert not runs_code(*line.split())


@pytest.mark.parametrize(
    "line",
    [
        "find . -exec sed {} f ;", "find src -exec sed {} f ;", "find . -exec sed -e {} f ;",
        "find . -exec sed -f {} f ;", "find . -exec sed s/x/{}/ f ;", "find /x -exec sed {} f ;",
        "find . -execdir sed s/a/b/ {} ;", "find -files0-from l -exec sed s/a/b/ {} ;",
        "find -x cIf -exec tar {} sh x ;", "find -D tree cIf -exec tar {} sh x ;", "find cIf -exec tar {} sh x ;",
        "find host: -exec tar -xf {} ;", "find . -exec git {} ;", "find . -exec git -C {} status ;",
        "find . -exec git push {} ;", "find . -exec sort --compress-program {} f ;", "find . -exec env {} ;",
        "find . -exec env zip -T a.zip {} ;", "bfs . -exec tar {} sh x ; cIf", "find -- -x -exec sed s/a/b/ {} ;",
        "find src -exec nice sed s/a/b/ {} ;", "find . -exec xargs -a {} +", "find . -exec time -o {} +",
        "find . -exec env -u {} +", "find . -name x -exec nice xargs --arg-file {} +",
    ],
)  # fmt: skip
def test_names_that_could_be_something_else_than_a_file_are_code(line):
    assert runs_code(*line.split())


# ── git ──────────────────────────────────────────────────────────────────────


@promise("git.agent-code")
@pytest.mark.parametrize(
    "line",
    [
        "cherry-pick --strategy=x/evil a", "merge -s x/evil a", "merge -nsx/evil a", "rebase --strategy x/evil a",
        "revert --strat x a", "pull -s x", "-C sub status", "-C.. status", "--git-dir=sub/.git status", "--bare log",
        "push ./evil", "push ../x HEAD", "push -f file:///x", "push --repo=./evil", "push --frob origin", "push ~/x",
        "push sub/evil main", "archive --remote=./evil --format=x HEAD",
        "--work-tree sub status", "init --separate-git-dir x", "rebase --continue", "rebase --skip",
        "rebase --edit-todo", "rebase -x id", "cherry-pick --continue", "config -f x core.pager y",
        "config -f --list/../.git/config core.fsmonitor x", "config -- core.hooksPath -h",
        "config core.hooksPath --list",
        "config core.pager cat", "config --file=x user.name y", "config --list --no-list core.pager x",
        "config --rename-section user alias", "config set core.pager x", "config edit", "config user.name -h",
        "config -lf x --no-list a.b c", "--config-env=core.pager=cat log",
    ],
)  # fmt: skip
def test_git_finds_no_program_through_strategies_other_repositories_and_settings(line):
    assert runs_code("git", *line.split())


@pytest.mark.parametrize(
    "line",
    [
        "status", "log", "diff", "--version", "show", "add .", "commit -m x", "ls-files", "rev-parse --git-dir", "init",
        "init sub", "branch", "push origin feature/x", "push -u fork main", "push git@host:a/b.git HEAD:refs/heads/x",
        "push https://host/a/b.git", "-C . status", "--git-dir=.git log", "config --get core.pager", "config --list",
        "config -l", "config -f .gitmodules --list", "config get a.b", "config list", "config user.email a@b.c",
        "config color.ui auto", "config set user.name x", "config core.pager", "merge -s ours x", "cherry-pick -s x",
        "rebase main", "rebase --abort",
    ],
)  # fmt: skip
def test_git_stays_usable_at_the_top_of_the_workspace(line):
    assert not runs_code("git", *line.split())


@promise("git.agent-code")
@pytest.mark.parametrize("words", [("env", "-C", "sub", "git", "status"), ("find", ".", "-execdir", "git", "log", ";")])
def test_no_wrapper_leads_git_into_another_repository(words):
    assert runs_code(*words)


@pytest.mark.parametrize(("cwd", "code"), [("/w", False), ("/w/sub", True)])
def test_git_below_the_top_counts_as_code(cwd, code):
    facts = guard_process(
        command="git",
        args=["status"],
        classification=classify("git", ["status"]),
        sights=Sights(
            workspace=WorkspaceSight(path="/w"),
            cwd=PathSight(argument=-1, text="", resolved=cwd, exists=True),
            executable=ExecutableSight(name="git", path="/usr/bin/git", sha256="d" * 64),
        ),
        allowed_executables=("git",),
        allow_interpreters=False,
        grant=OperatorGrant(),
        tier="C",
        egress="strict",
    )
    assert facts.runs_code is code


# ── what is protected ────────────────────────────────────────────────────────


def test_a_head_among_the_modules_does_not_unprotect_submodules(ws):
    (ws / ".git" / "modules" / "HEAD").write_text("")
    assert protected(ws) == {".git/modules/lib/config", ".git/modules/lib/hooks"}


def test_submodules_of_submodules_are_protected(ws):
    inner = ws / ".git" / "modules" / "lib" / "modules" / "deep"
    inner.mkdir(parents=True)
    (inner / "config").write_text("")
    assert ".git/modules/lib/modules/deep/config" in protected(ws)


def test_a_crowd_of_modules_hides_none(ws):
    for number in range(70):
        (ws / ".git" / "modules" / f"a{number}").mkdir()
    assert ".git/modules/lib/config" in protected(ws)


def test_too_many_modules_are_a_problem_not_a_gap(ws):
    for number in range(MAX_FOLDERS + 1):
        (ws / ".git" / "modules" / f"a{number}" / "x").mkdir(parents=True)
    assert look(ws).workspace.problem == "The workspace's .git has too many submodules or worktrees to be protected."


def test_worktrees_rebases_and_nested_repositories_are_protected(ws):
    (ws / ".git" / "worktrees" / "w").mkdir(parents=True)
    (ws / ".git" / "rebase-merge").mkdir()
    (ws / "a" / "b" / ".git" / "hooks").mkdir(parents=True)
    (ws / "sub").mkdir()
    for name in (".git/worktrees/w/gitdir", ".git/worktrees/w/commondir", ".git/commondir", "sub/.git"):
        (ws / name).write_text("")
    (ws / "a" / "b" / ".git" / "config").write_text("")
    assert protected(ws) == {
        *(".git/worktrees/w/gitdir", ".git/worktrees/w/commondir", ".git/commondir", ".git/rebase-merge", "sub/.git"),
        *("a/b/.git/config", "a/b/.git/hooks", ".git/modules/lib/config", ".git/modules/lib/hooks"),
    }


def test_what_a_git_file_leads_to_in_the_workspace_is_protected(ws):
    """`git init --separate-git-dir`, and worktrees of a bare repository: known by no name of their own."""
    for folder in ("sub", "wt", "real/hooks", "bare/hooks", "bare/worktrees/wt"):
        (ws / folder).mkdir(parents=True)
    for name in ("real/config", "bare/config", "bare/worktrees/wt/gitdir"):
        (ws / name).write_text("")
    (ws / "sub" / ".git").write_text("gitdir: ../real\n")
    (ws / "wt" / ".git").write_text(f"gitdir: {ws}/bare/worktrees/wt\n")
    (ws / "bare" / "worktrees" / "wt" / "commondir").write_text("../..\n")
    assert protected(ws) - {".git/modules/lib/config", ".git/modules/lib/hooks"} == {
        *("sub/.git", "real/config", "real/hooks", "wt/.git", "bare/config", "bare/hooks"),
        *("bare/worktrees/wt/gitdir", "bare/worktrees/wt/commondir"),
    }


def test_hooks_are_protected_where_the_settings_say_that_they_are(ws):
    for folder in ("tools/hooks", "a/.git", "a/my-hooks", "elsewhere"):
        (ws / folder).mkdir(parents=True)
    config = ws / ".git" / "config"
    config.write_text('[core]\n\thooksPath = "tools/hooks"\n')
    (ws / "a" / ".git" / "config").write_text("[CORE]HooksPath=my-hooks")
    assert {"tools/hooks", "a/my-hooks"} <= protected(ws)
    config.write_text(f"[core]\nhooksPath = {ws}/elsewhere\n[core]\nhooksPath = /usr/bin\nhooksPath = ../..\n")
    assert "elsewhere" in protected(ws)
    assert "tools/hooks" not in protected(ws)
    config.write_text("[core]\nhooksPath = made-later\n")
    before = look(ws).workspace
    (ws / "made-later").mkdir()
    assert Looker(home="", state_home="").appeared(before) == ("made-later",)


def test_a_git_file_that_leads_each_process_elsewhere_is_told_after_every_call(ws):
    (ws / "sub").mkdir()
    (ws / "sub" / ".git").write_text("gitdir: /proc/self/cwd/real\n")
    found = look(ws).workspace
    assert Looker(home="", state_home="").appeared(found) == ("sub/.git",)


def test_a_fifo_or_a_link_to_nothing_in_a_repository_holds_nobody_up_and_is_code(ws):
    from palyra.guard.look_git import look_at_git

    for make in (os.mkfifo, lambda path: os.symlink("/dev/stdin", path), lambda path: os.symlink("/nothing", path)):
        place = ws / ".git" / "config"
        make(place)
        assert look_at_git(look(ws).workspace) == ".git/config, which leads each program elsewhere, or is no plain file"
        place.unlink()
    assert look_at_git(look(ws).workspace) == ""


def test_names_with_line_separators_or_without_utf8_do_not_break_the_look(ws):
    names = [b".env\xff", b".env\x0c", ".env\u2028x".encode()]
    for name in names:
        (Path(os.fsdecode(bytes(ws) + b"/" + name))).write_text("")
    before = look(ws).workspace
    assert {os.fsencode(path) for path in before.masked} == {bytes(ws) + b"/" + name for name in names}
    told = Looker(home="", state_home="").appeared(WorkspaceSight(path=str(ws), protected=before.protected))
    assert set(told) == {".env\ufffd", ".env\x0c", ".env\u2028x"}


# ── what a refusal tells, and what it costs ──────────────────────────────────


def test_a_path_in_a_bundle_counts_whether_it_exists_or_not(ws, tmp_path):
    def ends(*args: str) -> list[str]:
        return [sight.resolved for sight in look(ws, *args).paths if not sight.resolved.startswith(str(ws))]

    assert ends("-lx/etc/passwd") == ["/etc/passwd"]
    assert ends("-lx/etc/nothing-there") == ["/etc/nothing-there"]
    assert ends("-Isrc/include") == []
    (tmp_path / "there").write_text("")
    (ws / "http:").mkdir()
    assert len(ends("http://../../there")) == len(ends("http://../../not-there")) == 1


def test_a_maze_of_links_is_refused_quickly(ws):
    for number in range(39):
        (ws / f"l{number}").symlink_to("./" * 2000 + (f"l{number + 1}" if number < 38 else "end"))
    began = time.monotonic()
    sights = look(ws, *(f"./{'./' * n}l0" for n in range(200)))
    assert time.monotonic() - began < 10
    assert sights.workspace.problem == "The paths lead through too many folders and links to be checked."
    with pytest.raises(Rejected) as caught:
        guard_process(
            command="ls",
            args=[],
            classification=classify("ls", []),
            sights=sights,
            allowed_executables=("ls",),
            allow_interpreters=False,
            grant=OperatorGrant(),
            tier="C",
            egress="strict",
        )
    assert caught.value.reason is Reason.BAD_ARGUMENTS


def planted(ws: Path) -> None:
    (ws / ".git" / "hooks").mkdir(parents=True)
    (ws / ".github").mkdir()


def appeared(ws: Path) -> tuple[str, ...]:
    return Looker(home="", state_home="").appeared(WorkspaceSight(path=str(ws)))


@promise("workspace.new-guarded-names")
@pytest.mark.parametrize("target", [".", "sub/..", "/proc/self/cwd/sub", "/proc/thread-self/cwd", "/dev/fd/../cwd/sub"])
def test_a_link_that_closes_nothing_and_leads_back_into_the_workspace_is_told(tmp_path: Path, target: str) -> None:
    """`.claude -> .` makes settings of a plain file at the top, and nobody was told that there are any now."""
    ws = tmp_path.resolve()
    (ws / "sub").mkdir()
    (ws / ".git").mkdir()
    for name in (".claude", ".vscode", ".git/hooks"):
        (ws / name).symlink_to(target if "/" not in name or target.startswith("/") else f"../{target}")
    for number in range(200):
        (ws / f".env{number:03d}").symlink_to(target)
    assert appeared(ws) == (".claude", ".git/hooks", ".vscode")
    assert Looker(home="", state_home="")._look_at_workspace(str(ws)).problem == ""


@promise("workspace.new-guarded-names")
def test_a_hook_does_not_go_untold_among_a_crowd_of_env_files(ws: Path) -> None:
    """Each of them was followed first, until no steps were left; and all of them stood in the outcome, five megabytes
    that no quota of output had counted."""
    for number in range(MAX_STEPS + 10):
        (ws / f".env{number:05d}").symlink_to("x")
    for number in range(200):
        (ws / f".env-{number:05d}").write_text("")
    planted(ws)
    told = appeared(ws)
    assert {".git/hooks", ".github"} <= set(told)
    assert len(told) <= MAX_TOLD + 2
    assert any(line.startswith("…") for line in told)


@promise("workspace.new-guarded-names")
def test_a_hook_does_not_go_untold_in_a_folder_with_too_many_names(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Allowance, "__init__", few_entries(Allowance.__init__))
    for place in (ws, ws / ".git"):
        place.mkdir(exist_ok=True)
        for number in range(30):
            (place / f"{number:02d}").write_text("")
    (ws / ".git" / "hooks").mkdir(exist_ok=True)
    told = appeared(ws)
    assert ".git/hooks" in told
    assert told[-1].startswith("… and what could not be looked at: ")


def few_entries(made: Callable[..., None]) -> Callable[..., None]:
    return lambda self, **given: made(self, **(given | {"entries": 10}))


@pytest.mark.parametrize(
    "args",
    [["-T", "a';id;'/b.zip", "f"], ["-rT", "x.zip", "it's"], ["--test", "'/b"], ["-b", "';id;'", "-9qT", "b", "f"]],
)
def test_a_quote_in_the_name_of_a_tested_archive_is_code(args: list[str]) -> None:
    """`mkdir "a';id;'"`, then `zip -T "a';id;'/b.zip" f`: zip tests by a text that it hands to sh."""
    found = classify("zip", args)
    assert (found.runs_code, found.interpreter) == (True, True)


@pytest.mark.parametrize("line", ["zip -T b.zip f", "zip -r it's.zip f", "zip -q b.zip f's"])
def test_archives_that_are_not_tested_or_have_no_quotes_are_plain(line: str) -> None:
    command, *args = line.split()
    assert not classify(command, args).runs_code


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "PATH", "BASH_ENV", "GIT_DIR"])
def test_a_variable_that_xargs_numbers_its_processes_by_is_judged_like_any_other(name: str) -> None:
    """`LD_LIBRARY_PATH=0` is the folder `0` of the workspace, and the libraries that a call put there."""
    assert classify("xargs", [f"--process-slot-var={name}", "cat"]).runs_code
    assert not classify("xargs", ["--process-slot-var=SLOT", "cat"]).runs_code


# ── what git was told ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "words",
    [
        "env -i git commit", "env - git commit", "env -u GIT_CONFIG_COUNT git commit", "env -uX nice git commit",
        "env --ignore-env git status", "sudo git status", "doas git status", "env -S '-i git commit'",
        "env -C sub -S 'git commit'", "env -i -S 'git commit'", "env -iS git commit",
    ],
)  # fmt: skip
def test_git_is_not_started_without_what_it_was_told(words: str) -> None:
    """The settings by which git runs no hooks are variables: a wrapper that drops them lets the hooks run."""
    assert runs_code(*shlex.split(words))


@pytest.mark.parametrize("blank", ["\v", "\f", "\r", "\n", "\t"])
def test_a_blank_that_only_env_takes_for_one_hides_no_program(blank: str) -> None:
    """`A=1\vsh\v-c\vid` was one assignment here, and to env an assignment and sh."""
    assert runs_code("env", "-S", blank.join(("A=1", "sh", "-c", "id")))


@pytest.mark.parametrize("words", ["env git status", "env CI=1 git status", "env -i ls", "sudo ls", "env -uX ls git.c"])
def test_other_programs_and_other_variables_stay_usable(words: str) -> None:
    assert not runs_code(*shlex.split(words))


@promise("git.agent-code")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("rebase -msNAME x", True), ("rebase -ms NAME x", True), ("rebase -qm -s NAME", True),
        ("rebase -ms ort x", False),
        ("rebase -m x", False), ("merge -m sNAME x", False), ("merge -msNAME x", False), ("merge -sours x", False),
        ("pull -rsNAME", True), ("cherry-pick -xs HEAD~1", False), ("revert -s HEAD", False), ("merge -qsNAME", True),
        ("-c diff.ignoreSubmodules=none status", True), ("-c diff.ignoreSubmodules=all status", False),
        ("-c diff.ignoreSubmodules=dirty status", False), ("-c diff.ignoreSubmodules=untracked status", True),
        ("-c status.submoduleSummary=true status", True), ("-c gc.auto=0 commit", False), ("-c gc.auto=1 commit", True),
        ("-c submodule.recurse checkout x", True), ("-c core.fsmonitor=false status", False),
    ],
)  # fmt: skip
def test_a_bundle_hides_no_strategy_and_no_setting_undoes_what_git_was_told(words: str, *, expected: bool) -> None:
    assert runs_code("git", *words.split()) is expected


# ── words that are taken for something else ──────────────────────────────────


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("grep", ["--binary", "x", "../secret"]), ("grep", ["-e", "--", "-f../secret", "f"]),
        ("rg", ["--ignore", "x", "../secret"]), ("cat", ["--", "-x", "../secret"]),
    ],
)  # fmt: skip
def test_a_file_outside_passes_for_no_pattern_and_no_operand(ws: Path, program: str, words: list[str]) -> None:
    """--binary is an option of its own and no short form of --binary-files=, so the word behind it is the pattern."""
    found = {candidate.text for candidate in candidates(words, program=program)}
    assert "../secret" in found


@pytest.mark.parametrize(
    "words",
    [
        ["rg", "--pre", "sed", ".", "1e id"], ["rg", "--pre=git", "x"], ["rg", "--pre", "find", "x"],
        ["rsync", "-e", "sed", "a", "h:b"], ["install", "--strip-program=sed", "-s", "a", "b"],
        ["sdiff", "--diff-program=sort", "a", "b"],
    ],
)  # fmt: skip
def test_a_program_that_is_given_names_of_files_takes_none_of_them_for_code(words: list[str]) -> None:
    """A file called `1e id` is a script to the sed that rg starts for it."""
    assert runs_code(*words)
    assert not runs_code("rg", "--pre", "zcat", "x")
    assert not runs_code("tar", "-I", "zstd", "-cf", "a.tar", "f")
