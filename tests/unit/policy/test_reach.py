"""A tool that can never be allowed is never shown; one that might be is never hidden."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.config.schema import parse_config
from palyra.engine.listing import tools_for
from palyra.model.call import parse_principal
from palyra.model.tool import Capability
from palyra.policy.bundle import load_bundle
from palyra.policy.decide import verdict_of
from palyra.policy.examples import ordinary_request
from palyra.policy.reach import Reach
from palyra.policy.store import load_posture, read_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from tests.unit.policy.test_slices import FACT_VALUES

SPECS = {spec.name: spec for spec in BUILTIN_TOOLS}
DEMO, ALICE = parse_principal("agent:demo"), parse_principal("user:alice")
REGISTRY = make_registry(BUILTIN_TOOLS)


def names(posture: str, local: str = "", principal=DEMO, **config) -> set[str]:
    bundle = load_posture(posture, {"a.cedar": local} if local else None)
    parsed = parse_config({"tool_call": config})
    return {spec.name for spec in tools_for(principal, REGISTRY, parsed, bundle)}


def test_locked_shows_nothing_and_the_others_everything():
    assert names("locked") == set()
    assert names("standard") == names("developer") == set(SPECS)


ECHO_FOR_DEMO = '@id("p") permit (principal == Agent::"demo", action, resource == Tool::"palyra.echo");'
LS_FOR_DEMO = """@id("p") permit (principal == Agent::"demo", action == Action::"tool::execute",
resource == Tool::"palyra.process.run") when { context.effective_program == "ls" };"""


def test_what_a_local_permit_opens_is_shown_to_whom_it_is_for():
    assert names("locked", ECHO_FOR_DEMO) == {"palyra.echo"}
    assert names("locked", LS_FOR_DEMO) == {"palyra.process.run"}
    assert names("locked", ECHO_FOR_DEMO, ALICE) == set()


def test_what_may_be_called_and_not_listed_is_not_shown_though_nothing_else_speaks_of_listing():
    permit = '@id("p") permit (principal, action == Action::"tool::execute", resource);'
    hide = '@id("f") forbid (principal, action == Action::"tool::list", resource);'
    schema = read_posture("standard")["schema.cedarschema"]
    reach = [
        Reach(load_bundle("test", {"a.cedar": text, "schema.cedarschema": schema, "examples.toml": ""}))
        for text in (permit, permit + hide)
    ]
    assert [one.could(DEMO, SPECS["palyra.echo"]) for one in reach] == [True, False]


@pytest.mark.parametrize(
    ("forbid", "hidden"),
    [
        ('forbid (principal, action, resource == Tool::"palyra.echo");', {"palyra.echo"}),
        ("forbid (principal is Agent, action, resource) when { context.cap_process_exec };", {"palyra.process.run"}),
        ("forbid (principal, action, resource) when { context.cap_process_exec } unless { context.approved };", set()),
        ("forbid (principal is User, action, resource);", set()),
        ('forbid (principal, action == Action::"tool::list", resource == Tool::"palyra.echo");', {"palyra.echo"}),
        ("forbid (principal, action, resource) when { context.hour > 3 };", set()),
        ('forbid (principal, action, resource == Tool::"palyra.echo") when { context.tier == "" };', {"palyra.echo"}),
    ],
)
def test_a_forbid_hides_only_what_it_certainly_forbids(forbid: str, hidden: set[str]):
    assert set(SPECS) - names("standard", f'@id("f") {forbid}') == hidden


def test_the_configurations_lists_hide_too():
    assert names("standard", allowed_tools=["palyra.echo"]) == {"palyra.echo"}
    assert "palyra.process.run" not in names("standard", allowed_capabilities=["artifacts_read"])
    assert "palyra.process.run" not in names("standard", process_runner={"enabled": False})


def test_a_principal_nobody_knows_sees_nothing():
    assert not Reach(load_posture("standard")).could(DEMO, SPECS["palyra.echo"], roles=())


def test_a_forbidden_capability_hides_a_tool_for_good():
    text = '@id("f") forbid (principal, action, resource) when { context.cap_network && true };'
    reach = Reach(load_posture("standard", {"a.cedar": text}))
    network = replace(SPECS["palyra.echo"], capabilities=frozenset({Capability.NETWORK}))
    assert reach.could(DEMO, SPECS["palyra.echo"])
    assert not reach.could(DEMO, network)


@settings(max_examples=80, deadline=None)
@given(
    facts=st.fixed_dictionaries({}, optional={k: v for k, v in FACT_VALUES.items() if k != "cap_secrets_read"}),
    posture=st.sampled_from(["locked", "standard", "developer"]),
    local=st.sampled_from([ECHO_FOR_DEMO, LS_FOR_DEMO, '@id("f") forbid (principal is Agent, action, resource);']),
)
def test_what_is_hidden_is_never_allowed(facts, posture, local):
    bundle = load_posture(posture, {"a.cedar": local})
    if not Reach(bundle).could(DEMO, SPECS["palyra.process.run"]):
        request = ordinary_request(**{**facts, "sensitive": False})
        assert verdict_of(bundle, request).effect in ("deny", "error")
