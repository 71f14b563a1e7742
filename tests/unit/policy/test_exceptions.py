"""An exception allows the call it was made for and nothing that its scope does not say; exceptions add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.model.grant import Allow, Ask, Deny
from palyra.policy.bundle import PolicyBundle, PolicyError, with_local
from palyra.policy.decide import decide
from palyra.policy.examples import ordinary_request
from palyra.policy.exceptions import (
    SCOPES,
    check_exception,
    is_liftable,
    scopes_for,
    write_exception,
)
from palyra.policy.load import is_exception_file
from palyra.policy.reach import Reach
from palyra.policy.request import EXECUTE_UNSANDBOXED, INLINE, Request
from palyra.policy.scan import find_policies
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from tests.promises import promise

pytestmark = promise("policy.exception-scope")

STANDARD, LOCKED = load_posture("standard"), load_posture("locked")
NAMES = tuple(f"allow.01ARZ3NDEKTSV4RRFFQ69G5FA{end}" for end in "VWX")
NO_RM = '@id("local.no-rm") @reason("No.") forbid (principal, action, resource) when { context.program == "rm" };'


def asked(who: str = "agent:demo", **facts: Any) -> Request:
    facts = {"program": "wget", "listed": False, "input_sha256": "a" * 64, "run": "one"} | facts
    return ordinary_request(who, **{"programs": f'[["{facts["program"]}","/usr/bin/{facts["program"]}"]]'} | facts)


def allowing(bundle: PolicyBundle, request: Request, scope: Any, name: str = NAMES[0]) -> PolicyBundle:
    made = write_exception(bundle, request, scope, name=name)
    return with_local(bundle, {f"{name}.cedar": made.text})


OTHERS = {
    "another input": asked(input_sha256="b" * 64),
    "another run": asked(run="two"),
    "another input of another run": asked(input_sha256="b" * 64, run="two"),
    "another principal": asked("agent:other"),
    "a user of the same name": asked("user:demo"),
    "another program": asked(program="curl", input_sha256="b" * 64),
    "the same name elsewhere": asked(programs='[["wget","/opt/wget"]]'),
    "one more program": asked(programs='[["find","/usr/bin/find"],["wget","/usr/bin/wget"]]'),
    "the program as code": asked(runs_code=True),
    "a host that is not granted": asked(hosts_denied=1),
    "a path outside": asked(outside_workspace=True),
    "another egress mode": asked(egress="none", granted_egress=True),
    "another tier": asked(tier="B", granted_tier=True),
    "a skill's call": asked(skill="weather"),
    "a program that is not there": asked(found=False),
    "a program the agent wrote": asked(agent_writable=True),
}
COVERED = {
    "call": {"another run"},
    "program": {"another run", "another input", "another input of another run"},
    "run": {"another input"},
    "always": {
        *("another run", "another input", "another input of another run", "another principal"),
        "a user of the same name",
    },
}


@pytest.mark.parametrize("scope", SCOPES)
def test_an_exception_covers_what_its_scope_says_and_nothing_else(scope: str):
    bundle = allowing(STANDARD, asked(), scope)
    assert isinstance(decide(bundle, asked()), Allow)
    covered = {name for name, request in OTHERS.items() if isinstance(decide(bundle, request), Allow)}
    assert covered == COVERED[scope]


def test_exceptions_add_up():
    bundle, requests = STANDARD, (asked(), asked(input_sha256="b" * 64), asked(program="curl", input_sha256="c" * 64))
    for name, request in zip(NAMES, requests, strict=True):
        bundle = allowing(bundle, request, "call", name)
    assert all(isinstance(decide(bundle, request), Allow) for request in requests)
    assert isinstance(decide(bundle, asked(input_sha256="d" * 64)), Deny)


def test_the_text_of_a_guard_stays_the_packages_own():
    made = write_exception(STANDARD, asked(runs_code=True), "call", name=NAMES[0])
    assert made.lifts == ("guard.10-interpreter", "guard.20-executable-not-listed")
    assert "forbid" not in made.text
    bundle = with_local(STANDARD, {f"{NAMES[0]}.cedar": made.text})
    assert bundle.text_of("guard.10-interpreter") == STANDARD.text_of("guard.10-interpreter")
    assert bundle.index[NAMES[0]].lifts == made.lifts


def test_an_exception_lifts_only_the_guards_that_refused_its_call():
    """`find -exec wget`, allowed, does not make `find` with a program of the agent's choice allowed."""
    bundle = allowing(STANDARD, asked(), "program")
    refused = decide(bundle, asked(runs_code=True))
    assert isinstance(refused, Deny)
    assert refused.policies == ("guard.10-interpreter",)


def test_nothing_lifts_a_wall():
    for facts in ({"agent_writable": True}, {"found": False}, {"found": False, "listed": True}, {"programs": ""}):
        assert scopes_for(STANDARD, asked(**facts)) == ()
        assert not is_liftable(STANDARD, asked(**facts), decide(STANDARD, asked(**facts)).policies)
    own = with_local(STANDARD, {"a.cedar": NO_RM.replace("@reason", '@final("Never.") @reason')})
    with pytest.raises(PolicyError, match=r"local\.no-rm cannot be lifted: Never\."):
        write_exception(own, asked(program="rm", listed=True), "call")
    lifting = '@id("x") @lifts("guard.22-executable-agent-writable") permit (principal, action, resource);'
    assert isinstance(decide(with_local(STANDARD, {"a.cedar": lifting}), asked(agent_writable=True)), Deny)


@pytest.mark.parametrize(
    ("facts", "guard"),
    [
        ({"listed": True, "hosts_denied": 1}, "guard.40-host-denied"),
        ({"listed": True, "outside_workspace": True}, "guard.30-outside-workspace"),
        (
            {"listed": True, "has_used_secret": True, "has_received_outside_content": True, "network": True},
            "guard.65-secret-after-outside-content",
        ),
    ],
)
def test_where_the_facts_do_not_tell_one_call_from_another_only_the_call_itself_is_allowed(facts: Any, guard: str):
    assert scopes_for(STANDARD, asked(**facts)) == ("call",)
    with pytest.raises(PolicyError, match=f"{guard} looks at .*which is not the same for every call"):
        write_exception(STANDARD, asked(**facts), "program")
    assert write_exception(STANDARD, asked(**facts), "call").lifts == (guard,)


def test_nothing_lets_a_program_run_without_a_sandbox():
    request = replace(asked(), action=EXECUTE_UNSANDBOXED)
    assert scopes_for(STANDARD, request) == ()


def test_a_module_in_a_calls_input_is_allowed_as_it_is_and_no_other():
    request = replace(ordinary_request(tool="palyra.plugin.run", tier="A", input_sha256="a" * 64), action=INLINE)
    assert scopes_for(STANDARD, request) == ("call",)
    assert isinstance(decide(allowing(STANDARD, request, "call"), request), Allow)
    assert isinstance(decide(allowing(STANDARD, request, "call"), request.with_context(input_sha256="b")), Deny)


def test_where_nothing_permits_an_exception_permits_and_lifts_nothing():
    made = write_exception(LOCKED, asked(listed=True), "call", name=NAMES[0])
    assert (made.lifts, "@lifts" in made.text) == ((), False)
    bundle = with_local(LOCKED, {f"{NAMES[0]}.cedar": made.text})
    assert isinstance(decide(bundle, asked(listed=True)), Allow)
    assert isinstance(decide(bundle, asked(listed=True, input_sha256="b" * 64)), Deny)


@pytest.mark.parametrize("more", ["writes_obeyed", "background", "network", "egress_raw"])
@pytest.mark.parametrize("tool", ["palyra.fs.write", "palyra.process.run"])
@pytest.mark.parametrize("scope", ["program", "run", "always"])
def test_a_wider_exception_covers_no_call_that_does_more(scope: str, tool: str, more: str):
    """In posture locked no guard asks about `.npmrc` behind an exception that was made for `notes.txt`."""
    facts = {"input_sha256": "a" * 64, "run": "one"}
    request = asked() if tool == "palyra.process.run" else ordinary_request(tool=tool, **facts)
    bundle = allowing(LOCKED, request, scope)
    assert isinstance(decide(bundle, request.with_context(input_sha256="b" * 64)), Allow)
    assert isinstance(decide(bundle, request.with_context(**{"input_sha256": "b" * 64, more: True})), Deny)
    doing = request.with_context(**{more: True})
    assert isinstance(decide(allowing(LOCKED, doing, scope), doing), Allow)


def test_a_host_that_the_operators_own_flags_grant_needs_no_other_exception():
    request = asked()
    with_host = asked(network=True, granted_egress=True)
    assert isinstance(decide(allowing(STANDARD, request, "program"), with_host), Allow)


def test_what_asks_a_person_can_be_allowed_for_good():
    request = asked(listed=True, tier="B")
    assert isinstance(decide(STANDARD, request), Ask)
    assert isinstance(decide(allowing(STANDARD, request, "program"), request), Allow)


def test_a_guard_that_came_since_the_refusal_is_not_lifted():
    later = with_local(STANDARD, {"a.cedar": NO_RM})
    with pytest.raises(PolicyError, match=r"Since this call was refused, local\.no-rm forbids it too"):
        write_exception(later, asked(program="rm"), "call", then=frozenset({"guard.20-executable-not-listed"}))


def test_what_is_allowed_already_needs_no_exception():
    with pytest.raises(PolicyError, match="allow this call"):
        write_exception(allowing(STANDARD, asked(), "call"), asked(), "call")


def test_a_name_that_no_policy_bears_lifts_nothing_and_hurts_nothing():
    text = '@id("x") @lifts("guard.99-gone") permit (principal, action, resource);'
    assert isinstance(decide(with_local(STANDARD, {"a.cedar": text}), asked()), Deny)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('@id("x") @lifts("y") forbid (principal, action, resource);', "Only a permit lifts"),
        ('@id("x") @lifts("y") permit (principal is Agent, action, resource);', "with =="),
        ('@id("x") @lifts("y") permit (principal, action, resource in ToolGroup::"process");', "with =="),
    ],
)
def test_lifting_is_for_permits_whose_scope_is_plain(text: str, message: str):
    with pytest.raises(PolicyError, match=message):
        with_local(STANDARD, {"a.cedar": text})


def test_conditions_of_every_kind_are_part_of_the_exception():
    text = (
        '@id("x") @lifts("guard.20-executable-not-listed") permit (principal, action, '
        'resource == Tool::"palyra.process.run") '
        'when { context.program == "wget" || context.program == "curl" } unless { context.hour < 12 };'
    )
    bundle = with_local(STANDARD, {"a.cedar": text})
    assert isinstance(decide(bundle, asked(hour=12)), Allow)
    assert isinstance(decide(bundle, asked(hour=11)), Deny)
    assert isinstance(decide(bundle, asked(program="nmap", hour=12)), Deny)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f'@id("{NAMES[1]}") permit (principal, action, resource);',
        f'@id("{NAMES[0]}") forbid (principal, action, resource);',
        f'@id("{NAMES[0]}") permit (principal, action, resource); @id("y") forbid (principal, action, resource);',
        "permit (;",
    ],
)
def test_a_file_of_an_exceptions_name_holds_that_exception_and_nothing_else(text: str):
    """A forbid in it would be lost when the file is left out."""
    with pytest.raises(PolicyError):
        check_exception(f"{NAMES[0]}.cedar", text)
    with pytest.raises(PolicyError):
        load_posture("standard", {f"{NAMES[0]}.cedar": text})


def test_only_names_that_we_make_are_exceptions_files():
    assert is_exception_file(f"{NAMES[0]}.cedar")
    for name in ("allow.cedar", "allow.mine.cedar", f"{NAMES[0]}.cedar~", f"x{NAMES[0]}.cedar", f"{NAMES[0]}.cedar\n"):
        assert not is_exception_file(name)


def test_a_tool_that_an_exception_allows_is_listed():
    hide = '@id("h") forbid (principal is Agent, action == Action::"tool::execute", resource == Tool::"palyra.echo");'
    echo = next(spec for spec in BUILTIN_TOOLS if spec.name == "palyra.echo")
    bundle = with_local(STANDARD, {"a.cedar": hide})
    request = ordinary_request(tool="palyra.echo", input_sha256="a" * 64)
    assert not Reach(bundle).could(request.principal, echo)
    assert Reach(allowing(bundle, request, "call")).could(request.principal, echo)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_no_program_name_can_break_out_of_the_exception(name: str):
    hostile = f'"}};\\\n@id("x") permit (principal, action, resource);//{name}'
    request = asked(program=hostile, programs=hostile)
    made = write_exception(STANDARD, request, "program", name=NAMES[0])
    assert len(find_policies("made", made.text)) == 1
    bundle = with_local(STANDARD, {f"{NAMES[0]}.cedar": made.text})
    assert isinstance(decide(bundle, request), Allow)
    assert isinstance(decide(bundle, asked()), Deny)
