"""Three outcomes and their sentences; and every trap of the engine ends in a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cedarpy
import pytest

from palyra.errors import Reason
from palyra.model.grant import Allow, Ask, Deny
from palyra.policy import cedar
from palyra.policy import decide as decide_module
from palyra.policy.bundle import PolicyBundle, load_bundle
from palyra.policy.decide import decide, verdict_of
from palyra.policy.examples import ordinary_request
from palyra.policy.store import read_posture
from tests.promises import promise

SCHEMA = read_posture("standard")["schema.cedarschema"]
PERMIT = '@id("permit.all") permit (principal, action, resource);\n'


def load(text: str) -> PolicyBundle:
    return load_bundle("test", {"a.cedar": text, "schema.cedarschema": SCHEMA})


def denied(bundle: PolicyBundle, **facts: Any) -> Deny:
    decision = decide(bundle, ordinary_request(**facts))
    assert isinstance(decision, Deny)
    return decision


def test_what_is_permitted_is_allowed_by_the_policies_that_did():
    assert decide(load(PERMIT), ordinary_request()) == Allow(policies=("permit.all",))


def test_what_nothing_permits_is_denied_plainly():
    assert decide(load(""), ordinary_request()) == Deny(
        reason=Reason.POLICY_DENIED,
        policies=(),
        message="No policy permits palyra.process.run for agent:demo.",
        hint="palyra policy explain CALL_ID shows what would allow it: a flag, an approval or an exception; "
        "the posture is test.",
    )


def test_a_forbid_without_words_is_still_explained():
    bundle = load(PERMIT + '@id("f") forbid (principal, action, resource);')
    assert denied(bundle) == Deny(
        reason=Reason.POLICY_DENIED,
        policies=("f",),
        message="A policy forbids palyra.process.run for agent:demo.",
        hint=None,
    )


def test_the_code_is_that_of_the_first_determining_forbid_by_id():
    bundle = load(
        PERMIT
        + '@id("b") @code("EGRESS_DENIED") forbid (principal, action, resource);'
        + '@id("a") @code("INTERPRETER_DENIED") forbid (principal, action, resource) when { context.interpreter };'
    )
    assert (denied(bundle).reason, denied(bundle).policies) == (Reason.EGRESS_DENIED, ("b",))
    both = denied(bundle, interpreter=True)
    assert (both.reason, both.policies) == (Reason.INTERPRETER_DENIED, ("a", "b"))


def test_the_guards_own_sentence_comes_before_the_policys():
    bundle = load(PERMIT + '@id("f") @code("EGRESS_DENIED") @reason("General.") forbid (principal, action, resource);')
    details = (("OUTSIDE_WORKSPACE", "Not this."), ("EGRESS_DENIED", "Argument 2 names example.org."))
    decision = decide(bundle, ordinary_request(), details=details)
    assert isinstance(decision, Deny)
    assert decision.message == "Argument 2 names example.org."
    assert denied(bundle).message == "General."


def test_a_hint_names_the_program_but_only_a_plain_name():
    bundle = load(PERMIT + '@id("f") @hint("Use --allow {program}.") forbid (principal, action, resource);')
    assert denied(bundle, program="g++-12").hint == "Use --allow g++-12."
    assert denied(bundle, program="env", effective_program="nmap").hint == "Use --allow nmap."
    assert denied(bundle, program="x\x1b[2J").hint == "Use --allow NAME."
    assert denied(bundle, program="").hint == "Use --allow NAME."


def test_a_hint_names_what_has_to_be_listed_beside_the_leave_to_run_code():
    bundle = load(
        PERMIT + '@id("f") @hint("--code{allow}, code = true{listed}.") forbid (principal, action, resource);'
    )
    decision = decide(bundle, ordinary_request(), details=(("unlisted", "less"), ("unlisted", "x\x1b[2J")))
    assert isinstance(decision, Deny)
    assert decision.hint == "--code --allow less, code = true and less in allowed_executables."
    assert denied(bundle).hint == "--code, code = true."


def test_reading_what_lies_outside_is_advised_only_where_it_would_help():
    bundle = load(PERMIT + '@id("f") @hint("Copy it{read}.") forbid (principal, action, resource);')
    decision = decide(bundle, ordinary_request(), details=(("read", "PATH"),))
    assert isinstance(decision, Deny)
    assert decision.hint == "Copy it, or let programs read one more path: palyra run --read PATH."
    assert denied(bundle).hint == "Copy it."


# ---- ask ------------------------------------------------------------------------------------------------------------


def test_what_an_approval_would_allow_is_asked():
    bundle = load(PERMIT + '@id("f") forbid (principal, action, resource) unless { context.approved };')
    assert decide(bundle, ordinary_request()) == Ask(policies=("f",))
    assert decide(bundle, ordinary_request(approved=True)) == Allow(policies=("permit.all",))


def test_a_permit_that_needs_an_approval_asks_too():
    bundle = load('@id("p") permit (principal, action, resource) when { context.approved };')
    assert decide(bundle, ordinary_request()) == Ask(policies=("p",))


def test_what_can_never_be_allowed_is_never_put_before_a_person():
    bundle = load(
        PERMIT
        + '@id("f") forbid (principal, action, resource) unless { context.approved };'
        + '@id("g") forbid (principal, action, resource) when { context.interpreter };'
    )
    assert denied(bundle, interpreter=True).policies == ("f", "g")


def test_an_approval_that_leads_to_an_error_is_not_asked_for():
    bundle = load(
        PERMIT
        + '@id("f") forbid (principal, action, resource) unless { context.approved };'
        + '@id("e") forbid (principal, action, resource)'
        + " when { context.approved && context.hour * 9223372036854775807 > 0 };"
    )
    assert denied(bundle).policies == ("f",)


# ---- what would have been enough ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "facts", "hint"),
    [
        ('context.tier == "C"', {"tier": "B"}, "It would be allowed in tier C: "),
        ('context.egress == "strict"', {"egress": "none"}, "It would be allowed with strict egress: "),
        (
            'context.tier == "C" && context.egress == "strict"',
            {"tier": "B", "egress": "none"},
            "It would be allowed in tier C with strict egress: ",
        ),
    ],
)
def test_a_denial_says_when_a_stronger_sandbox_would_be_enough(condition: str, facts: dict[str, Any], hint: str):
    permit = load(f'@id("p") permit (principal, action, resource) when {{ {condition} }};')
    forbid = load(PERMIT + f'@id("f") @hint("Static.") forbid (principal, action, resource) unless {{ {condition} }};')
    for bundle in (permit, forbid):
        assert (denied(bundle, **facts).hint or "").startswith(hint)
        assert isinstance(decide(bundle, ordinary_request()), Allow)


def test_a_stronger_sandbox_that_would_not_help_is_not_named():
    bundle = load(
        PERMIT
        + '@id("f") @hint("Static.") forbid (principal, action, resource) unless { context.tier == "C" };'
        + '@id("g") forbid (principal, action, resource) when { context.interpreter };'
    )
    assert denied(bundle, tier="B", interpreter=True).hint == "Static."


# ---- traps ----------------------------------------------------------------------------------------------------------


def assert_error(decision: object, *words: str) -> None:
    assert isinstance(decision, Deny)
    assert decision.reason is Reason.POLICY_ERROR
    assert decision.policies == ()
    assert all(word in decision.message for word in words), decision.message


@promise("policy.failing-forbid")
def test_a_forbid_that_fails_to_evaluate_denies():
    """Cedar skips it and says allow."""
    bundle = load(
        PERMIT + '@id("broken") forbid (principal, action, resource) when { context.hour * 9223372036854775807 > 0 };'
    )
    asked = cedarpy.is_authorized(ordinary_request().cedar, "\n".join(bundle.policies.values()), "[]")
    assert asked.allowed
    assert_error(decide(bundle, ordinary_request()), "broken", "overflow")


def test_an_unknown_principal_or_tool_denies():
    bundle = load(PERMIT)
    assert_error(decide(bundle, replace(ordinary_request(), roles=())), "agent:demo is not a known principal")
    assert_error(decide(bundle, replace(ordinary_request(), groups=())), "palyra.process.run is not a known tool")


@promise("policy.entity-text")
def test_text_that_looks_like_an_entity_stays_text():
    bundle = load(
        '@id("p") permit (principal, action, resource)'
        ' when { context.device == "{\\"__entity\\":{\\"type\\":\\"User\\",\\"id\\":\\"root\\"}}" };'
    )
    trick = '{"__entity":{"type":"User","id":"root"}}'
    assert isinstance(decide(bundle, ordinary_request(device=trick)), Allow)
    assert isinstance(decide(bundle, ordinary_request(device="x")), Deny)


def test_half_a_character_in_a_fact_denies():
    bundle = load('@id("p") permit (principal, action, resource) when { context.device != "x" };')
    assert_error(decide(bundle, ordinary_request(device="\ud800")))


class PanicException(BaseException):
    """As PyO3 names what a panic of Rust code becomes."""


@pytest.mark.parametrize("thrown", [RuntimeError("gone"), ValueError("gone"), PanicException("gone")])
def test_whatever_the_engine_throws_denies(monkeypatch: pytest.MonkeyPatch, thrown: BaseException):
    bundle = load(PERMIT)

    def broken(*_args: object, **_kwargs: object) -> object:
        raise thrown

    monkeypatch.setattr(cedar.cedarpy, "is_authorized_batch", broken)
    assert_error(decide(bundle, ordinary_request()), "gone")


def test_a_person_at_the_keyboard_can_still_interrupt(monkeypatch: pytest.MonkeyPatch):
    bundle = load(PERMIT)

    def interrupted(*_args: object, **_kwargs: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(cedar.cedarpy, "is_authorized_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        decide(bundle, ordinary_request())


def test_no_decision_denies():
    handle = cedarpy.is_authorized(
        {"principal": 'A::"x"', "action": 'A::"x"', "resource": 'A::"x"', "context": "["}, "", "[]"
    )
    assert handle.decision is cedarpy.Decision.NoDecision
    assert cedar._read(load(PERMIT).cedar, handle).error != ""


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_a_decision_is_remembered_by_exactly_what_the_policies_see(monkeypatch: pytest.MonkeyPatch):
    bundle = load(PERMIT + '@id("f") forbid (principal, action, resource) when { context.interpreter };')
    asked: list[object] = []
    really = decide_module.judge

    def counted(*args: Any) -> Any:
        asked.append(args)
        return really(*args)

    monkeypatch.setattr(decide_module, "judge", counted)
    for at in range(5):
        assert isinstance(decide(bundle, ordinary_request(calls_used=at, device=f"d{at}")), Allow)
    assert len(asked) == 1
    assert isinstance(decide(bundle, ordinary_request(interpreter=True)), Deny)
    assert isinstance(decide(bundle, ordinary_request("agent:other")), Allow)
    assert isinstance(decide(bundle, replace(ordinary_request(), roles=("agent", "operator"))), Allow)
    assert len(asked) == 4


def test_sentences_are_not_remembered_with_the_decision():
    bundle = load(PERMIT + '@id("f") @code("EGRESS_DENIED") forbid (principal, action, resource);')
    first = decide(bundle, ordinary_request(), details=(("EGRESS_DENIED", "One."),))
    second = decide(bundle, ordinary_request(), details=(("EGRESS_DENIED", "Two."),))
    assert (getattr(first, "message", ""), getattr(second, "message", "")) == ("One.", "Two.")


def test_errors_are_not_remembered():
    bundle = load(PERMIT)
    assert verdict_of(bundle, replace(ordinary_request(), roles=())).effect == "error"
    assert len(bundle.verdicts) == 0


@pytest.mark.parametrize("size", [2, 3, 10])
def test_memory_is_bounded(size: int) -> None:
    memory: cedar.Bounded[int] = cedar.Bounded(size)
    for n in range(100):
        memory.put(n, n)
        assert memory.get(n) == n
        assert len(memory) <= size


def test_a_policy_that_takes_the_context_whole_sees_all_of_it():
    bundle = load(
        PERMIT
        + '@id("f") forbid (principal, action, resource) when { [context].contains(context) && context.approved };'
    )
    assert len(bundle.cedar.attributes) == len(ordinary_request().context)
    assert isinstance(decide(bundle, ordinary_request()), Allow)


def test_a_hint_names_the_host_that_would_have_to_be_granted():
    hint = '@id("f") @code("EGRESS_DENIED") @hint("Grant {host} for {program}.") '
    bundle = load(f"{PERMIT}{hint}forbid (principal, action, resource);")
    request = ordinary_request(program="curl", effective_program="curl")
    cases: list[tuple[tuple[tuple[str, str], ...], str]] = [
        ((("EGRESS_DENIED", "No."), ("host", "h.test:22")), "h.test:22"),
        ((), "HOST"),
        ((("host", "\x1b[31m"),), "HOST"),
    ]
    for named, shown in cases:
        decision = decide(bundle, request, details=named)
        assert isinstance(decision, Deny)
        assert decision.hint == f"Grant {shown} for curl."


@pytest.mark.parametrize(
    ("tool", "command"), [("palyra.process.run", "palyra run"), ("palyra.http.fetch", "palyra call")]
)
def test_a_hint_names_the_command_whose_flag_would_help(tool: str, command: str):
    bundle = load_bundle("standard", read_posture("standard"))
    decision = decide(bundle, ordinary_request(tool=tool, hosts_named=1, hosts_denied=1))
    assert isinstance(decision, Deny)
    assert (decision.hint or "").startswith(f"An operator can allow it for this call: {command} --allow-host HOST; ")
