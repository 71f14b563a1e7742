"""JSON Schema 2020-12, compiled once a tool; what does not fit is named by path and sentence.

Two things JSON Schema itself cannot say are checked here: `x-maxBytes` bounds a string in UTF-8 bytes (the contract's
caps are bytes, the standard's are characters), and where a schema wants an integer, 1.0 is a fraction and refused (the
standard lets it pass, and then two readers see two values).

Not here: the schemas themselves (protocol/catalog).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema_rs

from palyra.canon import Json
from palyra.errors import Reason, Rejected

MAX_SHOWN_ERRORS = 8
_MAX_SENTENCE = 160


class _MaxBytes:
    """The private keyword `x-maxBytes`."""

    def __init__(self, parent_schema: Mapping[str, Any], value: Any, schema_path: list[Any]) -> None:
        self._limit = int(value)

    def validate(self, instance: Any) -> None:
        if isinstance(instance, str) and len(instance.encode("utf-8", "surrogatepass")) > self._limit:
            raise ValueError(f"longer than {self._limit} bytes")


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    schema: Mapping[str, Json]
    validator: Any = field(compare=False, repr=False)


def compile_schema(schema: Mapping[str, Json]) -> CompiledSchema:
    """ValueError when it is not a JSON Schema."""
    try:
        validator = jsonschema_rs.Draft202012Validator(dict(schema), keywords={"x-maxBytes": _MaxBytes})
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise ValueError(f"not a JSON Schema: {str(error)[:_MAX_SENTENCE]}") from error
    return CompiledSchema(schema, validator)


def check_arguments(compiled: CompiledSchema, value: Mapping[str, Json]) -> None:
    """Raise BAD_ARGUMENTS with a path and a sentence for each error, in a fixed order."""
    found = sorted({*_schema_errors(compiled, value), *_fractions(compiled.schema, value, "")})
    if found:
        shown = tuple(found[:MAX_SHOWN_ERRORS])
        path, sentence = shown[0]
        more = f" ({len(found) - 1} more)" if len(found) > 1 else ""
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"{path or 'The input'}: {sentence}{more}.",
            "palyra tools show TOOL prints the schema.",
            fields=shown,
        )


def _schema_errors(compiled: CompiledSchema, value: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    if compiled.validator.is_valid(value):
        return
    for error in compiled.validator.iter_errors(value):
        yield "/".join(str(part) for part in error.instance_path), _sentence(error)


def _sentence(error: Any) -> str:
    """The validator's own words without the value it repeats, which may be long or secret."""
    masked = getattr(error, "masked", None)
    text = str(masked() if callable(masked) else error.message).splitlines()[0]
    return text[:_MAX_SENTENCE].rstrip(".")


def _fractions(schema: Any, value: Json, path: str) -> Iterator[tuple[str, str]]:
    """Where the schema says integer and the value is a float; follows properties and items, which is all we use."""
    if not isinstance(schema, Mapping):
        return
    if isinstance(value, float) and schema.get("type") == "integer":
        yield path, "a fraction where an integer is wanted"
    elif isinstance(value, Mapping):
        properties = schema.get("properties", {})
        for key, item in value.items():
            yield from _fractions(properties.get(key), item, f"{path}/{key}" if path else key)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _fractions(schema.get("items"), item, f"{path}/{at}")
