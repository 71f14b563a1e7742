"""A bundle is checked whole before anyone can decide by it, and its errors name file, line and policy."""

from __future__ import annotations

import pytest

from palyra.errors import Reason
from palyra.model.grant import Allow, Deny
from palyra.policy import bundle
from palyra.policy.bundle import PolicyBundle, PolicyError, PolicyInfo, load_bundle, with_local
from palyra.policy.decide import decide
from palyra.policy.examples import ordinary_request
from palyra.policy.store import read_posture

SCHEMA = read_posture("standard")["schema.cedarschema"]
PERMIT = '@id("p")\npermit (principal, action, resource);\n'
FORBID = """
@id("f")
@code("OUTSIDE_WORKSPACE")
@reason("No.")
@hint("Do not.")
forbid (principal, action, resource) when { context.outside_workspace };
"""


def load(*texts: str, examples: str = "", schema: str = SCHEMA) -> PolicyBundle:
    files = {f"{chr(97 + at)}.cedar": text for at, text in enumerate(texts)}
    return load_bundle("test", {**files, "schema.cedarschema": schema, "examples.toml": examples})


def refusal(*texts: str, examples: str = "", schema: str = SCHEMA) -> str:
    with pytest.raises(PolicyError) as caught:
        load(*texts, examples=examples, schema=schema)
    return str(caught.value)


def test_a_bundle_knows_its_policies_by_id():
    bundle = load(PERMIT, FORBID)
    assert bundle.index == {
        "f": PolicyInfo(
            id="f",
            effect="forbid",
            code=Reason.OUTSIDE_WORKSPACE,
            reason="No.",
            hint="Do not.",
            file="b.cedar",
            line=2,
        ),
        "p": PolicyInfo(id="p", effect="permit", file="a.cedar", line=1),
    }
    assert bundle.cedar.attributes == ("outside_workspace",)


def test_the_digest_is_of_the_contents():
    assert load(PERMIT).digest == load(PERMIT).digest
    assert load(PERMIT) == load(PERMIT)
    different = {
        load(PERMIT).digest,
        load(PERMIT + "\n").digest,
        load(PERMIT, examples="# x\n").digest,
        load(PERMIT, schema=SCHEMA + "\n").digest,
        load("", PERMIT).digest,
    }
    assert len(different) == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("permit (principal, action, resource);", 'b.cedar:1: The policy has no @id("…").'),
        ("@id permit (principal, action, resource);", 'b.cedar:1: The policy has no @id("…").'),
        ("\n" + PERMIT, "b.cedar:2: policy 'p': The @id is already used, at a.cedar:1."),
        ('@id("a b") permit (principal, action, resource);', "b.cedar:1: policy 'a b': An @id has letters"),
        ('@id("x") @code("NOPE") permit (principal, action, resource);', "b.cedar:1: policy 'x': @code('NOPE') is not"),
        (
            '@id("x") @cod("BUSY") permit (principal, action, resource);',
            "b.cedar:1: policy 'x': Unknown annotation @cod",
        ),
        ('\n@id("x") permit (principal, action);', "b.cedar:2: This is not valid Cedar: "),
        (
            '@id("x") permit (principal == ?principal, action, resource);',
            "b.cedar:1: This is not valid Cedar: templates",
        ),
        (
            '@id("x") permit (principal, action, resource) when { context.nope };',
            "b.cedar:1: policy 'x': attribute `nope`",
        ),
        (
            '@id("x") permit (principal, action, resource) when { context.hour == "7" };',
            "b.cedar:1: policy 'x': the types",
        ),
        (
            '@id("x") permit (principal, action == Action::"rm", resource);',
            "b.cedar:1: policy 'x': unrecognized action",
        ),
        ('@id("x") permit (principal is Robot, action, resource);', "b.cedar:1: policy 'x': unrecognized entity type"),
    ],
)
def test_a_bad_policy_is_named(text: str, message: str):
    assert refusal(PERMIT, text).startswith(message)


def test_a_thousand_levels_of_nesting_do_not_end_the_process():
    deep = '@id("x") permit (principal, action, resource) when { ' + "(" * 1000 + "true" + ")" * 1000 + " };"
    assert refusal(deep) == "a.cedar:1: Brackets are nested deeper than 32."


def test_a_schema_is_capped_like_a_policy():
    deep = SCHEMA + "entity Deep { a: " + "Set<" * 500 + "Long" + ">" * 500 + " };"
    assert "deeper than" in refusal(PERMIT, schema=deep)


def test_a_schema_that_does_not_describe_our_requests_is_refused():
    """Otherwise strict validation would prove something about requests that are never made."""
    assert refusal(PERMIT, schema="").startswith("schema.cedarschema: The schema ")
    assert refusal(PERMIT, schema=SCHEMA.replace("hour: Long", "hour: String")).startswith(
        "schema.cedarschema: The sch"
    )
    assert refusal(PERMIT, schema="entity User {;").startswith("schema.cedarschema:")


def test_a_misnamed_file_is_refused_because_its_forbids_would_be_lost():
    with pytest.raises(PolicyError, match=r"guards\.cedar\.txt: A bundle holds"):
        load_bundle("test", {"guards.cedar.txt": FORBID, "schema.cedarschema": SCHEMA})


def test_every_example_must_decide_as_written():
    good = (
        '[[example]]\nname = "out"\nexpect = "deny"\ncode = "OUTSIDE_WORKSPACE"\nfacts = { outside_workspace = true }\n'
    )
    assert load(PERMIT, FORBID, examples=good).examples == good
    message = "examples.toml: Example 'out': expected deny, decided allow (p)."
    assert refusal(PERMIT, examples=good) == message


def test_local_policies_stand_beside_the_bundles_own():
    bundle = load(PERMIT)
    merged = with_local(bundle, {"mine.cedar": FORBID})
    assert (bundle.name, merged.name) == ("test", "test+local")
    assert list(merged.policies) == ["a.cedar", "local/mine.cedar"]
    assert merged.digest != bundle.digest
    assert isinstance(decide(merged, ordinary_request(outside_workspace=True)), Deny)
    assert decide(bundle, ordinary_request(outside_workspace=True)) == Allow(policies=("p",))


def test_a_local_policy_replaces_the_one_with_its_id_and_other_lines_stay():
    softer = '@id("f") forbid (principal is Agent, action, resource) when { context.outside_workspace };'
    merged = with_local(load(FORBID + PERMIT), {"mine.cedar": softer})
    assert isinstance(decide(merged, ordinary_request("user:a", outside_workspace=True)), Allow)
    assert isinstance(decide(merged, ordinary_request(outside_workspace=True)), Deny)
    assert merged.index["f"].file == "local/mine.cedar"
    assert merged.index["p"].line == load(FORBID + PERMIT).index["p"].line == 7


def test_a_final_policy_cannot_be_replaced():
    bundle = load('@id("w") @final("it is a wall.") forbid (principal, action, resource);')
    with pytest.raises(PolicyError) as caught:
        with_local(bundle, {"mine.cedar": '\n@id("w") permit (principal, action, resource);'})
    assert str(caught.value) == "local/mine.cedar:2: policy 'w': This policy cannot be replaced: it is a wall."


def test_local_examples_are_checked_with_the_local_policies():
    wrong = '[[example]]\nname = "x"\nexpect = "deny"\n'
    with pytest.raises(PolicyError, match=r"local/examples\.toml: Example 'x': expected deny, decided allow"):
        with_local(load(PERMIT), {"examples.toml": wrong})


def test_a_local_schema_is_refused_and_comments_change_nothing():
    bundle = load(PERMIT)
    with pytest.raises(PolicyError, match="The schema is Palyra's own"):
        with_local(bundle, {"schema.cedarschema": SCHEMA})
    assert with_local(bundle, {"mine.cedar": "// nothing yet\n", "examples.toml": "# none\n"}) is bundle


def test_a_policy_that_our_own_reading_missed_stops_the_load(monkeypatch):
    """It would be left out without a word, and what it forbids would be allowed."""
    found = bundle.find_policies
    monkeypatch.setattr(bundle, "find_policies", lambda file, text: found(file, text)[:1])
    assert refusal(PERMIT + FORBID) == "a.cedar: Found 1 policies where Cedar found 2."
