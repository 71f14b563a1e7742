"""Step 4: what the configuration's own lists leave out is refused before any policy is asked."""

from __future__ import annotations

import asyncio

import pytest

from palyra.config.schema import parse_config
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.outcome import Status
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakeExecutor, fake_ports, fake_run


@pytest.mark.parametrize(
    ("lists", "refused_with"),
    [
        (
            {"allowed_tools": ["palyra.fs.*"]},
            (Reason.POLICY_DENIED, "palyra.process.run is not in allowed_tools.", "allowed_tools in [tool_call]"),
        ),
        (
            {"allowed_capabilities": ["artifacts_read"]},
            (
                Reason.CAPABILITY_DENIED,
                "palyra.process.run needs the capability filesystem_read, which is not allowed here.",
                "allowed_capabilities in [tool_call]",
            ),
        ),
    ],
)
def test_what_is_not_listed_is_refused_and_the_list_is_named(lists, refused_with):
    config, executor = parse_config({"tool_call": lists}), FakeExecutor()
    ports = fake_ports(config=config, executor=executor)
    request = CallRequest(tool="palyra.process.run", input={"command": "ls"}, run=fake_run(config))
    outcome = asyncio.run(Engine(ports, make_registry(BUILTIN_TOOLS)).call(request))
    reason, message, named = refused_with
    assert (outcome.status, outcome.reason, outcome.message) == (Status.REFUSED, reason, message)
    assert named in str(outcome.hint)
    assert executor.plans == []
