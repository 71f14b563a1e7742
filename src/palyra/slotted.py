"""Classes with slots, made at once from what is written in them: what the standard library works out for each of
them, its `Field` objects above all, is made by it when somebody asks.

Rules: what somebody finds is what the standard library would have made; what this does not make (None) is made there,
its complaints included (`is_odd`), or at least its fields: a class with class variables, or with slots of its own.

Not here: the methods that a class gets (values).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import MISSING, Field
from types import FunctionType
from typing import Any

FIELDS, PARAMS = "__dataclass_fields__", "__dataclass_params__"


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Example:
    """With a sentence of its own: else the standard library writes one, with a signature that it works out."""


_LIKE_ALL = {name: value for name, value in vars(_Example).items() if name == "__replace__"}
"""What the standard library gives every class alike; newer than some of the Pythons we run on."""
_NO_BASES, _set = (object,), object.__setattr__
_PLAIN = frozenset({MISSING.__class__, None.__class__, bool, int, str, bytes, float, tuple, frozenset, FunctionType})
"""Classes of defaults that are neither shared nor asked for something."""
_MADE_WITH: dict[tuple[tuple[str, bool], ...], Any] = {}
_OF_THE_FIRST = frozenset({"__dict__", "__weakref__"})
"""What belongs to a class without slots."""


class Shape:
    """The fields of a class as they are written. Stands in a class for its `__dataclass_fields__`."""

    __slots__ = ("kinds", "kw_only", "owner", "plain", "special")

    def __init__(
        self, kinds: Mapping[str, Any], plain: Mapping[str, Any], special: Mapping[str, Field[Any]], *, kw_only: bool
    ) -> None:
        self.kinds = kinds
        self.plain = plain
        """Defaults that are values."""
        self.special = special
        """What is written as `field(…)`."""
        self.kw_only = kw_only
        self.owner: type[Any] | None = None

    def parts(self) -> Iterator[tuple[str, Any, Any, bool, bool]]:
        """Of each field its name, its default, what makes its default, whether it is given, and by name alone."""
        for name in self.kinds:
            one = self.special.get(name)
            if one is None:
                yield name, self.plain.get(name, MISSING), MISSING, True, self.kw_only
            else:
                by_name = self.kw_only if one.kw_only is MISSING else bool(one.kw_only)
                yield name, one.default, one.default_factory, one.init, by_name

    def names_with(self, what: str) -> list[str]:
        """Of the fields that are compared, shown, or hashed, which is as they are compared unless it is said."""
        return [name for name in self.kinds if name not in self.special or _has(self.special[name], what)]

    def fill(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """The value of each field; None where something is missing or too much."""
        if not self.special:
            values = {**self.plain, **given}
            return values if values.keys() == self.kinds.keys() else None
        values = {}
        used = 0
        for name, default, factory, init, _ in self.parts():
            if init and name in given:
                values[name] = given[name]
                used += 1
            elif factory is not MISSING:
                values[name] = factory()
            elif default is not MISSING:
                values[name] = default
            elif init:
                return None
        return values if used == len(given) else None

    def __get__(self, value: object, cls: type[Any]) -> dict[str, Field[Any]]:
        written = {"__annotations__": dict.fromkeys(self.kinds, object), "__doc__": "-", **self.plain, **self.special}
        make = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=self.kw_only)
        fields: dict[str, Field[Any]] = getattr(make(type("Fields", (), written)), FIELDS)
        for name, kind in self.kinds.items():
            fields[name].type = kind
        setattr(self.owner, FIELDS, fields)
        return fields


def _has(field: Field[Any], what: str) -> bool:
    said = getattr(field, what)
    return bool(field.compare if said is None else said)


def shape_of(cls: type[Any]) -> Shape:
    """That of any dataclass, without making what it stands for."""
    own = vars(cls).get(FIELDS)
    if isinstance(own, Shape):
        return own
    made = {field.name: field for field in dataclasses.fields(cls)}
    return Shape(made, {}, made, kw_only=False)


def read_shape(cls: type[Any], *, kw_only: bool) -> Shape | None:
    kinds: dict[str, Any] = cls.__annotations__
    if is_special(kinds) or "__slots__" in cls.__dict__ or any(hasattr(base, FIELDS) for base in cls.__bases__):
        return None
    plain: dict[str, Any] = {}
    special: dict[str, Field[Any]] = {}
    for name, value in cls.__dict__.items():
        if isinstance(value, Field):
            special[name] = value
        elif name in kinds:
            plain[name] = value
    return None if special.keys() - kinds.keys() else Shape(kinds, plain, special, kw_only=kw_only)


def is_odd(cls: type[Any], *, frozen: bool, kw_only: bool) -> bool:
    """What the standard library refuses, or makes by rules that are not worth having twice: a frozen value derived from
    one that is not, a way of its own to set a field, something of a field's name in a class it is derived from; values
    shared as defaults, descriptors, fields without a default behind others that have one."""
    kinds, own = cls.__annotations__, vars(cls)
    if "__setattr__" in own or "__delattr__" in own:
        return True
    for base in cls.__bases__ if cls.__bases__ != _NO_BASES else ():
        params, setter = getattr(base, PARAMS, None), getattr(base, "__setattr__", None)
        if setter is not _set if params is None else params.frozen is not frozen:
            return True
        if any(hasattr(base, name) for name in kinds):
            return True
    return "InitVar" in " ".join(map(str, kinds.values())) or _has_odd_default(own, kinds, kw_only=kw_only)


def _has_odd_default(own: Mapping[str, Any], kinds: Mapping[str, Any], *, kw_only: bool) -> bool:
    seen = False
    for name in filter(own.__contains__, kinds) if kw_only or kinds.keys().isdisjoint(own) else kinds:
        value = own.get(name, MISSING)
        by_name, given, default = kw_only, True, value
        if value.__class__ is Field:
            by_name = kw_only if value.kw_only is MISSING else bool(value.kw_only)
            given, default = value.init, value.default
            value = default if value.default_factory is MISSING else value.default_factory
        if not by_name and given:
            if seen and value is MISSING:
                return True
            seen = value is not MISSING
        kind = default.__class__
        if kind not in _PLAIN and (kind.__hash__ is None or hasattr(kind, "__get__")):
            return True
    return False


def params_of(**options: bool) -> Any:
    """What the standard library remembers of how a class was made, and asks whoever derives one from it."""
    key = tuple(options.items())
    made = _MADE_WITH.get(key)
    if made is None:
        made = _MADE_WITH[key] = copy(vars(_Example)[PARAMS])
        for name, value in {"init": True, "repr": True, **options}.items():
            if hasattr(made, name):  # newer Pythons remember more
                setattr(made, name, value)
    return made


def is_special(kinds: Mapping[str, Any]) -> bool:
    """Some annotation is one that the standard library has to read."""
    text = " ".join(map(str, kinds.values()))
    return "ClassVar" in text or "KW_ONLY" in text


def make_slotted(cls: type[Any], shape: Shape, added: Mapping[str, Any]) -> type[Any]:
    """The class once more: slots can only be given to a new one."""
    written = {name: one for name, one in vars(cls).items() if name not in shape.kinds and name not in _OF_THE_FIRST}
    matched = tuple(name for name, _, _, init, by_name in shape.parts() if init and not by_name)
    written = {"__match_args__": matched, **written, **added, **_LIKE_ALL}
    written |= {"__slots__": tuple(shape.kinds), "__qualname__": cls.__qualname__, FIELDS: shape}
    kind: Any = type(cls)
    made: type[Any] = kind(cls.__name__, cls.__bases__, written)
    shape.owner = made
    return made
