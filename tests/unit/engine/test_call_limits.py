"""What a call may ask for: a time within its cap, arguments of the kernel's size; a refusal names cap and key."""

from __future__ import annotations

import asyncio

import pytest

from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.limits import Limits
from palyra.model.outcome import Outcome
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import fake_ports, fake_run


def call(limits: Limits | None = None, **given: object) -> tuple[Outcome, object]:
    ports = fake_ports()
    engine, run = Engine(ports, make_registry(BUILTIN_TOOLS)), fake_run(limits=limits)
    request = CallRequest(tool="palyra.process.run", input={"command": "ls", **given}, run=run)
    return asyncio.run(engine.call(request)), ports


@pytest.mark.parametrize("timeout_ms", [900_001, 86_400_001, 10**15])
def test_a_timeout_above_the_cap_is_refused_and_names_cap_and_key(timeout_ms):
    outcome, ports = call(timeout_ms=timeout_ms)
    assert outcome.reason is Reason.BAD_ARGUMENTS
    assert f"{timeout_ms}" in outcome.message
    assert "900000" in outcome.message
    assert outcome.hint.endswith("An operator can raise execution_timeout_ms in [tool_call].")
    assert ports.executor.plans == []


def test_a_timeout_up_to_the_cap_is_what_the_call_gets():
    for timeout_ms in (1, 300_000, 900_000):
        _, ports = call(timeout_ms=timeout_ms)
        assert ports.executor.plans[0].limits.wall_ms == timeout_ms
    assert call(Limits(wall_ms=5), timeout_ms=6)[0].reason is Reason.BAD_ARGUMENTS


def test_an_argument_may_have_as_many_bytes_as_the_kernel_takes():
    assert call(args=["x" * (128 * 1024 - 1)])[0].success
    outcome, _ = call(args=["x" * (128 * 1024)])
    assert outcome.reason is Reason.BAD_ARGUMENTS
    assert "stdin" in outcome.hint
    assert "palyra.fs.write" in outcome.hint
