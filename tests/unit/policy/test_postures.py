"""The bundles that come with Palyra keep what their examples promise, and a few promises over all requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Reason
from palyra.model.grant import Allow, Ask, Deny
from palyra.policy.bundle import check_examples
from palyra.policy.decide import MISSING_EXECUTABLE, decide
from palyra.policy.examples import ordinary_request
from palyra.policy.request import ATTRIBUTES
from palyra.policy.store import POSTURES, load_posture
from tests.promises import promise

BUNDLES = {posture: load_posture(posture) for posture in POSTURES}
CODE_ORDER = ["INTERPRETER_DENIED", "EXECUTABLE_DENIED", "OUTSIDE_WORKSPACE", "EGRESS_DENIED"]


@st.composite
def any_facts(draw: st.DrawFn) -> dict[str, Any]:
    """Every flag and number, in any combination."""
    facts: dict[str, Any] = {name: draw(st.booleans()) for name, kind in ATTRIBUTES.items() if kind is bool}
    facts |= {name: draw(st.integers(0, 3)) for name, kind in ATTRIBUTES.items() if kind is int}
    facts["tier"] = draw(st.sampled_from(["A", "B", "C", "", "unsandboxed"]))
    facts["egress"] = draw(st.sampled_from(["none", "preflight", "strict", ""]))
    return facts


PRINCIPALS = st.sampled_from(["agent:demo", "user:alice"])


@pytest.mark.parametrize(("posture", "count"), [("locked", 7), ("standard", 35), ("developer", 26)])
def test_every_example_of_a_posture_decides_as_written(posture: str, count: int):
    bundle = BUNDLES[posture]
    assert check_examples(bundle, "examples.toml", bundle.examples) == count


@pytest.mark.parametrize("posture", POSTURES)
def test_the_codes_rank_by_id(posture: str):
    """Interpreter before executable before workspace before egress, whatever else is wrong with a call."""
    codes = [info.code.value for info in BUNDLES[posture].index.values() if info.code and "guard.9" not in info.id]
    assert [CODE_ORDER.index(code) for code in codes] == sorted(CODE_ORDER.index(code) for code in codes)


@pytest.mark.parametrize("posture", ["standard", "developer"])
def test_every_refusal_has_a_sentence_and_every_coded_one_a_hint(posture: str):
    for info in BUNDLES[posture].index.values():
        assert info.reason
        assert info.hint or info.code is None


def test_the_contracts_own_example_works_in_the_default_posture():
    assert decide(BUNDLES["standard"], ordinary_request("agent:demo", program="ls")) == Allow(
        policies=("permit.process",)
    )


def test_where_shells_run_an_unlisted_program_is_told_that_one_starts_it():
    decision = decide(BUNDLES["developer"], ordinary_request(program="df", listed=False))
    assert isinstance(decision, Deny)
    assert (decision.hint or "").startswith('In tier C a shell starts it: command="bash", args=["-c", "df …"]. ')


def test_a_refused_interpreter_names_flag_and_posture():
    decision = decide(BUNDLES["standard"], ordinary_request(program="bash", interpreter=True, listed=False))
    assert isinstance(decision, Deny)
    assert decision.reason is Reason.INTERPRETER_DENIED
    hint = decision.hint or ""
    assert "--allow-interpreters" in hint
    assert "palyra init --posture developer" in hint


def test_a_refused_program_names_flag_and_setting():
    decision = decide(BUNDLES["standard"], ordinary_request(program="nmap", listed=False))
    assert isinstance(decision, Deny)
    assert decision.hint == (
        "An operator can allow it for this call: palyra run --allow nmap; always: allowed_executables in "
        "[tool_call.process_runner]."
    )


@promise("commands.interpreters")
@given(facts=any_facts(), principal=PRINCIPALS)
def test_locked_allows_and_asks_nothing(facts: dict[str, Any], principal: str):
    for tool in ("palyra.process.run", "palyra.echo"):
        assert isinstance(decide(BUNDLES["locked"], ordinary_request(principal, tool, **facts)), Deny)


@promise("commands.planted-program")
@given(facts=any_facts(), principal=PRINCIPALS, posture=st.sampled_from(list(POSTURES)))
def test_no_posture_runs_what_the_agent_could_have_written_or_what_is_not_there(facts, principal, posture):
    for wall in ({"agent_writable": True}, {"found": False}, {"tier": "unsandboxed"}):
        decision = decide(BUNDLES[posture], ordinary_request(principal, **(facts | wall)))
        assert isinstance(decision, Deny)


@promise("commands.outside-paths")
@given(facts=any_facts(), principal=PRINCIPALS, posture=st.sampled_from(list(POSTURES)))
def test_no_posture_lets_a_call_out_of_the_workspace_or_to_a_host_that_was_not_granted(facts, principal, posture):
    for wall in ({"outside_workspace": True}, {"hosts_denied": 1}):
        decision = decide(BUNDLES[posture], ordinary_request(principal, **(facts | wall)))
        assert isinstance(decision, Deny)


@promise("commands.interpreters")
@given(facts=any_facts(), principal=PRINCIPALS)
def test_standard_runs_code_only_by_the_operators_grant(facts: dict[str, Any], principal: str):
    facts |= {"granted_interpreters": False}
    for what in ("interpreter", "runs_code", "inline_code"):
        decision = decide(BUNDLES["standard"], ordinary_request(principal, **(facts | {what: True})))
        assert isinstance(decision, Deny)
        assert decision.reason is Reason.INTERPRETER_DENIED


@promise("commands.interpreters")
@given(facts=any_facts(), principal=PRINCIPALS)
def test_developer_runs_code_only_in_tier_c_with_strict_egress_or_by_grant(facts: dict[str, Any], principal: str):
    decision = decide(BUNDLES["developer"], ordinary_request(principal, **(facts | {"interpreter": True})))
    if isinstance(decision, (Allow, Ask)):
        assert facts["granted_interpreters"] or (facts["tier"], facts["egress"]) == ("C", "strict")


@given(facts=any_facts(), posture=st.sampled_from(["standard", "developer"]))
def test_an_open_network_needs_a_flag_or_a_person(facts: dict[str, Any], posture: str):
    facts |= {"granted_egress": False, "approved": False}
    if facts["egress"] != "strict":
        assert not isinstance(decide(BUNDLES[posture], ordinary_request(**facts)), Allow)


@given(facts=any_facts(), principal=PRINCIPALS, posture=st.sampled_from(list(POSTURES)))
def test_missing_is_reported_only_for_a_program_that_is_otherwise_allowed(facts, principal, posture):
    """It becomes exit code 127; one that is not on the list is 126 even when it does not exist."""
    facts |= {"listed": False, "granted": False, "found": False}
    if posture == "developer":
        facts |= {"interpreter": False, "runs_code": False}
    decision = decide(BUNDLES[posture], ordinary_request(principal, **facts))
    assert MISSING_EXECUTABLE not in decision.policies
    listed = decide(BUNDLES["standard"], ordinary_request(principal, found=False))
    assert listed.policies[0] == MISSING_EXECUTABLE


@given(facts=any_facts(), principal=PRINCIPALS, posture=st.sampled_from(list(POSTURES)))
def test_an_approval_never_takes_anything_away(facts, principal, posture):
    facts |= {"approved": False}
    if isinstance(decide(BUNDLES[posture], ordinary_request(principal, **facts)), (Allow, Ask)):
        approved = decide(BUNDLES[posture], ordinary_request(principal, **(facts | {"approved": True})))
        assert isinstance(approved, Allow)
