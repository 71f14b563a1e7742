"""A call that starts several programs is judged by each of them: no forbid of a program is passed beside another."""

from __future__ import annotations

import asyncio
import shlex

import pytest

from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.guard.command import classify
from palyra.model.call import OperatorGrant
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakePolicies, fake_ports, fake_run
from tests.promises import promise

NO_RM = """@id("local.no-rm")
@reason("Nobody deletes files here.")
forbid (principal, action == Action::"tool::execute", resource == Tool::"palyra.process.run")
when { context.effective_program == "rm" };
"""
ONLY_LS = """@id("local.ls")
permit (principal, action == Action::"tool::execute", resource == Tool::"palyra.process.run")
when { context.effective_program == "ls" };
"""
ASKS = NO_RM.replace("};", "} unless { context.approved };")


def reasons(
    policy: str, *lines: str, posture: str = "standard", grant: OperatorGrant | None = None
) -> list[Reason | None]:
    policies = FakePolicies(load_posture(posture, {"local.cedar": policy}))
    engine = Engine(fake_ports(policies=policies), make_registry(BUILTIN_TOOLS))

    async def ask() -> list[Reason | None]:
        outcomes = []
        for line in lines:
            command, *args = shlex.split(line)
            request = CallRequest(
                tool="palyra.process.run", input={"command": command, "args": args}, run=fake_run(grant=grant)
            )
            outcomes.append((await engine.call(request)).reason)
        return outcomes

    return asyncio.run(ask())


BESIDE = [
    "find . -exec ls {} ';' -exec rm {} ';'", "find . -exec rm {} ';' -exec cp {} x ';'",
    "find . -exec cp {} x ';' -exec rm {} ';'", "find . -ok ls {} ';' -okdir rm {} ';'",
    "bfs . -exec ls {} + -exec rm {} +", "fd -x ls -x rm", "find . -exec find x -exec ls ';' -exec rm ';'",
    "tar -c -I gzip --rsh-command=rm -f a:b x",
]  # fmt: skip


@promise("policy.each-program")
@pytest.mark.parametrize("line", BESIDE)
def test_a_forbidden_program_does_not_run_beside_another(line: str):
    plain = line.replace("rm", "stat")
    for policy, reason in ((NO_RM, Reason.POLICY_DENIED), (ASKS, Reason.NOT_APPROVED)):
        found, again = reasons(policy + ONLY_LS, line, line)
        assert found is again
        assert found is reason or found in (Reason.EXECUTABLE_DENIED, Reason.INTERPRETER_DENIED)
    assert Reason.POLICY_DENIED not in reasons(NO_RM, plain)


@promise("policy.each-program")
def test_what_is_forbidden_is_said_of_the_program_that_is():
    assert reasons(NO_RM, BESIDE[0], BESIDE[1], "find . -exec ls {} ';' -exec wc {} ';'") == [
        Reason.POLICY_DENIED, Reason.POLICY_DENIED, None
    ]  # fmt: skip


def test_a_forbidden_program_between_a_wrapper_and_another_does_not_run():
    """`env find . -delete -exec true ;` was `true` behind `env`."""
    no_find = NO_RM.replace('"rm"', '"find"')
    lines = (
        "env find . -delete -exec true ';'",
        "timeout 5 find . -exec ls ';'",
        "env find .",
        "nice env find . -exec ls +",
    )
    grant = OperatorGrant(executables=("env", "timeout", "nice"))
    assert reasons(no_find, *lines, grant=grant) == [Reason.POLICY_DENIED] * 4
    assert reasons(NO_RM, *lines, grant=grant) == [None] * 4


@promise("policy.each-program")
def test_a_permit_of_one_program_permits_no_other_beside_it():
    facts = reasons(ONLY_LS, "find . -exec ls {} ';'", "find . -exec ls {} ';' -exec cat {} ';'", posture="locked")
    assert facts == [None, Reason.POLICY_DENIED]


@promise("policy.each-program")
@pytest.mark.parametrize(
    "line",
    [
        "find . -maxdepth 0 -exec cp -r g .git ; -exec git add x ;",
        "find . -fprintf .git/config x -exec git add x ;",
        "find . -exec git mv x .git/hooks/y ; -exec git bisect start ;", "bfs . -exec cp a b ; -exec nice git log ;",
        "find a b -exec git log --format=x --output=.git/config -p {} ;",
        "find a b -exec git archive -o .git/config {} ;", "find a b -exec time -f x -o .git/config git add {} ;",
        "find a b -exec nice time git add {} ;", "find a b -exec git diff --output .git/config {} ;",
        "bfs a b -exec git format-patch -no x {} ;", "find . -exec git add x ; -exec cp a b ;",
        "find . -fls .git/config -ok git add x ;", "fd . -x cp a -x git add",
    ],
)  # fmt: skip
def test_git_beside_another_action_of_finds_is_code(line: str):
    """What the first one wrote is what git obeys, and nobody could look at it in between."""
    command, *args = line.split()
    assert classify(command, args).runs_code


@pytest.mark.parametrize(
    "line",
    [
        "find . -exec git add {} +",
        "find . -exec git log --oneline {} ;",
        "find . -exec git checkout --ours {} ;",
        "find . -name x -print -exec git mv {} y ;",
    ],
)
def test_git_as_the_only_action_stays_plain(line: str):
    command, *args = line.split()
    assert not classify(command, args).runs_code
