"""A push is told from whatever else is called so, and where that cannot be told it counts as one."""

from __future__ import annotations

import shlex

import pytest

from palyra.guard.gitpush import push_words


def read(line: str) -> tuple[str, ...] | None:
    command, *args = shlex.split(line)
    return push_words(command, args)


@pytest.mark.parametrize(
    ("line", "behind"),
    [
        ("git push", ()),
        ("git -c color.ui=never push -f origin main", ("-f", "origin", "main")),
        ("git --namespace push push evil", ("evil",)),
        ("git -C . push evil", ("evil",)),
        ("nice -n5 git push x", ("x",)),
        ("timeout -s KILL 5 env A=push nice git push x", ("x",)),
    ],
)
def test_a_push_is_found_behind_options_and_wrappers(line: str, behind: tuple[str, ...]) -> None:
    assert read(line) == behind


@pytest.mark.parametrize(
    "line",
    [
        "git commit -m push", "git commit -m 'push the button'", "git branch push", "git checkout push",
        "git add push", "git stash push file", "git stash push", "git fetch ./push", "git -c user.name=push commit",
        "git log -- push", "timeout 5 git commit -m push", "env A=push git status", "git config push.default simple",
        "git", "git -c push.default=simple",
    ],
)  # fmt: skip
def test_what_is_only_called_so_is_none(line: str) -> None:
    assert read(line) is None


@pytest.mark.parametrize(
    ("line", "behind"),
    [
        ("env -S \"git 'pu''sh' x\"", ("x",)),
        ("env -S git\\tpush x", ("x",)),
        ("find . -exec git push x ;", ("x", ";")),
        ("xargs git push x", ("x",)),
        ("git --wat push x", ("x",)),
        ("git p -m push", ()),
        ("env --wat git commit -m push", ()),
    ],
)
def test_where_it_cannot_be_told_the_word_alone_counts(line: str, behind: tuple[str, ...]) -> None:
    """An alias of the repository, or an option that swallows a word, may make a push of it."""
    line = line.replace("\\t", "\t")
    assert read(line) == behind
