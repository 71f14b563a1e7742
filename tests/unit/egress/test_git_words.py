"""A refspec is no host where git is sure to read it as one, and whatever may be a remote is looked at."""

from __future__ import annotations

import shlex

import pytest

from palyra.egress.git_words import _STAYS, REACHES, may_reach
from palyra.egress.preflight import hosts_named


def hosts(line: str) -> list[str]:
    command, *args = shlex.split(line)
    return [named.host for named in hosts_named(command, args)]


@pytest.mark.parametrize(
    "line",
    [
        "git fetch origin main:main", "git push origin HEAD:main", "git push -fu origin HEAD:refs/heads/x a:b",
        "git pull --rebase origin main:main", "git fetch --depth 1 origin main:main", "git push -o ci.skip origin a:b",
        "git fetch --depth=1 ./sub master:refs/heads/x", "git -c user.name=a push origin a:b", "git archive HEAD:src",
        "git archive --format=tar --prefix x/ HEAD:src", "timeout 5 git push origin HEAD:main",
        "git commit -m push a:b", "git show fetch HEAD:a", "git checkout remote",
    ],
)  # fmt: skip
def test_what_is_fetched_or_pushed_is_no_host(line: str) -> None:
    assert hosts(line) == []


@pytest.mark.parametrize(
    "line",
    [
        "git fetch forge:x", "git push forge:x main:main", "git fetch --depth 1 forge:x a:b", "git clone forge:x",
        "git fetch --multiple a b forge:x", "git fetch --mult a forge:x", "git push --wat a forge:x",
        "git push --repo=a --wat b forge:x", "git archive --rem forge:x HEAD", "git --wat fetch a forge:x",
        "git fetch -fmx a forge:x", "git remote add a forge:x", "git submodule add forge:x", "git ls-remote a forge:x",
    ],
)  # fmt: skip
def test_what_may_be_a_remote_is_one(line: str) -> None:
    assert "forge" in hosts(line)


@pytest.mark.parametrize(
    "line",
    [
        "git subtree pull --prefix=x https://forge/x main", "git subtree push --prefix x git@forge:x main",
        "git lfs fetch https://forge/x", "git lfs clone forge:x", "git svn clone https://forge/x",
        "git remote-https fetch https://forge/x", "git subtree add --prefix x https://forge/x main",
        "git request-pull v1 https://forge/x", "git fetch-pack ssh://forge/x", "timeout 5 git lfs pull forge:x",
    ],
)  # fmt: skip
def test_a_subcommand_that_is_not_known_to_stay_at_home_names_its_hosts(line: str) -> None:
    """The second word said pull, and git was taken to go nowhere because the first one did not."""
    assert hosts(line) == ["forge"]


def test_what_stays_at_home_reaches_nothing_whatever_else_is_said() -> None:
    assert _STAYS.isdisjoint(REACHES)
    assert hosts("git co main:a") == hosts("git stash push https://forge/x") == hosts("git log clone:x") == []


def test_an_address_is_named_wherever_it_stands_first() -> None:
    assert hosts("git push https://forge.example/x HEAD:main") == ["forge.example"]
    assert hosts("git pull git@forge.example:x main:main") == ["forge.example"]


def test_a_git_without_a_subcommand_reaches_nothing() -> None:
    assert not may_reach([])
    assert not may_reach(["-C", "push"])
    assert not may_reach(["-C"])
    assert may_reach(["--wat", "x", "push"])
