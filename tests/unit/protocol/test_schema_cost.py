"""What a schema may cost over a value: two small texts of strangers must not hold up everybody's calls."""

from __future__ import annotations

import pytest

from palyra.errors import Reason, Rejected
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.schema import check_arguments, compile_schema
from palyra.protocol.schema_cost import cost_of
from tests.promises import promise

MANY = [0] * 60_000


def listed(items):
    return {"type": "object", "properties": {"a": {"type": "array", **items}}}


@promise("skills.schema-cost")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (listed({"items": {"anyOf": [*({"const": -at - 1} for at in range(3000)), {}]}}), {"a": MANY}),
        (listed({"allOf": [{"not": {"contains": {"const": at + 1}}} for at in range(1500)]}), {"a": MANY}),
        (listed({"items": {"enum": [*({"k": at} for at in range(3000)), 0]}}), {"a": MANY}),
        (
            {"type": "object", "patternProperties": {f"(a|a?)+b{at}": {} for at in range(1000)}},
            {f"{'a' * 100}{at}": 1 for at in range(4000)},
        ),
        (
            {
                "type": "object",
                "properties": {"a": {"allOf": [{"$ref": "#/$defs/x"}] * 1000}},
                "$defs": {"x": {"not": {"pattern": "(a|b)*[^a]{20}"}}},
            },
            {"a": "a" * 400_000},
        ),
    ],
    ids=["alternatives", "contains", "enumeration", "pattern-names", "patterns"],
)
def test_a_small_schema_and_a_large_value_do_not_hold_the_engine_up(schema, value):
    """Each of these took from three seconds to minutes."""
    compiled = compile_schema(schema)
    with pytest.raises(Rejected, match="too many parts for its schema") as refused:
        check_arguments(compiled, value)
    assert refused.value.reason is Reason.BAD_ARGUMENTS


@promise("skills.schema-cost")
def test_a_pattern_that_looks_ahead_has_no_bound_and_is_no_pattern_here():
    with pytest.raises(ValueError, match="not a JSON Schema"):
        compile_schema({"type": "object", "properties": {"s": {"type": "string", "pattern": "(?=(a+)+$)b"}}})


def test_a_large_value_of_an_ordinary_schema_is_looked_at():
    row = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 40}}}
    compiled = compile_schema(listed({"items": row, "maxItems": 20_000}))
    check_arguments(compiled, {"a": [{"id": at, "name": "x"} for at in range(20_000)]})


def test_the_width_is_of_what_can_look_at_one_place():
    each = {f"p{at}": {"type": "string"} for at in range(500)}
    assert cost_of({"type": "object", "properties": each}).width == 1
    assert cost_of({"type": "object", "allOf": [{"properties": each}, {"additionalProperties": {}}]}).width == 3
    assert cost_of({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{}, {}, {}]}}}).width == 5


def test_our_own_tools_are_never_too_wide():
    assert max(cost_of(tool.input_schema).width for tool in BUILTIN_TOOLS) <= 15


def test_a_schema_of_trees_is_not_taken_for_endless():
    tree = {
        "type": "object",
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}},
        "additionalProperties": False,
    }
    value = {}
    for _ in range(50):
        value = {"left": value, "right": {}}
    assert cost_of(tree).width <= 3
    check_arguments(compile_schema(tree), value)
