"""A program that failed on a closed path is told so, and one that failed on something else is not."""

from __future__ import annotations

import pytest

from palyra.engine.closed_hint import closed_hint

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
        ("error: failed to delete '/w/wt': Device or resource busy", "/w", "wt"),
        ("error: could not write config file ../.git/config: Device or resource busy", "/w/src", ".git/config"),
        ("fatal: /w/.git/modules/x/config: Device or resource busy", "/w", ".git/modules/x/config"),
    ],
)
def test_the_path_that_was_in_the_way_is_named(stderr: str, cwd: str, named: str) -> None:
    assert str(hint(stderr, cwd)).startswith(f"{named} is closed to programs")


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
        "no step of it is an exec. Otherwise do that outside."
    )
