"""Step 6: the same job gives the same plan, made once, and what a caller feeds a program is not kept with it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.call import OperatorGrant, TierChoice
from palyra.model.host import ContainerFacts
from palyra.model.net import EgressMode
from palyra.model.outcome import Status
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import LINUX, FakeBackground, FakeExecutor, fake_ports, fake_run


def plans_of_two_calls(arguments):
    executor = FakeExecutor()
    for _ in range(2):  # an engine each, so that neither remembers what the other was asked
        engine = Engine(fake_ports(executor=executor), make_registry(BUILTIN_TOOLS))
        request = CallRequest(tool="palyra.process.run", input=arguments, run=fake_run())
        asyncio.run(engine.call(request))
    return executor.plans


def test_the_plan_of_an_equal_job_is_made_once():
    first, second = plans_of_two_calls({"command": "git", "args": ["log"]})
    assert first is second


def test_the_plan_of_a_program_that_is_fed_is_not_kept():
    first, second = plans_of_two_calls({"command": "git", "args": ["log"], "stdin": "a long text"})
    assert first == second
    assert first is not second


def test_a_background_process_without_a_pid_namespace_is_in_a_group_that_can_be_ended():
    run = fake_run(grant=OperatorGrant(tier=TierChoice.B, egress=EgressMode.NONE))
    background = FakeBackground()
    ports = fake_ports(host=replace(LINUX, cgroup_kill="/sys/fs/cgroup/palyra"), background=background)
    sleep = {"command": "sleep", "args": ["9"], "background": True}
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    asyncio.run(engine.call(CallRequest(tool="palyra.process.run", input=sleep, run=run)))
    (order,) = background.orders
    assert (order.plan.pid_namespace, order.plan.cgroup_parent) == (False, "/sys/fs/cgroup/palyra")


def test_a_background_process_in_a_container_is_refused_before_anything_starts():
    container = ContainerFacts(
        runtime="podman", path="/usr/bin/podman", version="5", image="sha256:" + "a" * 64, memory=True, pids=True
    )
    background = FakeBackground()
    ports = fake_ports(host=replace(LINUX, bubblewrap=None, container=container), background=background)
    sleep = {"command": "sleep", "args": ["9"], "background": True}
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    outcome = asyncio.run(engine.call(CallRequest(tool="palyra.process.run", input=sleep, run=fake_run())))
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.UNENFORCEABLE)
    assert "outlives its call" in outcome.message
    assert background.orders == []
