"""Scalar arguments in a policy's sight: typed, normalised, and nothing else of what a caller sends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.model.grant import Allow, Deny
from palyra.policy.bundle import PolicyBundle, PolicyError, load_bundle
from palyra.policy.decide import decide, verdict_of
from palyra.policy.examples import ordinary_request
from palyra.policy.inputs import INPUTS, read_input
from palyra.policy.store import read_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from tests.promises import promise

DOCS_ONLY = """
@id("p") permit (principal, action, resource);
@id("docs-only") forbid (principal, action, resource)
unless { context.input has path && context.input.path like "docs/*" };
"""
TYPES = {"string": str, "integer": int, "boolean": bool}


def load(text: str, examples: str = "") -> PolicyBundle:
    schema = read_posture("standard")["schema.cedarschema"]
    return load_bundle("test", {"a.cedar": text, "schema.cedarschema": schema, "examples.toml": examples})


def asked(**arguments: object):
    return replace(ordinary_request(), input=read_input(arguments))


def test_a_policy_can_look_at_a_path():
    bundle = load(DOCS_ONLY)
    assert isinstance(decide(bundle, asked(path="docs/a.md")), Allow)
    assert isinstance(decide(bundle, asked(path="src/a.py")), Deny)
    assert isinstance(decide(bundle, asked()), Deny)


@promise("policy.normal-paths")
@pytest.mark.parametrize("path", ["docs/../secret", "docs/./../../x", "./docs/../secret", "docs//../secret", "docs/.."])
def test_a_path_cannot_be_talked_below_a_folder(path: str):
    assert isinstance(decide(load(DOCS_ONLY), asked(path=path)), Deny)


@pytest.mark.parametrize("path", ["/srv/x", "//srv/x", "///srv//x", "//srv/./y/../x"])
def test_two_slashes_at_the_beginning_are_one_to_a_policy(path: str):
    """`forbid … when context.input.path like "/srv/*"` did not see //srv/x, which is the same file."""
    assert read_input({"path": path, "cwd": path}) == (("cwd", "/srv/x"), ("path", "/srv/x"))


@promise("policy.normal-paths")
@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/w/secrets/k", "secrets/k"), ("//w//./x/../secrets/k", "secrets/k"), ("/w", "."), ("/w/", "."),
        ("/w/../w/secrets", "secrets"), ("/wide/secrets/k", "/wide/secrets/k"), ("/w/../secrets/k", "/secrets/k"),
        ("secrets/k", "secrets/k"), ("w/secrets", "w/secrets"), ("/", "/"),
        ("../w/secrets", "secrets"), ("x/../../w/./secrets", "secrets"), ("../../../w", "."), ("../wide", "../wide"),
        ("..", ".."), ("..w", "..w"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("workspace", ["/w", "/w/"])
def test_a_file_of_the_workspace_has_one_name_to_a_policy(path: str, seen: str, workspace: str):
    """`forbid … when context.input.path like "secrets/*"` did not see its absolute name, which every tool takes; nor
    the folder that `"cwd": "../w/secrets"` leads to."""
    assert read_input({"path": path, "cwd": path}, workspace) == (("cwd", seen), ("path", seen))


@pytest.mark.parametrize(
    "value",
    [
        {"__entity": {"type": "User", "id": "root"}},
        {"__extn": {"fn": "ip", "arg": "10.0.0.1"}},
        ["docs/a"],
        1,
        True,
        None,
    ],
)
def test_only_a_value_of_its_type_enters(value: object):
    assert read_input({"path": value, "__entity": "x", "other": "y"}) == ()


def test_a_flag_is_no_number_and_a_number_no_flag():
    assert read_input({"timeout_ms": True, "background": 1}) == ()
    assert read_input({"timeout_ms": 5, "background": True}) == (("timeout_ms", 5), ("background", True))


def test_what_is_too_long_to_look_at_is_an_error_only_if_somebody_looks():
    request = asked(url="x" * 2000)
    assert verdict_of(load(DOCS_ONLY), request).effect == "error"
    assert verdict_of(load('@id("p") permit (principal, action, resource);'), request).effect == "allow"


def test_a_decision_is_remembered_with_the_input_it_was_made_for():
    bundle = load(DOCS_ONLY)
    for path, kind in (("docs/a", Allow), ("src/a", Deny), ("docs/a", Allow)):
        assert isinstance(decide(bundle, asked(path=path)), kind)


def test_an_argument_that_may_be_absent_must_be_asked_for_first():
    with pytest.raises(PolicyError, match="policy 'p'"):
        load('@id("p") permit (principal, action, resource) when { context.input.path like "docs/*" };')


def test_an_example_can_name_arguments():
    example = '[[example]]\nname = "e"\nexpect = "{}"\ninput = {{ {} }}\n'
    load(DOCS_ONLY, example.format("allow", 'path = "docs/x"'))
    with pytest.raises(PolicyError, match="expected allow, decided deny"):
        load(DOCS_ONLY, example.format("allow", 'path = "src/x"'))
    with pytest.raises(PolicyError, match="not an argument that policies see"):
        load(DOCS_ONLY, example.format("allow", "nothing = 1"))


def test_the_types_are_those_of_the_tools_own_schemas():
    for spec in BUILTIN_TOOLS:
        for name, schema in spec.input_schema.get("properties", {}).items():
            if name in INPUTS:
                assert TYPES[schema.get("type", "string")] is INPUTS[name], (spec.name, name)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=8) | st.sampled_from(sorted(INPUTS)), st.text(max_size=20) | st.integers()))
def test_whatever_is_sent_a_decision_is_made(arguments: dict[str, object]):
    assert verdict_of(BUNDLE, asked(**{f"{k}": v for k, v in arguments.items()})).effect in ("allow", "deny", "error")


BUNDLE = load(DOCS_ONLY)
