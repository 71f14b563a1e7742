"""git goes on with what it left half done where that names no program, and in no other call."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from palyra.guard.gitsteps import MAILS, MERGING, PICKS, names_no_program, opened_steps
from palyra.guard.look import Looker
from palyra.model.sights import LookRequest

FOLDERS = tuple(f"/w/.git/{name}" for name in (MERGING, MAILS, PICKS))
REBASE, AM, PICK = FOLDERS[:2], FOLDERS[1:2], FOLDERS[2:]


def opened(line: str) -> tuple[str, ...]:
    command, *args = shlex.split(line)
    return opened_steps(command, args, "/w", FOLDERS)


@pytest.mark.parametrize(
    ("line", "folders"),
    [
        ("git rebase --continue", REBASE), ("git rebase --abort", REBASE), ("/usr/bin/git rebase --quit", REBASE),
        ("git -c user.name=x -c user.email=a@b rebase --skip", REBASE), ("git -C . rebase --skip", REBASE),
        ("git am --continue", AM), ("git am -r", AM), ("git cherry-pick --continue", PICK),
        ("git revert --abort", PICK),
    ],
)  # fmt: skip
def test_a_call_that_only_goes_on_writes_the_folders_that_hold_what_comes_next(line: str, folders: object) -> None:
    assert opened(line) == folders


@pytest.mark.parametrize(
    "line",
    [
        "git rebase", "git rebase main", "git rebase --edit-todo", "git rebase --continue --exec id", "git status",
        "git rebase -x id --continue", "git -c core.editor=id rebase --continue", "git -C sub rebase --continue",
        "git --git-dir=x rebase --continue", "git --wat rebase --continue", "timeout 9 git rebase --continue",
        "bash -c 'git rebase --continue'", "env git rebase --continue", "git am --show-current-patch", "git",
        "git commit --continue", "git rebase --cont", "git cherry-pick --strategy=x --continue",
        "git -c sequence.editor=id rebase --continue", "git --exec-path=. rebase --continue",
    ],
)  # fmt: skip
def test_every_other_call_finds_them_closed(line: str) -> None:
    assert opened(line) == ()


def test_folders_that_may_name_a_program_are_opened_to_nobody() -> None:
    assert opened_steps("git", ["rebase", "--continue"], "/w", ()) == ()


PLAIN_TODO = (
    b"# Rebase\n\npick 12ab subject\n\tr 12ab\r\nfixup -C 12ab exec\nlabel onto\nmerge -C 12 x # m\n"
    b"update-ref refs/x\nnoop"
)


@pytest.mark.parametrize(
    ("folder", "todo", "options"),
    [
        (MERGING, PLAIN_TODO, b""), (MERGING, b"", b"ort\n"), (MAILS, b"", b""),
        (PICKS, b"pick 12 a\n", b"[options]\n\tedit = true\n\tstrategy = ours\n"),
    ],
)  # fmt: skip
def test_steps_of_gits_own_name_no_program(folder: str, todo: bytes, options: bytes) -> None:
    assert names_no_program(folder, todo, options)


@pytest.mark.parametrize(
    ("folder", "todo", "options"),
    [
        (MERGING, b"pick 12 a\nexec id\n", b""), (MERGING, b"x id", b""), (MERGING, b"\t exec id", b""),
        (MERGING, b"pick 1\r\nx id", b""), (MERGING, b"; a comment by another setting", b""),
        (MERGING, b"noop", b"x/evil\n"), (PICKS, b"exec id", b""), (PICKS, b"", b"[options]\nstrategy = x/evil\n"),
        (PICKS, b"", b"[options]\nstrategy = ours\nstrategy = evil\n"), (PICKS, b"", b"[include]\npath = x\n"),
        (PICKS, b"", b"[options\n"), (PICKS, b"", b"#" * (1 << 19)),
    ],
)  # fmt: skip
def test_a_step_or_a_strategy_of_another_name_may_be_one(folder: str, todo: bytes, options: bytes) -> None:
    assert not names_no_program(folder, todo, options)


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    folder = tmp_path / ".git" / MERGING
    folder.mkdir(parents=True)
    (folder / "git-rebase-todo").write_text("pick 12ab x\n")
    return folder


def resumable(workspace: Path) -> tuple[str, ...]:
    request = LookRequest(workspace=str(workspace), cwd="", command="git", search_path=("/usr/bin",))
    return Looker(home="/nonexistent", state_home="/nonexistent").look(request).resumable


def test_what_was_read_and_is_plain_can_be_gone_on_with(half_done: Path, tmp_path: Path) -> None:
    assert resumable(tmp_path) == (str(half_done),)


def _exec(folder: Path) -> None:
    (folder / "git-rebase-todo").write_text("exec id\n")


def _long(folder: Path) -> None:
    (folder / "git-rebase-todo").write_text("#\n" * (1 << 20))


def _fifo(folder: Path) -> None:
    (folder / "git-rebase-todo").unlink()
    os.mkfifo(folder / "git-rebase-todo")


def _link(folder: Path) -> None:
    folder.rename(folder.parents[1] / "mine")
    folder.symlink_to(folder.parents[1] / "mine")


def _link_of_a_file(folder: Path) -> None:
    (folder / "git-rebase-todo").rename(folder.parents[1] / "mine")
    (folder / "git-rebase-todo").symlink_to(folder.parents[1] / "mine")


def _another_beside(folder: Path) -> None:
    (folder.parents[1] / "mine").mkdir()
    (folder.parent / PICKS).symlink_to("../mine")


@pytest.mark.parametrize("change", [_exec, _long, _fifo, _link, _link_of_a_file, _another_beside])
def test_what_is_not_plain_or_not_there_to_be_read_cannot(half_done: Path, tmp_path: Path, change) -> None:
    change(half_done)
    assert resumable(tmp_path) == ()
