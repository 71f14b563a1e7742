"""Step 5: limits within what is left, and what is refused before anything is planned."""

from __future__ import annotations

import asyncio

import pytest

from palyra.budget.ledger import Ledger, Share
from palyra.config.schema import parse_config
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.budget import Allowance, Spending
from palyra.model.outcome import Execution, Status, Usage
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakeExecutor, FakeJournal, fake_ports, fake_run

LS = {"command": "ls"}
BUDGETED = parse_config({"budget": {"run": {"wall_ms": 10_000, "cpu_ms": 5000, "output_bytes": 100}}})


class Journal(FakeJournal):
    """Says what is left."""

    def __init__(self, ledger=None, share=None):
        super().__init__()
        self.ledger, self.shared = ledger, share

    async def budget(self, run_id):
        return self.ledger

    async def share(self, run):
        return self.shared


def call(config, journal, *, execution=None, given=LS, tool="palyra.process.run"):
    executor = FakeExecutor(**({"execution": execution} if execution else {}))
    ports = fake_ports(config=config, journal=journal, executor=executor)
    request = CallRequest(tool=tool, input=given, run=fake_run(config))
    outcome = asyncio.run(Engine(ports, make_registry(BUILTIN_TOOLS)).call(request))
    return outcome, executor.plans


def ledger(**used):
    return Ledger(calls_max=9, attempts_max=9, most=BUDGETED.budget.run.allowance, used=Spending(**used))


def test_a_new_run_begins_with_what_the_configuration_gives():
    journal = Journal()
    _, (plan,) = call(BUDGETED, journal)
    assert (plan.limits.wall_ms, plan.limits.cpu_ms, plan.limits.output_bytes) == (10_000, 5000, 100)
    (opened,) = journal.openings
    assert opened.reserve == Spending(wall_us=10_000_000, cpu_us=5_000_000, output_bytes=100)
    assert opened.run.most == Allowance(wall_us=10_000_000, cpu_us=5_000_000, output_bytes=100)


def test_a_call_gets_what_is_left_and_no_more():
    _, (plan,) = call(BUDGETED, Journal(ledger(wall_us=9_000_000, output_bytes=60)))
    assert (plan.limits.wall_ms, plan.limits.cpu_ms, plan.limits.output_bytes) == (1000, 5000, 40)


def test_a_principals_share_narrows_too():
    config = parse_config({"budget": {"principal_day": {"wall_ms": 1000}}})
    share = Share(principal="agent:demo", used=Spending(wall_us=400_000), most=Allowance(wall_us=1_000_000))
    _, (plan,) = call(config, Journal(share=share))
    assert plan.limits.wall_ms == 600


@pytest.mark.parametrize(
    ("used", "said"),
    [
        ({"wall_us": 10_000_000}, "The run has used 10 of its 10 s of wall time."),
        ({"cpu_us": 5_000_001}, "The run has used 5.000001 of its 5 s of processor time."),
        ({"output_bytes": 100}, "The run has used 100 of its 100 bytes of output."),
    ],
)
def test_a_spent_budget_is_named_with_its_use_and_its_limit(used, said):
    outcome, plans = call(BUDGETED, Journal(ledger(**used)))
    assert (outcome.reason, outcome.message, plans) == (Reason.BUDGET_SPENT, said, [])
    assert "palyra runs extend" in outcome.hint


def test_what_was_used_is_settled_with_the_result():
    journal = Journal(ledger())
    ran = Execution(status=Status.COMPLETED, exit_code=0, usage=Usage(wall_us=5, cpu_us=6, output_bytes=7, fuel=None))
    call(BUDGETED, journal, execution=ran)
    assert journal.closings[0].spent == Spending(wall_us=5, cpu_us=6, output_bytes=7)


def test_processor_time_that_nobody_knows_counts_as_all_of_it_where_it_is_budgeted():
    ran = Execution(status=Status.COMPLETED, exit_code=0, usage=Usage(wall_us=5, cpu_us=None))
    budgeted, free = Journal(ledger()), Journal()
    call(BUDGETED, budgeted, execution=ran)
    call(parse_config({}), free, execution=ran)
    assert [journal.closings[0].spent.cpu_us for journal in (budgeted, free)] == [5_000_000, 0]


def test_traffic_that_nobody_counts_is_not_held_to_a_budget_but_refused():
    config = parse_config(
        {
            "posture": "developer",
            "budget": {"run": {"egress_bytes": 1000}},
            "tool_call": {"process_runner": {"egress_enforcement_mode": "preflight"}},
        }
    )
    outcome, plans = call(config, Journal(), given={"command": "ls"})
    assert (outcome.reason, plans) == (Reason.UNENFORCEABLE, [])
    assert "not metered" in outcome.message


def test_a_tool_of_our_own_counts_as_a_call_alone():
    journal = Journal(ledger())
    call(BUDGETED, journal, tool="palyra.echo", given={"a": 1})
    assert (journal.openings[0].reserve, journal.closings[0].spent) == (Spending(), Spending())
