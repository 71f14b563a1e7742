"""A program that failed on a closed path is told so, and one that failed on something else is not."""

from __future__ import annotations

import pytest

from palyra.engine.closed_hint import closed_hint
from palyra.engine.hints import split_hint

CLOSED = (
    ("parent", "/w/.git"), ("parent", "/w/wt"), ("protected", "/w/.git/config"), ("protected", "/w/.git/hooks"),
    ("protected", "/w/wt/.git"), ("copied", "/w/.git/modules/x/config"), ("protected", "/w/a\x1b[31m/.git/config"),
)  # fmt: skip


def hint(stderr: str, cwd: str = "/w") -> str | None:
    return closed_hint(CLOSED, stderr.encode(), workspace="/w", cwd=cwd)


@pytest.mark.parametrize(
    ("stderr", "cwd", "named"),
    [
        ("error: could not write config file .git/config: Device or resource busy", "/w", ".git/config"),
        ("rm: cannot remove '.git/hooks/pre-commit': Read-only file system", "/w", ".git/hooks"),
        ("error: could not remove '.git/hooks'", "/w", ".git/hooks"),
        ("error: could not write config file ../.git/config: Device or resource busy", "/w/src", ".git/config"),
        ("fatal: /w/.git/modules/x/config: Device or resource busy", "/w", ".git/modules/x/config"),
    ],
)
def test_the_path_that_was_in_the_way_is_named(stderr: str, cwd: str, named: str) -> None:
    assert str(hint(stderr, cwd)).startswith(f"{named} is closed to programs")


@pytest.mark.parametrize(
    "stderr",
    [
        "error: failed to delete '/w/wt': Device or resource busy",
        "mv: cannot move 'wt' to 'wt2': Device or resource busy",
        "Error: EBUSY: resource busy or locked, rename 'wt' -> 'wt2'",
        "OSError: [Errno 16] Device or resource busy: 'wt' -> 'wt2'",
    ],
)
def test_a_folder_that_holds_closed_files_is_told_to_stay_and_that_a_copy_is_the_runs_own(stderr: str) -> None:
    said = str(hint(stderr))
    assert said.startswith("wt holds files that are closed to programs, so it stays where it is")
    assert "cp -r" in said


def test_a_repository_that_only_a_shell_went_into_is_found_and_the_one_at_the_top_first() -> None:
    said = "error: could not lock config file .git/config: Device or resource busy"
    nested = (("parent", "/w/p"), ("parent", "/w/p/.git"), ("protected", "/w/p/.git/config"))
    for closed, named in ((nested, "p/.git/config"), ((*nested, *CLOSED), ".git/config")):
        found = closed_hint(closed, said.encode(), workspace="/w", cwd="/w")
        assert str(found).startswith(f"{named} is closed to programs")


@pytest.mark.parametrize(
    "stderr",
    [
        "cp: cannot create regular file '.env': Permission denied",
        "bash: line 1: .env: Permission denied",
        "rm: cannot remove '.env': Device or resource busy",
        "Error: EACCES: permission denied, open '/w/.env'",
    ],
)
def test_an_env_file_has_a_reason_of_its_own(stderr: str) -> None:
    closed = (("hidden_file", "/w/.env"), *CLOSED)
    said = str(closed_hint(closed, stderr.encode(), workspace="/w", cwd="/w"))
    assert said.startswith(".env was not made by this run alone, and is kept from agents")
    assert split_hint(said)[1] == "An operator can do that outside."


def test_an_example_of_an_env_file_is_read_and_not_changed() -> None:
    said = b"sh: 1: cannot create .env.example: Read-only file system"
    found = closed_hint((("protected", "/w/.env.example"),), said, workspace="/w", cwd="/w")
    assert str(found).startswith(".env.example is its owner's: programs read it")


def test_no_permission_says_nothing_of_files_that_are_not_hidden() -> None:
    assert hint("bash: .git/config: Permission denied") is None


@pytest.mark.parametrize(
    "stderr",
    [
        "", "error: could not lock config file .git/config: File exists", "mount: x: Device or resource busy",
        "tar: /usr/x: Read-only file system", "rm: wt: Device or resource busy",
        "Device or resource busy: .git/config" + "x" * (1 << 16),
    ],
)  # fmt: skip
def test_what_failed_otherwise_is_not_explained_by_it(stderr: str) -> None:
    assert hint(stderr) is None


def test_a_name_that_a_terminal_would_obey_is_in_no_hint() -> None:
    closed = (("protected", "/w/a\x1b[31m/.git/config"),)
    said = b"rm: a\x1b[31m/.git/config: Device or resource busy"
    assert closed_hint(closed, said, workspace="/w", cwd="/w") is None
    assert closed_hint((), said, workspace="/w", cwd="/w") is None


def test_what_git_left_half_done_is_gone_on_with_by_the_words_of_the_hint() -> None:
    closed = (("protected", "/w/.git/rebase-merge"),)
    said = b"warning: unable to access '.git/rebase-merge/end': Read-only file system"
    assert closed_hint(closed, said, workspace="/w", cwd="/w") == (
        ".git/rebase-merge is closed to programs, and cannot be changed or removed by one: other programs of this "
        "machine run or obey what is in it. git itself goes on with it in a call of its own, without a shell: "
        'command="git", args=["rebase", "--continue"] (or --skip, --abort, --quit), at the top of the workspace, where '
        "no step of it is an exec. An operator can do that outside."
    )
