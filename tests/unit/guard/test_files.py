"""Before a program of Palyra's own touches a workspace: the python it runs with, and where the call's path ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from palyra.errors import Rejected, Unenforceable
from palyra.guard.files import guard_inside
from palyra.model.job import Facts
from palyra.model.net import NamedHost
from palyra.model.sights import ExecutableSight, PathSight, Sights, WorkspaceSight

PYTHON = ExecutableSight(name="python3", path="/usr/bin/python3", sha256="0" * 64)


def sights(path: str = "/work/a.txt", **changed: Any) -> Sights:
    seen = Sights(
        workspace=WorkspaceSight(path="/work", owner_uid=1000),
        cwd=PathSight(argument=-1, text="", resolved="/work", exists=True),
        executable=PYTHON,
        paths=(PathSight(argument=0, text="a.txt", resolved=path, exists=True),),
    )
    return replace(seen, **changed)


def test_a_path_in_the_workspace_is_nothing_to_talk_about() -> None:
    assert guard_inside(sights()) == Facts(tier="C", egress="strict", outside_workspace=False, details=())


def test_a_path_that_ends_outside_is_a_fact_with_a_sentence() -> None:
    facts = guard_inside(sights("/etc/shadow"))
    assert facts.outside_workspace
    assert [code for code, _ in facts.details] == ["OUTSIDE_WORKSPACE"]


def test_hosts_that_are_not_granted_are_named() -> None:
    facts = guard_inside(sights(), (NamedHost("evil.test", 443, argument="url"),))
    assert facts.details == (
        ("host", "evil.test"),
        ("EGRESS_DENIED", "evil.test:443 is not among the granted hosts."),
    )


@pytest.mark.parametrize(
    "python", [replace(PYTHON, path=""), replace(PYTHON, sha256=""), replace(PYTHON, agent_writable=True)]
)
def test_an_interpreter_that_is_not_there_or_not_ours_runs_nothing(python: ExecutableSight) -> None:
    with pytest.raises(Unenforceable, match="python3"):
        guard_inside(sights(executable=python))


def test_a_workspace_with_a_problem_is_refused_before_anything_else() -> None:
    broken = WorkspaceSight(path="", problem="is not a folder", owner_uid=1000)
    with pytest.raises(Rejected):
        guard_inside(sights(workspace=broken))
