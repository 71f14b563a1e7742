"""When git reports on submodules that a call itself may have brought."""

from __future__ import annotations

import pytest

from palyra.guard.gitreport import Reports, reports_of


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git checkout two", Reports.ALWAYS),
        ("git -c user.name=a switch two", Reports.ALWAYS),
        ("git checkout -q two", Reports.NEVER),
        ("git checkout --quiet two", Reports.NEVER),
        ("git checkout -q --no-quiet two", Reports.ALWAYS),
        ("git checkout -b -q two", Reports.ALWAYS),
        ("git checkout -- -q", Reports.ALWAYS),
        ("git stash", Reports.NEVER),
        ("git stash list", Reports.NEVER),
        ("git stash pop", Reports.ALWAYS),
        ("git stash pop -q", Reports.NEVER),
        ("git stash -q pop", Reports.ALWAYS),
        ("git stash branch -q x", Reports.ALWAYS),
        ("git merge two", Reports.BEHIND_A_STASH),
        ("git merge -q --autost two", Reports.ALWAYS),
        ("git -c merge.AutoStash=1 merge two", Reports.ALWAYS),
        ("git status", Reports.NEVER),
        ("git commit -m checkout", Reports.WITH_A_STASH_LEFT),
        ("git log checkout", Reports.NEVER),
        ("git bisect reset two", Reports.ALWAYS),
        ("timeout 5 git checkout two", Reports.ALWAYS),
        ("timeout 5 git checkout -q two", Reports.NEVER),
        ("timeout 5 git status", Reports.NEVER),
        ("env -Sgit\tcheckout\ttwo", Reports.ALWAYS),
        ("git co two", Reports.NEVER),
    ],
)
def test_git_reports_where_it_may_meet_what_the_call_brought(line: str, expected: Reports) -> None:
    command, *args = line.split(" ")
    assert reports_of(command, args) is expected
