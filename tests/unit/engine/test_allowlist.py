"""An interpreter runs where interpreters are allowed and, where the operator wrote a list, it is on that list."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import replace

import pytest

from palyra.config.schema import parse_config
from palyra.config.tool_call import COMMON_PROGRAMS
from palyra.engine.trip import CallRequest, Trip
from palyra.engine.walk import Engine
from palyra.errors import Reason, Rejected
from palyra.model.call import OperatorGrant, TierChoice
from palyra.model.net import EgressMode
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakePolicies, fake_ports, fake_run

NO_GRANT = OperatorGrant()
WRITTEN = ["ls", "python3", "env", "timeout", "xargs", "find", "tar", "sed", "git"]


def assess(
    *words: str, posture: str = "standard", tier: TierChoice = TierChoice.C, grant: OperatorGrant = NO_GRANT, **runner
) -> tuple[Trip, Rejected | None]:
    settings = parse_config({"posture": posture, "tool_call": {"process_runner": runner}})
    ports = fake_ports(config=settings, policies=FakePolicies(load_posture(posture)))
    # Tier B of the fake host isolates no network, so it is opened there.
    egress = EgressMode.NONE if tier is TierChoice.B else None
    run = fake_run(settings, grant=replace(grant, tier=tier, egress=egress))
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    request = CallRequest(tool="palyra.process.run", input={"command": words[0], "args": list(words[1:])}, run=run)
    return asyncio.run(engine.assess(request))


def is_allowed(*words: str, **options) -> bool:
    trip, refusal = assess(*words, **options)
    assert trip.facts is not None
    assert trip.facts.listed == (refusal is None or refusal.reason is not Reason.EXECUTABLE_DENIED), (words, refusal)
    return refusal is None


UNLISTED = [
    "bash -c id", "perl x.pl", "make", "python3.11 x.py", "npm test", "vim x", "env perl x", "timeout 5 bash x",
    "find . -exec bash {} ;", "find . -exec ls ; -exec perl {} ;", "xargs perl", "env -S 'perl x'", "nice python3 x",
    "tar -cf x --to-command=id f", "tar -I 'perl x' -cf a f", "sed 1e f", "git rebase -x id", "git -c core.pager=x log",
    "find . -exec timeout 5 env perl ;", "git grep -Oless x", "xargs -I{} {}", "env -i git status", "env ./python3 x",
]  # fmt: skip


@pytest.mark.parametrize("tier", [TierChoice.C, TierChoice.B])
@pytest.mark.parametrize("line", UNLISTED)
def test_an_interpreter_that_the_operators_list_leaves_out_does_not_run(line: str, tier: TierChoice):
    words = shlex.split(line)
    assert not is_allowed(*words, tier=tier, allowed_executables=WRITTEN, allow_interpreters=True)
    assert not is_allowed(*words, tier=tier, grant=OperatorGrant(interpreters=True), allowed_executables=WRITTEN)


@pytest.mark.parametrize("tier", [TierChoice.C, TierChoice.B])
@pytest.mark.parametrize("line", ["python3 x.py", "env python3 x", "timeout 5 python3 x", "find . -exec python3 {} ;"])
def test_an_interpreter_on_the_operators_list_runs_where_interpreters_are_allowed(line: str, tier: TierChoice):
    assert is_allowed(*line.split(), tier=tier, allowed_executables=WRITTEN, allow_interpreters=True)
    trip, refusal = assess(*line.split(), tier=tier, allowed_executables=WRITTEN)
    assert refusal is not None
    assert refusal.reason is Reason.INTERPRETER_DENIED
    assert trip.facts is not None
    assert trip.facts.listed


@pytest.mark.parametrize("tier", [TierChoice.C, TierChoice.B])
@pytest.mark.parametrize("line", ["bash -c id", "python3 x", "make", "env perl x", "sed 1e f"])
def test_without_a_list_of_the_operators_allowing_interpreters_is_enough(line: str, tier: TierChoice):
    assert is_allowed(*line.split(), tier=tier, allow_interpreters=True)


@pytest.mark.parametrize("line", ["bash -c id", "python3 x", "make", "env perl x"])
def test_posture_developer_runs_interpreters_until_the_operator_writes_a_list(line: str):
    trip, refusal = assess(*line.split(), posture="developer")
    assert refusal is None
    assert trip.facts is not None
    assert not trip.facts.listed
    _, refusal = assess(*line.split(), posture="developer", allowed_executables=["ls"])
    assert refusal is not None
    assert refusal.reason is Reason.EXECUTABLE_DENIED
    assert assess("python3", "x", posture="developer", allowed_executables=WRITTEN)[1] is None


def test_a_list_that_repeats_the_default_is_a_list_all_the_same():
    assert not is_allowed("bash", "x", allowed_executables=list(COMMON_PROGRAMS), allow_interpreters=True)


def test_the_refusal_names_what_the_list_leaves_out():
    _, refusal = assess("env", "perl", "x", allowed_executables=WRITTEN, allow_interpreters=True)
    assert refusal is not None
    assert refusal.detail == "perl, which env would run, is not on the executable allowlist."
    assert "palyra run --allow perl" in (refusal.hint or "")


@pytest.mark.parametrize(
    ("line", "flags"),
    [("bash -c id", " --allow bash"), ("env perl x", " --allow perl"), ("sed 1e f", " --allow sh"), ("python3 x", "")],
)
def test_the_refusal_of_code_names_all_that_it_takes(line: str, flags: str):
    """`--allow-interpreters` alone was a second refusal where a list is written."""
    _, refusal = assess(*line.split(), allowed_executables=WRITTEN)
    assert refusal is not None
    assert f"--allow-interpreters{flags}; always: " in (refusal.hint or "")
    _, refusal = assess(*line.split())
    assert refusal is not None
    assert "--allow-interpreters; always: " in (refusal.hint or "")


def test_allowing_a_wrapper_by_flag_allows_nothing_behind_it():
    """`--allow timeout` let any program run behind it."""
    grant = OperatorGrant(executables=("timeout",))
    assert is_allowed("timeout", "5", "ls", grant=grant)
    assert not is_allowed("timeout", "5", "htop", grant=grant)
