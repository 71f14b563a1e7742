"""A call that was asked before is assessed by what changed since: always as if nobody had asked it before."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import OrderedDict
from dataclasses import fields, replace
from datetime import date
from enum import Enum
from uuid import UUID

import pytest

from palyra.engine.shapes import MAX_INPUT_BYTES, MAX_SHAPES
from palyra.engine.trip import CallRequest, Trip
from palyra.engine.walk import Engine
from palyra.errors import Reason, Rejected
from palyra.model.budget import Allowance
from palyra.model.call import Door, OperatorGrant
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.policy.store import PolicyStore
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakePolicies, fake_ports, fake_run

OTHER_RUN = "01HF7YAT000000000000000RV2"
LS = {"command": "ls", "args": ["-la", "folder/file"]}


class Word(Enum):
    LS = "ls"


class Plain(Enum):
    NULL = None


@dataclasses.dataclass
class Pathlike:
    path: str


REGISTRY = make_registry(BUILTIN_TOOLS)


def make_engine(ports) -> Engine:
    return Engine(ports, REGISTRY)


def ask(engine: Engine, given=LS, run=None, tool="palyra.process.run") -> tuple[Trip, Rejected | None]:
    request = CallRequest(tool=tool, input=given, run=run or fake_run())
    return asyncio.run(engine.assess(request))


def told(answer: tuple[Trip, Rejected | None]) -> dict[str, object]:
    """Everything that a call's record is made of."""
    trip, refusal = answer
    known = {f.name: getattr(trip, f.name) for f in fields(trip) if f.name not in ("shape", "call_id", "call")}
    call = None if trip.call is None else replace(trip.call, call_id="")
    why = None if refusal is None else (refusal.reason, refusal.detail, refusal.hint)
    return known | {"call": call, "refusal": why}


def links_out(ports, run):
    ports.look.links["folder/file"] = "/etc/shadow"
    return run


def program_is_another(ports, run):
    ports.look.shebangs["ls"] = "python3"
    return run


def program_is_gone(ports, run):
    ports.look.missing = frozenset({"ls"})
    return run


def run_has_another_workspace(ports, run):
    return replace(run, workspace="/elsewhere")


def run_is_another_principals(ports, run):
    return fake_run(principal="agent:other")


def run_has_a_label(ports, run):
    ports.run_facts.facts = RunFacts(labels=frozenset({RunLabel.HAS_USED_SECRET}), calls_last_minute=7)
    return run


def policy_is_another(ports, run):
    ports.policies.bundle = PolicyStore("locked", None).current()
    return run


def an_hour_passed(ports, run):
    ports.clock.advance(3_600_000)
    return run


def budget_is_nearly_spent(ports, run):
    ports.journal._budgets[run.run_id] = [3, 4, 1, 9]
    return run


def attempts_are_spent(ports, run):
    ports.journal._budgets[run.run_id] = [3, 4, 9, 9]
    return run


def run_is_short_of_time(ports, run):
    return replace(run, most=Allowance(wall_us=2_000_000))


def another_run_on_the_same_terms(ports, run):
    ports.journal._budgets[OTHER_RUN] = [1, 2, 3, 4]
    return fake_run(run_id=OTHER_RUN)


def run_has_other_limits(ports, run):
    return replace(run, limits=replace(run.limits, cpu_ms=1000))


def run_has_a_grant(ports, run):
    return replace(run, grant=OperatorGrant(env=(("A", "b"),)))


def run_came_through_another_door(ports, run):
    return replace(run, context=replace(run.context, door=Door.HTTP, device="d"))


def nothing_happened(ports, run):
    return run


CHANGES = (
    nothing_happened, links_out, program_is_another, program_is_gone, run_has_another_workspace,
    run_is_another_principals, run_has_a_label, policy_is_another, an_hour_passed, budget_is_nearly_spent,
    attempts_are_spent, run_is_short_of_time, another_run_on_the_same_terms, run_has_other_limits, run_has_a_grant,
    run_came_through_another_door,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_call_asked_again_is_assessed_like_one_that_was_never_asked(change):
    ports = fake_ports(policies=FakePolicies())
    engine, run = make_engine(ports), fake_run()
    ask(engine, run=run)
    assert len(engine._shapes._known) == 1
    run = change(ports, run)
    again, first = told(ask(engine, run=run)), told(ask(make_engine(ports), run=run))
    assert again == first
    assert told(ask(engine, run=run)) == first, "and once more"


def test_what_was_worked_out_is_used_again():
    engine = make_engine(fake_ports())
    first, _ = ask(engine)
    second, _ = ask(engine)
    assert second.plan is first.plan
    assert second.facts is first.facts
    assert second.decision is first.decision


def test_runs_on_the_same_terms_share_what_was_worked_out():
    engine = make_engine(fake_ports())
    first, _ = ask(engine)
    second, _ = ask(engine, run=fake_run(run_id=OTHER_RUN))
    assert second.plan is first.plan
    assert second.call.run_id == OTHER_RUN


def test_another_input_is_another_call():
    engine = make_engine(fake_ports())
    ask(engine)
    for given in ({"command": "ls"}, {"command": "cat", "args": ["-la", "folder/file"]}, LS | {"timeout_ms": 5}):
        assert told(ask(engine, given)) == told(ask(make_engine(engine.ports), given))


@pytest.mark.parametrize(
    "given",
    [
        {"command": Word.LS, "args": ["-la", "folder/file"]},
        {"command": "ls", "args": ["-la", "folder/file"], "timeout_ms": 5.0},
        {"command": "ls", "args": [b"-la", "folder/file"]},
        {"command": "ls", "args": ["-la", "folder/file"], 1: 2},
        b'{"command":"ls","command":"ls","args":["-la","folder/file"]}',
        b'{"command":"ls","args":["-la","folder/file"]} ',
        b'{"args":["-la","folder/file"],"command":"ls"',
    ],
)
def test_what_only_looks_like_a_known_input_is_judged_on_its_own(given):
    engine = make_engine(fake_ports())
    ask(engine)
    ask(engine, b'{"args":["-la","folder/file"],"command":"ls"}')
    assert told(ask(engine, given)) == told(ask(make_engine(engine.ports), given))


@pytest.mark.parametrize("odd", [float("nan"), Plain.NULL, UUID(int=0), date(2020, 1, 1), Pathlike("null")])
@pytest.mark.parametrize("known", [None, "null", str(UUID(int=0)), "2020-01-01"])
def test_what_is_only_written_like_a_known_input_of_a_tool_of_ours_is_judged_on_its_own(known, odd):
    engine = make_engine(fake_ports())
    ask(engine, {"a": known}, tool="palyra.echo")
    assert told(ask(engine, {"a": odd}, tool="palyra.echo")) == told(
        ask(make_engine(engine.ports), {"a": odd}, tool="palyra.echo")
    )


def test_mappings_that_are_no_dicts_are_taken_as_before():
    engine = make_engine(fake_ports())
    ask(engine)
    trip, refusal = ask(engine, OrderedDict(reversed(LS.items())))
    assert refusal is None
    assert trip.call is not None
    assert trip.call.input == LS


def test_a_caller_who_changes_its_mapping_later_changes_nothing_remembered():
    engine, given = make_engine(fake_ports()), {"command": "ls", "args": ["-la"]}
    ask(engine, given)
    given["args"].append("/etc/shadow")
    _, refusal = ask(engine, given)
    assert refusal is not None
    assert refusal.reason is Reason.OUTSIDE_WORKSPACE
    assert ask(engine, {"command": "ls", "args": ["-la"]})[0].job.argv == ("ls", "-la")


def test_refused_large_and_fed_calls_are_not_remembered():
    engine = make_engine(fake_ports())
    for given in (
        {"command": "bash"},
        {"command": "ls", "args": ["x" * 4000, "y" * (MAX_INPUT_BYTES - 4000)]},
        {"command": "cat", "stdin": "text"},
        {"command": "sleep", "args": ["9"], "background": True, "lifetime": "detached"},
    ):
        ask(engine, given)
    assert engine._shapes._known == {}


def test_the_memory_is_bounded():
    engine = make_engine(fake_ports())
    for number in range(MAX_SHAPES + 5):
        ask(engine, {"command": "ls", "args": [f"file{number}"]})
    assert len(engine._shapes._known) == MAX_SHAPES


# ── tools that the engine answers itself ──

ECHO = {"say": ["hello", {"n": 1}]}


def ask_echo(engine: Engine, given=ECHO, run=None):
    return ask(engine, given, run, tool="palyra.echo")


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_an_answered_call_asked_again_is_assessed_like_one_that_was_never_asked(change):
    ports = fake_ports(policies=FakePolicies())
    engine, run = make_engine(ports), fake_run()
    ask_echo(engine, run=run)
    assert (len(engine._shapes._answered), engine._shapes._known) == (1, {})
    run = change(ports, run)
    again, first = told(ask_echo(engine, run=run)), told(ask_echo(make_engine(ports), run=run))
    assert again == first
    assert told(ask_echo(engine, run=run)) == first, "and once more"


def test_whoever_changes_an_answer_changes_nobody_elses():
    engine, run = make_engine(fake_ports()), fake_run()
    request = CallRequest(tool="palyra.echo", input=ECHO, run=run)
    for _ in range(3):
        output = asyncio.run(engine.call(request)).output
        assert output == {"say": ["hello", {"n": 1}]}
        output["say"][1]["n"] = 2
        output["say"].append("more")
        request = replace(request, input={"say": ["hello", {"n": 1}]})


@pytest.mark.parametrize("given", [b'{"n":1.0}', b'{"n":1e2}', {"n": 0.5}, b'{"n":"\xc3\xa9"}'])
def test_an_input_whose_bytes_could_be_read_as_another_value_is_not_remembered(given):
    engine = make_engine(fake_ports())
    first, again = (told(ask_echo(engine, given)) for _ in range(2))
    assert engine._shapes._answered == {}
    assert again == first


def test_answered_calls_push_no_other_out_of_the_memory():
    engine = make_engine(fake_ports())
    ask(engine)
    for number in range(MAX_SHAPES + 5):
        ask_echo(engine, {"n": number})
    assert (len(engine._shapes._answered), len(engine._shapes._known)) == (MAX_SHAPES, 1)
