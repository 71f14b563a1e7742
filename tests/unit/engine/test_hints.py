"""A hint's command can be typed as it is printed: it names this call, this run and this tool."""

from __future__ import annotations

import asyncio

import pytest

from palyra.config.schema import parse_config
from palyra.engine.hints import about_tool, split_hint
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.model.reasons import REASONS
from palyra.policy.store import PolicyStore
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakePolicies, fake_ports, fake_run


def call(tool, given, *, posture="standard"):
    policies = FakePolicies(PolicyStore(posture, None).current())
    engine = Engine(fake_ports(policies=policies), make_registry(BUILTIN_TOOLS))
    return asyncio.run(engine.call(CallRequest(tool=tool, input=given, run=fake_run())))


def test_a_refused_input_names_the_tool_whose_schema_to_look_at():
    outcome = call("palyra.process.run", {"comand": "ls"})
    assert outcome.message == "command is missing; unknown key comand."
    assert outcome.hint == (
        "Its keys: command, args, cwd, env, stdin, timeout_ms, background, lifetime, requested_egress_hosts. "
        "The tool's schema says what fits. An operator can print it: palyra tools show palyra.process.run."
    )


def test_what_nothing_permits_names_the_call_to_explain():
    outcome = call("palyra.process.run", {"command": "ls"}, posture="locked")
    assert f"palyra policy explain {outcome.call_id} " in outcome.hint


@pytest.mark.parametrize("page", REASONS.values(), ids=REASONS)
def test_what_the_reference_advises_names_the_entry_to_look_at(page):
    assert "journal show" not in page.remedy or "palyra journal show CALL_ID" in page.remedy


def test_a_spent_budget_names_the_run_to_extend():
    config = parse_config({"tool_call": {"max_calls_per_run": 1}})
    engine, run = Engine(fake_ports(config=config), make_registry(BUILTIN_TOOLS)), fake_run(config)
    outcomes = [asyncio.run(engine.call(CallRequest(tool="palyra.echo", input={}, run=run))) for _ in range(2)]
    assert outcomes[1].hint.endswith(f"palyra runs extend {run.run_id} --calls N.")


@pytest.mark.parametrize("tool", ["no such tool", "x\x1b[31m", "TOOL; rm -rf ~", ""])
def test_a_name_that_is_none_does_not_get_into_a_line_that_people_copy(tool):
    hint = call(tool, {}).hint
    assert tool == "" or tool not in hint


def test_of_a_call_that_was_not_made_the_tool_alone_is_named():
    hint = "palyra tools show TOOL prints the schema; palyra policy explain CALL_ID"
    assert about_tool(hint, "palyra.echo") == hint.replace("TOOL", "palyra.echo")
    assert (about_tool(hint, "x; rm"), about_tool(None, "palyra.echo")) == (hint, None)


@pytest.mark.parametrize(
    ("hint", "agents", "operators"),
    [
        ("Do less.", "Do less.", ""),
        ("Do less. An operator can raise x.", "Do less.", "An operator can raise x."),
        ("An operator can raise x. Or y.", "", "An operator can raise x. Or y."),
        ("NotAn operator can do it.", "NotAn operator can do it.", ""),
    ],
)
def test_what_only_an_operator_can_do_is_told_apart(hint, agents, operators):
    assert split_hint(hint) == (agents, operators)
