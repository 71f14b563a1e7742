"""git's own ways to run a program that its arguments name, one line each, beside the same subcommands used honestly."""

from __future__ import annotations

import shlex

import pytest

from palyra.guard.gitline import GitReading, is_folder, is_safe_setting, push_target, read_git

RUNS = """
-c core.pager=id log
-c core.pager=id
-ccore.sshCommand=id fetch
-c alias.x=!id x
-c pager.log=id log
-c nonsense log
--config-env=core.pager=X log
--config-env core.editor=X commit
--config-env=pager.log=X log
-C sub status
-C ../x status
-Csub status
--git-dir=x status
--git-dir x status
--work-tree=x status
--bare status
--exec-path=/x status
--exec-path=. status
--wat status
foo
lfs pull
difftool
mergetool
filter-branch
send-email
daemon
shell
clone -u id u
clone --upload-pack=id u
clone --upload id u
clone --template=x u
clone --separate-git-dir=x u
clone -c core.pager=id u
clone --config core.pager=id u
clone -qc core.pager=id u
init --template=x
init --separate-git-dir=x
init-db --template=x
init-db --separate-git-dir=x
fetch --upload-pack=id
pull --upload-pack=id
ls-remote --upload-pack=id u
ls-remote --exec=id u
push --receive-pack=id u
push --exec=id u
push --wat u
push ./sub
push ../sub main
push ~/x
push sub/x main
push /srv/x
push file:///srv/x
push FILE:/srv/x
push --repo=./sub
push --repo ./sub
push -o x -f ./sub
rebase -x id
rebase -ix id
rebase --exec id
rebase --continue
rebase --skip
rebase --edit-todo
rebase -s evil
rebase --strategy=../evil
cherry-pick --continue
cherry-pick --skip
cherry-pick --strategy=evil c
revert --continue
revert --skip
revert --strategy evil c
merge -s evil b
merge -sevil b
merge --strategy=evil b
pull -s evil
grep -Oid x
grep -O id x
grep --open-files-in-pager=id x
archive --exec=id --remote=x HEAD
archive --remote=x HEAD
diff --ext-diff
log --ext-diff
show --ext-diff
fetch --recurse-submodules
fetch --recurse-submodules=on-demand origin
fetch --recurse origin
pull --recurse-submodules origin main
pull --rebase --recurse-submodules=yes
push --recurse-submodules=on-demand origin main
push --recurse-submodules check origin main
checkout --recurse-submodules main
checkout --recurse main
switch --recurse-submodules=yes main
reset --hard --recurse-submodules HEAD
restore --recurse-submodules --source main .
read-tree -u -m --recurse-submodules HEAD main
-c push.recurseSubmodules=on-demand push origin
diff --submodule=diff a b
diff --submodule a b
diff --submodule short b
log -p --submodule=log
show --submod=diff
format-patch --submodule=diff a
stash show --submodule=diff
diff-tree -p --submodule=diff a b
-c diff.submodule=diff log -p
bisect run id
bisect view git/x
bisect visualize git-x
submodule foreach id
clone ext::id x
clone 'ext::sh -c id' x
fetch fd::3
push ext::id
pull ext::id
ls-remote ext::id
remote add x ext::id
submodule add ext::id
archive ext::id
clone ssh://-oProxyCommand=id/x
clone ssh://u@-oProxyCommand=id/x
fetch SSH://-x/y
config core.pager id
config alias.x !id
config --add core.pager id
config --replace-all core.pager id
config --global core.editor id
config --unset user.name
config --unset-all user.name
config --rename-section user x
config --remove-section user
config --edit
config -e
config edit
config unset user.name
config rename-section a b
config remove-section a
config unset --all user.name
config set core.pager id
config set --wat user.name x
config set --file x user.name y
config set
config --file=x user.name y
config -f x user.name y
config --blob x user.name y
config --wat
config user.name '!id'
config user.name '$(id)'
config user.name -x
"""
HONEST = """
status
-c user.name=x commit -m y
-c core.pager=cat log
-c core.pager= log
-c pager.log=false log
-c pager.log=off log
-c CORE.QUOTEPATH=off status
-c color.ui=never diff
-c advice.detachedHead=false checkout x
--no-pager log
-p log
-P log
--paginate log
--exec-path
--html-path
--config-env=user.name=X log
-C . status
-C ./ status
-C '' status
--git-dir=.git status
--git-dir ./.git/ status
--work-tree=. status
--namespace=x status
--literal-pathspecs --no-optional-locks status
clone https://h/x
clone -b x -c user.name=y https://h/x
clone -bu https://h/x
clone --depth 1 git@h:x/y
fetch origin
push origin main
push -f -o ci.skip origin main
push git@h:x/y main
push https://h/x main
push --repo=origin
push --force-with-lease --set-upstream --tags --no-verify origin main
push
rebase -X ours main
rebase -Cx main
rebase -s ort main
rebase --abort
cherry-pick -x c
cherry-pick --abort
merge -s ours b
merge --strategy=octopus b
merge -sresolve b
merge -m s b
grep -e O x
grep -eO x
log --oneline
log -p --submodule=short
fetch --recurse-submodules=no origin
pull --no-recurse-submodules --rebase
push --recurse-submodules=no origin main
clone --recurse-submodules https://h/x
checkout --no-recurse-submodules main
reset --hard HEAD
fetch --refetch origin
-c diff.submodule=short diff
grep --submodule x
diff --stat
show HEAD
bisect start
submodule update
archive HEAD
log ext::x
config user.name
config --get core.pager
config --get-all core.pager
config --get-regexp x
config --list
config -l
config -lz
config list
config get core.pager
config user.name 'Ada L.'
config --global user.email a@b.c
config --local init.defaultBranch main
config set user.name x
config color.ui auto
config core.autocrlf input
config core.eol lf
config pull.rebase true
config push.default simple
config --show-origin --list
config
"""
PLAIN = """
add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore checkout cherry cherry-pick
clean clone commit commit-tree config describe diff diff-files diff-index diff-tree fetch for-each-ref format-patch
fsck gc grep hash-object init init-db log ls-files ls-remote ls-tree merge merge-base mv notes pull push rebase reflog
remote repack reset restore rev-list rev-parse revert rm shortlog show show-ref sparse-checkout stash status submodule
switch tag update-index version worktree
"""


@pytest.mark.parametrize("line", RUNS.strip().splitlines())
def test_git_that_could_run_a_program_says_why(line: str) -> None:
    assert read_git(shlex.split(line)).why


@pytest.mark.parametrize("line", HONEST.strip().splitlines())
def test_git_used_honestly_runs_nothing(line: str) -> None:
    assert read_git(shlex.split(line)).why == ""


@pytest.mark.parametrize("subcommand", PLAIN.split())
def test_the_usual_subcommands_are_usable(subcommand: str) -> None:
    assert read_git([subcommand]) == GitReading(subcommand, 0, "")


def test_the_subcommand_and_its_place_are_read() -> None:
    assert read_git(["-C", ".", "--no-pager", "log", "-p"]) == GitReading("log", 3, "")
    assert read_git([]) == GitReading()
    assert read_git(["--version"]) == GitReading()


ELSEWHERE = (
    "can lead to a repository with its own settings and hooks; without it, with paths as arguments, git can be run"
)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("--wat=x status", "git --wat is not known here"),
        ("-C x status", f"git -C {ELSEWHERE}"),
        ("--git-dir=x status", f"git --git-dir {ELSEWHERE}"),
        ("--exec-path=x status", "git --exec-path says where its programs are"),
        ("rebase -x id", "git rebase -x runs a program"),
        ("rebase --exec id", "git rebase --exec runs a program"),
        ("bisect run id", "git bisect run runs a program"),
        ("push ./x", "git push to a folder runs the hooks of the repository there"),
        ("-c x.y=z log", "git -c sets something that can run a program"),
    ],
)
def test_what_is_refused_is_named(line: str, why: str) -> None:
    assert read_git(shlex.split(line)).why == why


def test_where_a_push_goes_is_read_behind_its_options() -> None:
    assert push_target(["-f", "-o", "x", "origin", "main"]) == "origin"
    assert push_target(["--repo=a"]) == "a"
    assert push_target(["--repo=a", "b"]) == "b"
    assert push_target([]) == ""


@pytest.mark.parametrize(
    ("word", "folder"),
    [
        ("origin", False), ("git@h:x/y", False), ("https://h/x", False), ("h:x", False), ("x/y", True), (".", True),
        ("~x", True), ("/x", True), ("file:x", True), ("FILE:///x", True), ("./a:b", True), ("a/b:c", True),
    ],
)  # fmt: skip
def test_a_folder_is_told_from_an_address_as_git_does(word: str, folder: bool) -> None:
    assert is_folder(word) is folder


@pytest.mark.parametrize("value", ["cat", "", "false", "no", "off", "0"])
def test_a_pager_may_be_switched_off(value: str) -> None:
    assert is_safe_setting(f"core.pager={value}")
    assert is_safe_setting(f"Pager.Log={value}")
    assert not is_safe_setting(f"core.pager={value}x")
