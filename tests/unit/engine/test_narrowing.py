"""A run may narrow any of what is configured for its session, and never widens it."""

from __future__ import annotations

import asyncio

import pytest

from palyra.config.schema import parse_config
from palyra.engine.network import granted_network
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason, Rejected
from palyra.model.narrowing import NAMES, Narrowing, parse_narrowing
from palyra.model.net import EgressMode
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import fake_ports, fake_run

RUN, LS = "palyra.process.run", {"command": "ls"}
HOSTS = {"allowed_egress_hosts": ["*.example.com", "registry.test"]}


def call(tool: str, given: dict, *, config: dict | None = None, **fewer):
    settings = parse_config({"tool_call": {"process_runner": config or {}}})
    ports = fake_ports(config=settings)
    run = fake_run(settings, narrowing=Narrowing(**fewer))
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    return asyncio.run(engine.call(CallRequest(tool=tool, input=given, run=run)))


def process(command: str, *args: str, **options):
    return call("palyra.process.run", {"command": command, "args": list(args)}, **options)


@pytest.mark.parametrize(
    ("tool", "given", "fewer", "reason"),
    [
        ("palyra.echo", {}, {"allowed_tools": ("palyra.fs.*",)}, Reason.POLICY_DENIED),
        ("palyra.echo", {}, {"allowed_tools": ()}, Reason.POLICY_DENIED),
        ("palyra.echo", {}, {"allowed_tools": ("palyra.e*",)}, None),
        (RUN, LS, {"allowed_capabilities": ("filesystem_read",)}, Reason.CAPABILITY_DENIED),
        (RUN, LS, {"allowed_executables": ("cat",)}, Reason.EXECUTABLE_DENIED),
        (RUN, LS, {"allowed_executables": ("cat", "ls")}, None),
    ],
)  # fmt: skip
def test_a_run_may_narrow_any_of_it(tool, given, fewer, reason):
    outcome = call(tool, given, **fewer)
    assert outcome.reason is reason, outcome.message
    assert reason is None or "this run" in (outcome.message or "").lower()


def test_a_program_behind_a_wrapper_is_a_program_of_the_run_too():
    assert process("timeout", "1", "ls", config={"allowed_executables": ["timeout", "ls"]}).reason is None
    narrowed = process(
        "timeout", "1", "ls", config={"allowed_executables": ["timeout", "ls"]}, allowed_executables=("timeout",)
    )
    assert (narrowed.reason, narrowed.message) == (Reason.EXECUTABLE_DENIED, "ls is not a program of this run.")


def test_a_run_never_widens():
    assert process("htop", allowed_executables=("htop",)).reason is Reason.EXECUTABLE_DENIED
    assert process("curl", "http://evil.test/", allowed_egress_hosts=("evil.test",)).reason in (
        Reason.EGRESS_DENIED,
        Reason.EXECUTABLE_DENIED,
    )


def hosts_of(*fewer: str) -> list[str]:
    settings = parse_config({"tool_call": {"process_runner": HOSTS}})
    run = fake_run(settings, narrowing=Narrowing(allowed_egress_hosts=fewer))
    return [str(host) for host in granted_network(run, settings.tool_call.process_runner).hosts]


def test_hosts_of_a_run_are_those_that_the_configuration_has_too():
    assert hosts_of("a.example.com", "evil.test") == ["a.example.com"]
    assert hosts_of("*.b.example.com", "registry.test:443") == ["registry.test:443", "*.b.example.com"]
    assert hosts_of() == []


@pytest.mark.parametrize("fewer", [("a.example.com",), ()])
def test_a_host_that_the_run_gave_up_is_refused(fewer):
    outcome = process("echo", "https://registry.test/", config=HOSTS, allowed_egress_hosts=fewer)
    assert outcome.reason is Reason.EGRESS_DENIED


def test_hosts_bind_also_where_the_network_is_configured_open():
    settings = parse_config({"tool_call": {"process_runner": {"egress_enforcement_mode": "none"}}})
    assert fake_run(settings, narrowing=Narrowing(allowed_egress_hosts=())).egress is EgressMode.STRICT
    assert fake_run(settings).egress is EgressMode.NONE


@pytest.mark.parametrize("given", [{name: "ls"} for name in NAMES] + [{"allowed_tools": [1]}, {"surprise": ["x"]}])
def test_words_that_are_no_list_of_names_are_refused(given):
    with pytest.raises(Rejected) as refused:
        parse_narrowing(given)
    assert refused.value.reason is Reason.BAD_ARGUMENTS


def test_a_host_that_is_no_pattern_is_refused_before_there_is_a_run():
    with pytest.raises(Rejected):
        fake_run(narrowing=Narrowing(allowed_egress_hosts=("*",)))
