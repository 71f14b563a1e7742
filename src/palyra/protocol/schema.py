"""JSON Schema 2020-12, compiled once a tool; what does not fit is named by path and sentence.

Two things JSON Schema itself cannot say are checked here: `x-maxBytes` bounds a string in UTF-8 bytes (the contract's
caps are bytes, the standard's are characters), and where a schema wants an integer, 1.0 is a fraction and refused (the
standard lets it pass, and then two readers see two values). No sentence repeats a value that was given.

Not here: the schemas themselves (protocol/catalog).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.late import late
from palyra.protocol.plain import NO_NUL, plainly_fits

if TYPE_CHECKING:
    from palyra.protocol.schema_cost import SchemaCost

MAX_SHOWN_ERRORS = 8
MAX_SHOWN_KEYS = 16
MAX_EXPLAINED_VALUES = 1000
_MAX_SENTENCE = 160
_PLAIN_NAME = late(r"[A-Za-z_-]{1,32}")  # no digits: nearly every key and token has some
_OWN_NAME = late(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")  # of a schema, where they are no caller's
NO_FIT = "does not fit the schema's"
NO_INTEGER = "not of type integer"
_LIMITS = {
    "minimum": "less than {}",
    "maximum": "greater than {}",
    "exclusiveMinimum": "not greater than {}",
    "exclusiveMaximum": "not less than {}",
    "minLength": "shorter than {} characters",
    "maxLength": "longer than {} characters",
    "minItems": "fewer than {} items",
    "maxItems": "more than {} items",
    "minProperties": "fewer than {} keys",
    "maxProperties": "more than {} keys",
}
_COUNTS = ("Length", "Items", "Properties")


class _MaxBytes:
    """The private keyword `x-maxBytes`."""

    def __init__(self, parent_schema: Mapping[str, Any], value: Any, schema_path: list[Any]) -> None:
        self._limit = int(value)

    def validate(self, instance: Any) -> None:
        if isinstance(instance, str) and len(instance.encode("utf-8", "surrogatepass")) > self._limit:
            raise ValueError(f"longer than {self._limit} bytes")


class CompiledSchema:
    """A schema and its validator, which is made when the first value comes that does not plainly fit."""

    def __init__(self, schema: Mapping[str, Json]) -> None:
        self.schema = schema

    @cached_property
    def validator(self) -> Any:
        """ValueError when it is not a JSON Schema."""
        import jsonschema_rs  # the heaviest of all that a command may import

        try:
            return jsonschema_rs.Draft202012Validator(
                dict(self.schema),
                keywords={"x-maxBytes": _MaxBytes},
                # The engine whose time is linear: with look-around a pattern of ten letters takes an hour.
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except (ValueError, jsonschema_rs.ValidationError) as error:
            raise ValueError(f"not a JSON Schema: {str(error)[:_MAX_SENTENCE]}") from error

    @cached_property
    def cost(self) -> SchemaCost:
        from palyra.protocol.schema_cost import cost_of  # for what does not plainly fit

        return cost_of(self.schema)

    @cached_property
    def has_integers(self) -> bool:
        """Some part of it wants a whole number, and so may be given a fraction."""
        return _names_integer(self.schema)


def compile_schema(schema: Mapping[str, Json]) -> CompiledSchema:
    """At once: ValueError when it is not a JSON Schema."""
    compiled = CompiledSchema(schema)
    compiled.validator  # noqa: B018  # made now, not when the first value comes
    return compiled


def _names_integer(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return schema.get("type") == "integer" or any(map(_names_integer, schema.values()))
    return isinstance(schema, (list, tuple)) and any(map(_names_integer, schema))


def check_arguments(compiled: CompiledSchema, value: Mapping[str, Json]) -> None:
    """Raise BAD_ARGUMENTS with a path and a sentence for each error, in a fixed order."""
    if plainly_fits(compiled.schema, value):
        return
    if not compiled.cost.is_affordable(value):
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "The value has too many parts for its schema: checking all of them would take too long.",
            "Send less at once. An operator can print the schema: palyra tools show TOOL.",
        )
    if not compiled.has_integers and compiled.validator.is_valid(value):
        return
    fractions = {*islice(_fractions(compiled.schema, value, ""), MAX_EXPLAINED_VALUES)}
    wrong_type = {(path, NO_INTEGER) for path, _ in fractions}  # the same error, told by the validator
    found = sorted({*_schema_errors(compiled, value), *fractions} - wrong_type, key=_rank)
    if found:
        shown = tuple(found[:MAX_SHOWN_ERRORS])
        each = "; ".join(_located(path, sentence) for path, sentence in shown)
        more = f" ({len(found) - len(shown)} more)" if len(found) > len(shown) else ""
        raise Rejected(Reason.BAD_ARGUMENTS, f"{each}{more}.", _hint(compiled.schema, shown), fields=shown)


def _hint(schema: Mapping[str, Json], errors: Sequence[tuple[str, str]]) -> str:
    """Who sent a key that there is none of is told which there are: an agent cannot type the command."""
    known = ", ".join([key for key in schema.get("properties", ()) if _OWN_NAME.fullmatch(key)][:MAX_SHOWN_KEYS])
    if any(path.startswith("args/") and sentence.startswith("longer than") for path, sentence in errors):
        return "Send a long text as stdin, or write it to a file with palyra.fs.write and name the file in args."
    misnamed = any(not path and sentence.startswith("unknown key") for path, sentence in errors)
    keys = f"Its keys: {known}. " if known and misnamed else ""
    return f"{keys}The tool's schema says what fits. An operator can print it: palyra tools show TOOL."


def _located(path: str, sentence: str) -> str:
    """What is missing from the input itself, or too much in it, is named by its own words."""
    names_it = sentence.endswith("is missing") or sentence.startswith("unknown key")
    return sentence if names_it and not path else f"{path or 'The input'}: {sentence}"


def _rank(error: tuple[str, str]) -> tuple[bool, str, str]:
    """What names the mistake stands before what only says that there is one, and then by path."""
    path, sentence = error
    return sentence.startswith(NO_FIT), path, sentence


def _schema_errors(compiled: CompiledSchema, value: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    if compiled.validator.is_valid(value):
        return
    for error in compiled.validator.iter_errors(value) if _is_small(value) else _first_error(compiled, value):
        sentence = _choice(compiled.schema, error) or _sentence(error.kind)
        yield "/".join(_name(part) for part in error.instance_path), sentence[:_MAX_SENTENCE]


def _first_error(compiled: CompiledSchema, value: Mapping[str, Json]) -> Iterator[Any]:
    from jsonschema_rs import ValidationError

    try:
        compiled.validator.validate(value)
    except ValidationError as error:
        yield error


def _is_small(value: Json) -> bool:
    """An error for each of 60 000 wrong items would hold up every other call for a second: of many, one is told."""
    left, waiting = MAX_EXPLAINED_VALUES, [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (Mapping, list, tuple)):
            left -= len(one)
            if left < 0:
                return False
            waiting += one.values() if isinstance(one, Mapping) else one
    return True


def _choice(schema: Any, error: Any) -> str | None:
    """Which keys belong or do not belong together, where that is all that a choice of the schema is about."""
    for step in error.schema_path:
        try:
            schema = schema[step]
        except (LookupError, TypeError):  # in a part with an $id of its own
            return None
    match error.kind.name:
        case "oneOf" | "anyOf" as name if all(_is_needs_one_key(part) for part in schema):
            how_many = "exactly" if name == "oneOf" else "at least"
            return f"needs {how_many} one of {', '.join(part['required'][0] for part in schema)}"
        case "not" if isinstance(schema, Mapping) and len(schema.get("required", ())) > 1:
            return f"{' and '.join(schema['required'])} do not go together"
    return None


def _is_needs_one_key(schema: Any) -> bool:
    return isinstance(schema, Mapping) and [*schema] == ["required"] and len(schema["required"]) == 1


def _sentence(kind: Any) -> str:
    """Our own words, from the schema's side alone: the validator's repeat the value, which may be long or secret."""
    said = kind.as_dict()
    match kind.name:
        case "type":
            return f"not of type {' or '.join(said['types'])}"
        case "required":
            return f"{said['property']} is missing"
        case "additionalProperties" | "unevaluatedProperties":
            return f"unknown key {', '.join(sorted({_name(name) for name in said['unexpected']}))}"
        case "enum":
            return f"not one of {', '.join(str(option) for option in said['options'])}"
        case "const":
            return f"not {said['expected_value']}"
        case "pattern":
            return "holds a NUL" if said["pattern"] == NO_NUL else f"does not match {said['pattern']}"
        case "propertyNames":
            return f"has a key that {_sentence(said['error'].kind)}"
        case "x-maxBytes":
            return str(said["message"])
        case name if name in _LIMITS:
            limit = said["limit"]
            return _LIMITS[name].format(limit).removesuffix("s" if limit == 1 and name.endswith(_COUNTS) else "\0")
        case name:
            return f"{NO_FIT} {name}"


def _name(part: object) -> str:
    """A key as it may be repeated: it comes from the caller too, and a token in its place is still a token."""
    return str(part) if isinstance(part, int) or _PLAIN_NAME.fullmatch(str(part)) else "…"


def _fractions(schema: Any, value: Json, path: str) -> Iterator[tuple[str, str]]:
    """Where the schema says integer and the value is a float; follows properties and items, which is all we use."""
    if not isinstance(schema, Mapping):
        return
    if isinstance(value, float) and schema.get("type") == "integer":
        yield path, "a fraction where an integer is expected"
    elif isinstance(value, Mapping):
        properties = schema.get("properties", {})
        for key, item in value.items():
            yield from _fractions(properties.get(key), item, f"{path}/{_name(key)}" if path else _name(key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _fractions(schema.get("items"), item, f"{path}/{at}")
