"""Frozen values of model/ as JSON and back, by their declared types. Pure.

Used between an engine and its keeper. Driven by the dataclasses themselves, so a field added to a plan crosses without
a line here; strict on the way in: exactly the declared fields, of exactly the declared types, and whatever a value
checks when it is made. Not here: frames and requests (keeper_message).
"""

from __future__ import annotations

import base64
import binascii
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from palyra.canon import Json

T = TypeVar("T")


def to_json(value: object) -> Json:
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(to_json(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"a {type(value).__name__} does not cross to a keeper")


def from_json(kind: type[T], raw: Json) -> T:
    """ValueError for anything that `to_json` does not write for this type."""
    made: T = _read(kind, raw)
    return made


def _read(kind: Any, raw: Json) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(kind), raw)
    if origin is Literal:
        if raw not in get_args(kind):
            raise ValueError(f"{raw!r:.40} is not allowed here")
        return raw
    if origin in (tuple, frozenset):
        return _read_items(origin, get_args(kind), raw)
    if is_dataclass(kind):
        return _read_dataclass(kind, raw)
    return _read_plain(kind, raw)


def _read_plain(kind: Any, raw: Json) -> Any:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(raw)
    if kind is bytes:
        try:
            return base64.b64decode(_read_plain(str, raw), validate=True)
        except binascii.Error as error:
            raise ValueError("these are not base64 bytes") from error
    if kind is type(None):
        kind = types.NoneType
    if kind not in (bool, int, str, types.NoneType) or type(raw) is not kind:
        raise ValueError(f"a {type(raw).__name__} where {getattr(kind, '__name__', kind)} is wanted")
    return raw


def _read_items(origin: Any, kinds: tuple[Any, ...], raw: Json) -> Any:
    if not isinstance(raw, list):
        raise ValueError("a list is wanted")
    if origin is frozenset or kinds[-1] is Ellipsis:
        return origin(_read(kinds[0], item) for item in raw)
    if len(kinds) != len(raw):
        raise ValueError(f"{len(raw)} items where {len(kinds)} are wanted")
    return tuple(_read(kind, item) for kind, item in zip(kinds, raw, strict=True))


def _read_union(kinds: tuple[Any, ...], raw: Json) -> Any:
    for kind in kinds:
        try:
            return _read(kind, raw)
        except ValueError:
            continue
    raise ValueError("none of the allowed types fits")


def _read_dataclass(kind: Any, raw: Json) -> Any:
    hints = _hints(kind)
    if not isinstance(raw, Mapping) or set(raw) != {field.name for field in fields(kind)}:
        raise ValueError(f"these are not the fields of {kind.__name__}")
    return kind(**{name: _read(hints[name], item) for name, item in raw.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
