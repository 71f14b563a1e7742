"""Whether a value fits a schema so plainly that no validator need be asked. No means: ask it.

Most inputs are a few strings under known keys. For them the validator, a library of its own, would be the heaviest
thing that a command imports. Rules: a keyword that is not in `_KNOWN` is a no, and so is a value of another type than
the schema names; what is a yes here is one to the validator too, which a test holds against it. Never the other way
round: what does not fit is for the validator to say.
"""

from __future__ import annotations

from collections.abc import Mapping

from palyra.canon import Json

NO_NUL = r"^[^\u0000]*$"
_NOTES = frozenset({"$schema", "description", "default", "title"})
_KNOWN = {
    "object": _NOTES | {"type", "properties", "required", "additionalProperties"},
    "array": _NOTES | {"type", "items", "maxItems", "minItems"},
    "string": _NOTES | {"type", "minLength", "maxLength", "pattern", "x-maxBytes"},
    "integer": _NOTES | {"type", "minimum", "maximum"},
    "boolean": _NOTES | {"type"},
}


def plainly_fits(schema: Json, value: Json) -> bool:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(kind, str) or not schema.keys() <= _KNOWN.get(kind, frozenset()):
        return False
    match kind:
        case "object":
            return isinstance(value, Mapping) and _is_object(schema, value)
        case "array":
            return isinstance(value, list) and _is_array(schema, value)
        case "string":
            return isinstance(value, str) and _is_string(schema, value)
        case "integer":
            return type(value) is int and schema.get("minimum", value) <= value <= schema.get("maximum", value)
        case _:
            return isinstance(value, bool)


def _is_object(schema: Mapping[str, Json], value: Mapping[str, Json]) -> bool:
    properties = schema.get("properties", {})
    if schema.get("additionalProperties") is not False or not value.keys() <= properties.keys():
        return False
    if not all(name in value for name in schema.get("required", ())):
        return False
    return all(plainly_fits(properties[name], item) for name, item in value.items())


def _is_array(schema: Mapping[str, Json], value: list[Json]) -> bool:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        return False
    return all(plainly_fits(schema.get("items"), item) for item in value)


def _is_string(schema: Mapping[str, Json], value: str) -> bool:
    """ASCII alone: there a character is a byte, however one counts."""
    if not value.isascii() or not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return False
    if len(value) > schema.get("x-maxBytes", len(value)):
        return False
    return "pattern" not in schema or (schema["pattern"] == NO_NUL and "\0" not in value)
