"""A slice of the policies answers exactly as all of them do, whatever the request, errors included."""

from __future__ import annotations

import cedarpy
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.policy import cedar
from palyra.policy.bundle import PolicyBundle, load_bundle
from palyra.policy.examples import ordinary_request
from palyra.policy.request import Request
from palyra.policy.slices import conjuncts, halve
from palyra.policy.store import load_posture, read_posture

ODD = """
@id("o1") forbid (principal is Agent, action, resource)
when { context.hour * 9223372036854775807 > 0 && context.found };
@id("o2") forbid (principal, action, resource) when { context.found && context.hour * 9223372036854775807 > 0 };
@id("o3") permit (principal in Role::"developer", action, resource in ToolGroup::"process")
unless { context.listed || context.hour > 5 };
@id("o4") permit (principal, action == Action::"tool::execute", resource == Tool::"palyra.echo");
@id("o5") forbid (principal, action, resource)
when { if context.found then context.device == "x" else context.granted };
@id("o6") permit (principal, action, resource)
when { !(context.found && context.listed) } when { context.tier like "C*" };
@id("o7") permit (principal, action, resource) when { [context.found, false].contains(context.approved) };
@id("o8") forbid (principal, action, resource) when { context has found && context == context && context.interpreter };
"""


def whole(bundle: PolicyBundle, request: Request) -> tuple[bool, list[str], bool]:
    """What Cedar says when it is given everything: every policy as text, every attribute."""
    text = "\n".join(bundle.policies.values())
    said = cedarpy.is_authorized(request.cedar, text, cedar._entity_list(request))
    if said.diagnostics.errors:
        return False, [], True
    return said.allowed, sorted(bundle.cedar.ids[at] for at in said.diagnostics.reasons), False


def load(text: str) -> PolicyBundle:
    return load_bundle("test", {"a.cedar": text, "schema.cedarschema": read_posture("standard")["schema.cedarschema"]})


SLICED = [load_posture(name) for name in ("locked", "standard", "developer")] + [load(ODD)]
FACT_VALUES = {
    **dict.fromkeys(
        "interpreter runs_code inline_code listed found agent_writable outside_workspace granted granted_interpreters "
        "granted_egress granted_tier sensitive cap_secrets_read approved".split(),
        st.booleans(),
    ),
    "tier": st.sampled_from(["", "B", "C"]),
    "egress": st.sampled_from(["", "none", "strict"]),
    "hosts_denied": st.integers(0, 2),
    "hour": st.integers(0, 7),
    "device": st.sampled_from(["", "x"]),
}


@settings(max_examples=150, deadline=None)
@given(
    facts=st.fixed_dictionaries({}, optional=FACT_VALUES),
    principal=st.sampled_from(["agent:demo", "user:alice"]),
    tool=st.sampled_from(["palyra.process.run", "palyra.echo"]),
    bundle=st.sampled_from(SLICED),
)
def test_a_slice_answers_as_the_whole_does_errors_included(facts, principal, tool, bundle):
    request = ordinary_request(principal, tool, **facts)
    answer = cedar.evaluate(bundle.cedar, [request])[0]
    assert (answer.allowed, list(answer.policies), bool(answer.error)) == whole(bundle, request)


def test_conditions_are_cut_in_the_order_of_evaluation_and_only_flags_are_asked_early():
    tree = cedar.parse_tree(
        "permit (principal, action, resource) when { context.found && context.listed && context.hour > 3 }"
        " unless { context.approved || context.granted };"
    )["policy0"]
    assert [piece["kind"] for piece in conjuncts(tree["conditions"])] == ["when"] * 3 + ["unless"] * 2
    halves = halve(tree)
    assert [len(half["conditions"]) for half in (halves.early, halves.late)] == [2, 3]


def test_what_a_slice_keeps_is_bounded():
    bundle = load_posture("standard")
    for at in range(cedar.MAX_CACHED + 10):
        bundle.cedar.slices.put(at, cedar._slice(bundle.cedar, ordinary_request()))
    assert len(bundle.cedar.slices) <= cedar.MAX_CACHED
    assert len(bundle.cedar.selections) <= cedar.MAX_SELECTIONS
