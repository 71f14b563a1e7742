"""Examples are read strictly: a typing error in one must not make it pass."""

from __future__ import annotations

import pytest

from palyra.errors import Reason
from palyra.policy.examples import Example, ordinary_request, parse_examples
from palyra.policy.scan import PolicyError


def test_an_example_is_an_ordinary_call_with_its_own_facts():
    text = """
[[example]]
name = "bash"
expect = "deny"
code = "INTERPRETER_DENIED"
policy = "guard.10-interpreter"
principal = "user:alice"
facts = { program = "bash", interpreter = true }
"""
    assert parse_examples("e.toml", text) == (
        Example(
            name="bash",
            expect="deny",
            code=Reason.INTERPRETER_DENIED,
            policy="guard.10-interpreter",
            request=ordinary_request("user:alice", program="bash", interpreter=True),
        ),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("example = 1", r"holds \[\[example\]\]"),
        ("[[exampel]]\nname = 'x'", r"holds \[\[example\]\]"),
        ("[[example]]\nexpect = 'allow'", "Example 1 has no name"),
        ("[[example]]\nname = 'x'\nexpect = 'maybe'", "expect is allow, ask or deny"),
        ("[[example]]\nname = 'x'\nexpect = 'deny'\ncod = 'BUSY'", "unknown key 'cod'"),
        ("[[example]]\nname = 'x'\nexpect = 'deny'\ncode = 'NOPE'", "'NOPE' is not a reason"),
        ("[[example]]\nname = 'x'\nexpect = 'deny'\nfacts = { interpretr = true }", "'interpretr' is not an attribute"),
        (
            "[[example]]\nname = 'x'\nexpect = 'deny'\nfacts = { interpreter = 1 }",
            "attribute interpreter is missing or",
        ),
        ("[[example]]\nname = 'x'\nexpect = 'deny'\nfacts = 1", "'facts' is not an attribute"),
        ("[[example]]\nname = 'x'\nexpect = 'deny'\nprincipal = 'robot:x'", "neither user:NAME nor agent:NAME"),
        ("[[example]]\nname = 'x'\nexpect = 'deny'\nroles = 'agent'", "roles is a list of names"),
        ("[[example]]\nname = 'x'\nexpect = 'deny'\ntool = 1", "tool is a string"),
        ("[[example", "This is not TOML"),
        ("a = " + "[" * 5000, "This is not TOML"),
    ],
)
def test_a_bad_example_is_refused(text: str, message: str):
    with pytest.raises(PolicyError, match=message):
        parse_examples("e.toml", text)
