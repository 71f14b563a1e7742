"""What is plainly right is right to the validator too, whatever the schema and the value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.protocol.plain import NO_NUL, plainly_fits
from palyra.protocol.process_schema import PROCESS_INPUT
from palyra.protocol.schema import compile_schema

COUNT = st.integers(0, 4)
TEXTS = st.text(st.sampled_from("ab\0\nä😀"), max_size=5)
NAMES = ["a", "b", "ä"]
STRINGS = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": COUNT,
        "maxLength": COUNT,
        "x-maxBytes": COUNT,
        "pattern": st.sampled_from([NO_NUL, "^a*$"]),
        "description": st.just("d"),
        "enum": st.just(["a"]),
    },
)
INTEGERS = st.fixed_dictionaries({"type": st.just("integer")}, optional={"minimum": COUNT, "maximum": COUNT})
LEAVES = STRINGS | INTEGERS | st.sampled_from([{"type": "boolean"}, {"type": ["string", "null"]}, {}, True, False])


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.fixed_dictionaries(
        {"type": st.just("array")}, optional={"items": inner, "maxItems": COUNT, "minItems": COUNT}
    )
    objects = st.fixed_dictionaries(
        {"type": st.just("object")},
        optional={
            "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
            "required": st.lists(st.sampled_from(NAMES), unique=True, max_size=2),
            "additionalProperties": st.sampled_from([True, False, {"type": "string"}]),
        },
    )
    return lists | objects


SCHEMAS = st.recursive(LEAVES, _compound, max_leaves=6).filter(lambda schema: isinstance(schema, dict))
SCALARS = TEXTS | st.integers(-1, 5) | st.booleans() | st.none() | st.floats(0, 3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)


@given(SCHEMAS, VALUES)
def test_a_yes_is_a_yes_of_the_validator(schema, value):
    if plainly_fits(schema, value):
        assert compile_schema(schema).validator.is_valid(value)
        assert not isinstance(value, float)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ({"command": "ls"}, True),
        ({"command": "git", "args": ["log", "-1"], "timeout_ms": 5, "background": True, "stdin": "x"}, True),
        ({}, False),
        ({"command": ""}, False),
        ({"command": "l\0s"}, False),
        ({"command": "x" * 257}, False),
        ({"command": "ls", "args": ["x"] * 129}, False),
        ({"command": "ls", "args": ["x", 1]}, False),
        ({"command": "ls", "args": "x"}, False),
        ({"command": "ls", "timeout_ms": 1.0}, False),
        ({"command": "ls", "timeout_ms": True}, False),
        ({"command": "ls", "timeout_ms": 0}, False),
        ({"command": "ls", "background": 1}, False),
        ({"command": "ls", "surprise": 1}, False),
        ({"command": "lä"}, False),
        ({"command": "ls", "env": {}}, False),
        (["ls"], False),
        ("ls", False),
        (None, False),
    ],
)
def test_what_is_plain_of_a_programs_input(value, plain):
    assert plainly_fits(PROCESS_INPUT, value) is plain


@pytest.mark.parametrize("schema", [None, True, [], "string", {"type": "nothing"}, {"type": ["string"]}, {"const": 1}])
def test_a_schema_that_is_not_plain_fits_nothing_plainly(schema):
    for value in (1, "x", {}, [], None):
        assert not plainly_fits(schema, value)
