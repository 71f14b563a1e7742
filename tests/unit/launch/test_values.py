"""What crosses to a keeper arrives as the same value, or not at all."""

from __future__ import annotations

import json

import pytest

from palyra.launch.values import from_json, to_json
from palyra.model.host import HostFacts
from palyra.model.limits import Limits
from palyra.model.outcome import Execution, Status, Usage
from palyra.model.plan import ProcessPlan, plan_digest
from palyra.model.process import Lifetime, ProcessOwner, StartOrder
from palyra.model.record import Owner
from palyra.sandbox.planner import plan_job
from palyra.testing import LINUX
from tests.unit.sandbox.jobs import make_host, make_job

PLAN = plan_job(make_job(), make_host())
ORDER = StartOrder(
    process_id="0" * 26,
    owner=ProcessOwner("1" * 26, "agent:demo"),
    call_id="2" * 26,
    plan=PLAN,
    plan_sha256=plan_digest(PLAN),
    lifetime=Lifetime.DETACHED,
    expires_unix_ms=5,
    holder=Owner("boot", 1, 2),
    max_running=3,
    secrets=(("token", b"\x00\xffsecret"),),
)


@pytest.mark.parametrize(
    "value",
    [ORDER, PLAN, LINUX, Limits(), Execution(status=Status.FAILED, usage=Usage(cpu_us=None))],
    ids=lambda value: type(value).__name__,
)
def test_a_value_crosses_unchanged(value):
    assert from_json(type(value), json.loads(json.dumps(to_json(value)))) == value


def test_the_plan_that_arrives_has_the_digest_of_the_one_that_was_sent():
    arrived = from_json(ProcessPlan, json.loads(json.dumps(to_json(PLAN))))
    assert plan_digest(arrived) == plan_digest(PLAN)


@pytest.mark.parametrize(
    "change",
    [
        {"surprise": 1},
        {"max_running": "3"},
        {"max_running": True},
        {"max_running": 3.0},
        {"lifetime": "for ever"},
        {"holder": {"boot_id": "b", "pid": 1}},
        {"holder": []},
        {"secrets": [["a", "not base64!"]]},
        {"secrets": [["a"]]},
        {"plan": None},
        {"owner": "agent:demo"},
    ],
    ids=str,
)
def test_anything_else_is_refused(change):
    with pytest.raises(ValueError, match=r"."):
        from_json(StartOrder, json.loads(json.dumps(to_json(ORDER))) | change)


def test_a_field_that_is_missing_is_refused():
    raw = to_json(ORDER)
    del raw["max_running"]
    with pytest.raises(ValueError, match="fields of StartOrder"):
        from_json(StartOrder, raw)


def test_a_value_checks_itself_on_arrival_too():
    raw = to_json(Limits()) | {"memory_bytes": 1}
    with pytest.raises(Exception, match="memory_bytes"):
        from_json(Limits, raw)


def test_what_is_no_value_does_not_cross():
    with pytest.raises(TypeError, match="object"):
        to_json(object())
    assert from_json(HostFacts, to_json(LINUX)) == LINUX
