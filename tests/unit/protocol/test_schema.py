"""What is wrong with an input is said by the schema's side alone: no sentence repeats what the caller gave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Rejected
from palyra.protocol.process_schema import PROCESS_INPUT
from palyra.protocol.schema import NO_FIT, check_arguments, compile_schema

TOKEN = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
COMPILED = compile_schema(PROCESS_INPUT)


@pytest.mark.parametrize(
    "value",
    [
        {"command": TOKEN + "\0"},
        {"command": "ls", "args": TOKEN},
        {"command": "ls", "env": {"TZ": [TOKEN]}},
        {"command": "ls", "env": {"TZ": TOKEN + "\0"}},
        {"command": "ls", "env": {TOKEN + "-": "x"}},
        {"command": "ls", "env": {TOKEN: 1}},
        {"command": "ls", TOKEN: 1},
        {"command": "ls", "lifetime": TOKEN},
        {"command": "ls", "timeout_ms": TOKEN},
    ],
)
def test_a_secret_in_a_wrong_argument_is_not_repeated(value):
    with pytest.raises(Rejected) as caught:
        check_arguments(COMPILED, value)
    assert TOKEN not in repr((caught.value.detail, caught.value.hint, caught.value.fields))


def test_the_sentences_still_say_what_is_wrong():
    with pytest.raises(Rejected) as caught:
        check_arguments(COMPILED, {"args": 1, "surprise": 1, "lifetime": "x"})
    assert set(caught.value.fields) == {
        ("", "command is missing"),
        ("", "unknown key surprise"),
        ("args", "not of type array"),
        ("lifetime", "not one of run_owned, detached"),
    }


def test_bad_arguments_come_with_a_path_and_a_sentence_per_error():
    """In the message itself: most doors show nothing else."""
    with pytest.raises(Rejected) as caught:
        check_arguments(COMPILED, {"command": "ls\0", "surprise": 1, "timeout_ms": 1.5})
    assert caught.value.detail == (
        "unknown key surprise; command: holds a NUL; timeout_ms: a fraction where an integer is expected."
    )


def refusal_of(value, **schema):
    with pytest.raises(Rejected) as caught:
        check_arguments(compile_schema(schema), value)
    return caught.value.detail


def test_what_names_the_mistake_stands_before_what_only_says_that_there_is_one():
    either = [{"required": ["text"], "minProperties": 1}, {"required": ["base64"]}]
    told = refusal_of({"content": "x"}, properties={"text": {}, "base64": {}}, additionalProperties=False, oneOf=either)
    assert told == "unknown key content; The input: does not fit the schema's oneOf."


EITHER = [{"required": ["text"]}, {"required": ["base64"]}]


@pytest.mark.parametrize(
    ("value", "schema", "told"),
    [
        ({}, {"oneOf": EITHER}, "The input: needs exactly one of text, base64."),
        ({"text": "", "base64": ""}, {"oneOf": EITHER}, "The input: needs exactly one of text, base64."),
        ({}, {"anyOf": EITHER}, "The input: needs at least one of text, base64."),
        ({"a": 1, "b": 1}, {"not": {"required": ["a", "b"]}}, "The input: a and b do not go together."),
        ({"a": 1}, {"not": {"required": ["a"]}}, "The input: does not fit the schema's not."),
        ({"a": {}}, {"properties": {"a": {"oneOf": EITHER}}}, "a: needs exactly one of text, base64."),
        ({}, {"$ref": "#/$defs/x", "$defs": {"x": {"oneOf": EITHER}}}, "The input: needs exactly one of text, base64."),
        ({}, {"$ref": "urn:x", "$defs": {"x": {"$id": "urn:x", "oneOf": EITHER}}}, f"The input: {NO_FIT} oneOf."),
    ],
)
def test_which_keys_belong_together_is_said(value, schema, told):
    assert refusal_of(value, **schema) == told


def test_of_many_errors_eight_are_told():
    with pytest.raises(Rejected) as caught:
        check_arguments(COMPILED, {"command": "ls", "args": [1] * 20})
    assert (len(caught.value.fields), caught.value.detail.endswith("args/15: not of type string (12 more).")) == (
        8,
        True,
    )


KEYWORDS = {
    "type": "string", "enum": ["a"], "const": "a", "pattern": "^a$", "minLength": 50, "maxLength": 1, "minimum": 5,
    "maximum": 1, "exclusiveMinimum": 5, "exclusiveMaximum": 1, "multipleOf": 7, "minItems": 9, "maxItems": 0,
    "uniqueItems": True, "minProperties": 9, "maxProperties": 0, "required": ["zz"], "additionalProperties": False,
    "propertyNames": {"maxLength": 1}, "not": {}, "anyOf": [{"const": 1}], "oneOf": [{}, {}], "x-maxBytes": 1,
    "contains": {"const": "q"}, "unevaluatedProperties": False, "unevaluatedItems": False,
}  # fmt: skip


@given(st.sampled_from(sorted(KEYWORDS)), st.sampled_from([TOKEN, [TOKEN, TOKEN], {TOKEN: TOKEN}, {"a": TOKEN}, 3]))
def test_no_keywords_sentence_repeats_the_value(keyword, value):
    compiled = compile_schema({"properties": {"it": {keyword: KEYWORDS[keyword]}}})
    said = ""
    try:
        check_arguments(compiled, {"it": value})
    except Rejected as refusal:
        said = repr((refusal.detail, refusal.fields))
    assert TOKEN not in said


@pytest.mark.parametrize("wrong", [1, 1.5, {}])
def test_a_crowd_of_wrong_items_is_told_once_and_holds_nobody_up(wrong):
    with pytest.raises(Rejected) as refused:
        check_arguments(compile_schema(PROCESS_INPUT), {"command": "ls", "args": [wrong] * 60_000})
    assert len(refused.value.fields) == 1
