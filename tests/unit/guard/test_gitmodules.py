"""Only a call that updates submodules gets copies of settings, and only of those that git then writes again."""

from __future__ import annotations

import shlex

import pytest

from palyra.guard.gitmodules import copied_settings
from palyra.model.sights import WorkspaceSight
from tests.promises import promise

TOP, MODULES = "/w/.git/config", ("/w/.git/modules/a/config", "/w/.git/modules/a/modules/b/config")
OTHERS = ("/w/.git/hooks", "/w/.git/modules/a/hooks", "/w/.git/modules/config", "/w/.github", "/w/sub/.git/config")
WORKSPACE = WorkspaceSight(path="/w", protected=tuple(sorted((TOP, *MODULES, *OTHERS))))


def copied(line: str) -> tuple[str, ...]:
    command, *args = shlex.split(line)
    return copied_settings(command, args, WORKSPACE)


@pytest.mark.parametrize(
    "line",
    [
        "git submodule update", "git submodule update --init --recursive", "git submodule --quiet update --init x",
        "git -c protocol.file.allow=always submodule update", "git -C . submodule update",
    ],
)  # fmt: skip
def test_an_update_of_submodules_writes_the_repositorys_settings_and_theirs(line: str) -> None:
    assert copied(line) == (TOP, *MODULES)


@pytest.mark.parametrize(
    "line",
    [
        "bash -c 'git submodule update --init && make'", "sh -ec 'cd x; git -C /w submodule -q update'",
        "timeout 60 bash -c 'git submodule update'",
    ],
)  # fmt: skip
def test_code_with_these_words_writes_those_of_submodules_alone(line: str) -> None:
    """What else the code sets in the repository's own is not to be lost without a word."""
    assert copied(line) == MODULES


@pytest.mark.parametrize(
    "line",
    [
        "git status", "git submodule status", "git submodule add update", "git submodule foreach git config a.b c",
        "git commit -m 'submodule update'", "git remote add submodule update", "git --wat submodule update", "git",
        "bash -c 'git status'", "bash -c 'git config a.b c; echo submodule update'", "bash script submodule update",
        "echo git submodule update", "make submodule update",
    ],
)  # fmt: skip
def test_every_other_call_finds_them_closed(line: str) -> None:
    assert copied(line) == ()


@promise("git.copied-settings-bounded")
@pytest.mark.parametrize("text", ["git submodule ", "git ", " submodule ", "git  submodule  ", "git submodule;"])
def test_long_code_keeps_nobody_waiting(text: str) -> None:
    """Of a call that is refused, too: every word was tried with every other, and 4 KB took more than a second."""
    code = "git " * 10_000 + text * 10_000
    assert copied_settings("perl", ["-e", code, "-e", code], WORKSPACE) == ()
    assert copied_settings("perl", ["-e", code + "git submodule x update"], WORKSPACE) == MODULES
