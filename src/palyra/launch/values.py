"""Frozen values of model/ as JSON and back, by their declared types. Pure.

Used between an engine and its keeper. Driven by the dataclasses themselves, so a field added to a plan crosses without
a line here; strict on the way in: exactly the declared fields, of exactly the declared types, and whatever a value
checks when it is made. Not here: frames and requests (keeper_message).
"""

from __future__ import annotations

import base64
import binascii
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

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
    made: T = _reader(cast(Any, kind))(raw)
    return made


Read = Callable[[Any], Any]


@cache
def _reader(kind: Any) -> Read:
    """What reads a value of this type: looked up once, because a plan has hundreds of them."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union_reader(get_args(kind))
    if origin is Literal:
        return partial(_read_literal, get_args(kind))
    if origin in (tuple, frozenset):
        return _items_reader(origin, get_args(kind))
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if kind is bytes:
        return _read_bytes
    return partial(_read_plain, types.NoneType if kind is None else kind)


def _read_literal(allowed: tuple[Any, ...], raw: Json) -> Any:
    if raw not in allowed:
        raise ValueError(f"{raw!r:.40} is not allowed here")
    return raw


def _read_bytes(raw: Json) -> bytes:
    try:
        return base64.b64decode(_read_plain(str, raw), validate=True)
    except binascii.Error as error:
        raise ValueError("these are not base64 bytes") from error


def _read_plain(kind: Any, raw: Json) -> Any:
    if type(raw) is not kind or kind not in _PLAIN:
        raise ValueError(f"a {type(raw).__name__} where {getattr(kind, '__name__', kind)} is expected")
    return raw


_PLAIN = (bool, int, str, types.NoneType)


def _items_reader(origin: Any, kinds: tuple[Any, ...]) -> Read:
    is_any_number = origin is frozenset or kinds[-1] is Ellipsis
    readers = [_reader(kind) for kind in kinds if kind is not Ellipsis]

    def read(raw: Any) -> Any:
        if not isinstance(raw, list):
            raise ValueError("a list is wanted")
        if is_any_number:
            return origin(map(readers[0], raw))
        if len(kinds) != len(raw):
            raise ValueError(f"{len(raw)} items where {len(kinds)} are wanted")
        return tuple([reader(item) for reader, item in zip(readers, raw, strict=True)])

    return read


def _union_reader(kinds: tuple[Any, ...]) -> Read:
    readers = [_reader(kind) for kind in kinds]
    # A plain value is what it is, where no type before its own could take it for something else.
    own = {kind for at, kind in enumerate(kinds) if kind in _PLAIN and all(map(_is_other, kinds[:at]))}

    def read(raw: Any) -> Any:
        if type(raw) in own:
            return raw
        for reader in readers:
            try:
                return reader(raw)
            except ValueError:
                continue
        raise ValueError("none of the allowed types fits")

    return read


def _is_other(kind: Any) -> bool:
    return kind in _PLAIN or is_dataclass(kind) or get_origin(kind) in (tuple, frozenset)


def _dataclass_reader(kind: Any) -> Read:
    hints = get_type_hints(kind)
    names = {field.name for field in fields(kind)}
    readers: dict[str, Read] = {}  # filled when first used: types may hold each other

    def read(raw: Any) -> Any:
        if not isinstance(raw, Mapping) or raw.keys() != names:
            raise ValueError(f"these are not the fields of {kind.__name__}")
        if not readers:
            readers.update((name, _reader(hints[name])) for name in names)
        return kind(**{name: readers[name](item) for name, item in raw.items()})

    return read
