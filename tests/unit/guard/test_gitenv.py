"""git's environment is complete, in the form git reads, and none of its keys can be set by anyone else."""

from __future__ import annotations

from palyra.guard.environ import build_environment, is_banned
from palyra.guard.gitenv import SETTINGS, git_environment


def test_every_setting_is_numbered_without_a_gap():
    given = dict(git_environment())
    count = int(given["GIT_CONFIG_COUNT"])
    told = tuple((given[f"GIT_CONFIG_KEY_{n}"], given[f"GIT_CONFIG_VALUE_{n}"]) for n in range(count))
    assert told == SETTINGS


def test_a_push_reaches_no_folder():
    told = dict(git_environment(pushes=True))
    assert int(told["GIT_CONFIG_COUNT"]) == len(SETTINGS) + 1
    assert told[f"GIT_CONFIG_KEY_{len(SETTINGS)}"] == "protocol.file.allow"
    assert told[f"GIT_CONFIG_VALUE_{len(SETTINGS)}"] == "never"


def test_without_a_network_nothing_is_fetched_unasked():
    assert set(git_environment(alone=True)) - set(git_environment()) == {("GIT_NO_LAZY_FETCH", "1")}


def test_nobody_else_can_set_any_of_it():
    assert all(is_banned(key) for key, _ in git_environment(pushes=True, alone=True))


def test_it_stands_beside_the_callers_environment():
    built = build_environment(
        search_path=("/usr/bin",), home="/h", caller={"CI": "1"}, settable=("CI",), also=git_environment()
    )
    assert set(git_environment()) <= set(built)
    assert ("CI", "1") in built


def test_where_settings_are_closed_git_is_told_to_write_none_for_a_new_branch():
    told = dict(git_environment(pushes=True, closed=True))
    count = int(told["GIT_CONFIG_COUNT"])
    last = [(told[f"GIT_CONFIG_KEY_{n}"], told[f"GIT_CONFIG_VALUE_{n}"]) for n in range(count)][-2:]
    assert last == [("protocol.file.allow", "never"), ("branch.autoSetupMerge", "false")]
