"""A skill's schemas: nothing is fetched for them, and no input makes one of them run for ever."""

from __future__ import annotations

from typing import Any

import pytest

from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.tool_schema import check_schema
from tests.promises import promise


def chain(count: int, *, twice: bool) -> dict[str, Any]:
    """Definitions that each name the next one, once or twice."""
    defs: dict[str, Any] = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * (2 if twice else 1)} for n in range(count)
    }
    return {"type": "object", "$defs": {**defs, f"d{count}": {"type": "object"}}, "$ref": "#/$defs/d0"}


@promise("skills.schema-cost")
@pytest.mark.parametrize(
    "schema",
    [
        chain(40, twice=True),
        chain(2000, twice=False),
        {"type": "object", "allOf": [{"$ref": "#"}]},
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"type": "object", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"type": "object", "properties": {"a": {"not": {"$ref": "#/properties/a"}}}},
        {"type": "object", "$ref": "#/$defs/absent"},
        {"type": "object", "$defs": {"a b": {}}, "$ref": "#/$defs/a%20b"},
        {"type": "object", "anyOf": [{}], "$ref": "#/anyOf/1"},
        {"type": "object", "$ref": "#anchor"},
        {"type": "object", "$dynamicRef": "#meta"},
        {"type": "object", "properties": {"a": {"pattern": "((((a{1,100}){1,100}){1,100}){1,100}){1,100}"}}},
        {"type": "object", "enum": [{"n": n} for n in range(12_000)]},
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_a_schema_that_could_run_for_ever_or_leads_nowhere_is_refused(schema):
    with pytest.raises(SkillRefused) as caught:
        check_schema(schema, "input_schema", of_object=True)
    assert caught.value.finding is Finding.MANIFEST_VALUE


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        chain(20, twice=False),
        chain(5, twice=True),
        {
            "type": "object",
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
            "properties": {"a": {"$ref": "#/$defs/point"}, "b": {"items": {"$ref": "#/$defs/point"}}},
        },
        {"type": "object", "properties": {"a/b": {}, "c": {"$ref": "#/properties/a~1b"}}},
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_ordinary_schemas_with_definitions_are_taken(schema):
    assert check_schema(schema, "input_schema", of_object=True) == schema


@promise("skills.schema-cost")
@pytest.mark.parametrize(
    "part",
    [
        {"pattern": "(?=(a+)+$)b"},
        {"pattern": r"(a+)\1"},
        {"unevaluatedProperties": False},
        {"allOf": [{"unevaluatedItems": {"type": "string"}}]},
        {"allOf": [{"pattern": f"a{at}"} for at in range(65)]},
        {"patternProperties": {f"a{at}": {} for at in range(65)}},
    ],
    ids=lambda part: str(part)[:40],
)
def test_what_a_schema_could_take_without_bound_is_refused_before_it_is_compiled(part):
    with pytest.raises(SkillRefused) as caught:
        check_schema({"type": "object", "properties": {"a": part}}, "input_schema", of_object=True)
    assert caught.value.finding is Finding.MANIFEST_VALUE


@promise("skills.hidden-text")
@pytest.mark.parametrize("hidden", ["\U000e0069\U000e0067", "\u200b", "\u202e", "\u3164", "\ufe01", "\x1b[8m"])
def test_what_only_agents_would_read_has_no_place_in_a_schema(hidden):
    """Invisible letters are instructions to a model that no reviewer sees."""
    for part in ({"description": f"A name.{hidden}"}, {"enum": [f"a{hidden}"]}, {"properties": {f"a{hidden}": {}}}):
        with pytest.raises(SkillRefused, match="invisible"):
            check_schema({"type": "object", "properties": {"a": part}}, "input_schema", of_object=True)


def test_a_description_of_several_lines_in_any_language_is_taken():
    schema = {"type": "object", "properties": {"a": {"type": "string", "description": "Ein Name.\n\t日本語 ✔\ufe0f é"}}}
    assert check_schema(schema, "input_schema", of_object=True) == schema
