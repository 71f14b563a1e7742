"""`dataclass`, as the standard library has it, for a house with hundreds of values and commands that end in a blink.

The standard one writes and compiles six functions for every class when its module is imported: for a short command
that is half of its life. Here `__init__` is compiled when a class is made again and again, and the others need no
compiler. What a class gets is the same: fields, frozen, slots, keyword-only, `__post_init__`, `replace`, equality,
order, hash, repr, copying and pickling. Where a class asks for anything else (InitVar …) the standard one makes it.

For type checkers this is `dataclasses.dataclass` itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from inspect import get_annotations
from operator import attrgetter, ge, gt, le, lt
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["change", "dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True, order=False, **other):
        def make(cls):
            if other or (order and not eq) or any("InitVar" in str(kind) for kind in get_annotations(cls).values()):
                options = {"frozen": frozen, "slots": slots, "kw_only": kw_only, "eq": eq, "order": order, **other}
                return dataclasses.dataclass(**options)(cls)
            return _make(cls, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq, order=order)

        return make if cls is None else make(cls)


Fields = Sequence[Field[Any]]
T = TypeVar("T")
MADE_BEFORE_COMPILED = 8
"""Compiling pays from about there on; most classes of a short command are made once or twice."""
_MISSING = object()


def change(value: T, /, **changes: Any) -> T:
    """`dataclasses.replace`, for what is done in every call: the names are not asked for each time."""
    cls = value.__class__
    known = _COPIED.get(cls)
    if known is None:
        init = tuple(field.name for field in dataclasses.fields(cls) if field.init)  # type: ignore[arg-type]
        known = _COPIED[cls] = init, _getter(init)
    names, read = known
    return cls(**{**dict(zip(names, read(value), strict=True)), **changes})


_COPIED: dict[type[Any], tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {}
"""By class, of which there are as many as the program has."""


def _make(cls: type[Any], *, frozen: bool, slots: bool, kw_only: bool, eq: bool, order: bool) -> type[Any]:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else the standard library writes the signature there, at some length
    own = frozenset(cls.__dict__)
    made = _make_fields(cls, slots=slots, kw_only=kw_only)
    fields = dataclasses.fields(made)
    given: dict[str, Any] = {"__init__": _first_init(made, frozen=frozen), "__repr__": _make_repr(fields)}
    if eq:
        given |= {"__eq__": _make_eq(fields), "__hash__": _make_hash(fields) if frozen else None}
    if order:
        given |= _make_order(fields)
    if frozen:
        given |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
        if slots:
            given |= {"__getstate__": _get_state, "__setstate__": _set_state}
    for name, function in given.items():
        if name not in own or (name == "__hash__" and "__eq__" in own and made.__hash__ is None):
            setattr(made, name, function)
    return made


def _make_fields(cls: type[Any], *, slots: bool, kw_only: bool) -> type[Any]:
    """The standard library reads every annotation that is text, in search of two special ones, which takes half of all
    its time here: where there is neither, it is shown others meanwhile."""
    kinds = get_annotations(cls)
    text = " ".join(map(str, kinds.values()))
    shown = kinds if "ClassVar" in text or "KW_ONLY" in text else dict.fromkeys(kinds, object)
    cls.__annotations__ = shown
    made: type[Any] = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    if shown is not kinds:
        made.__annotations__ = kinds
        for name, kind in kinds.items():
            made.__dataclass_fields__[name].type = kind
    return made


def _first_init(cls: type[Any], *, frozen: bool) -> Callable[..., None]:
    """Fills in the first few values field by field; a class that is made more often gets a function of its own. So does
    a call with wrong arguments, which then says what is wrong."""
    made = 0
    fields: Fields = ()

    def __init__(self: Any, /, *args: Any, **kwargs: Any) -> None:
        nonlocal made, fields
        made += 1
        fields = fields or dataclasses.fields(cls)
        values = None if made > MADE_BEFORE_COMPILED else _fill(fields, _named(fields, args, kwargs))
        if values is None:
            init = _compile_init(cls, frozen=frozen)
            cls.__init__ = init
            init(self, *args, **kwargs)
            return
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    return __init__


def _named(fields: Fields, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Both kinds of arguments by name. Too many, or one given twice: something that fits no class."""
    if not args:
        return given
    names = [field.name for field in fields if field.init and not field.kw_only]
    if len(args) > len(names) or not given.keys().isdisjoint(names[: len(args)]):
        return {"": None}
    return {**given, **dict(zip(names, args, strict=False))}


def _fill(fields: Fields, given: dict[str, Any]) -> dict[str, Any] | None:
    """The value of each field; None where something is missing or too much."""
    values: dict[str, Any] = {}
    used = 0
    for field in fields:
        if field.init and field.name in given:
            values[field.name] = given[field.name]
            used += 1
        elif field.default_factory is not MISSING:
            values[field.name] = field.default_factory()
        elif field.default is not MISSING:
            values[field.name] = field.default
        elif field.init:
            return None
    return values if used == len(given) else None


def _compile_init(cls: type[Any], *, frozen: bool) -> Callable[..., None]:
    known: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": _MISSING}
    plain: list[str] = []
    named: list[str] = []
    defaults: dict[str, Any] = {}
    body: list[tuple[str, str]] = []
    for field in dataclasses.fields(cls):
        name = value = field.name
        if field.default_factory is not MISSING:
            known[f"_factory_{name}"], defaults[name] = field.default_factory, _MISSING
            value = f"_factory_{name}() if {name} is _MISSING else {name}" if field.init else f"_factory_{name}()"
        elif field.default is not MISSING:
            known[f"_default_{name}"] = defaults[name] = field.default
            value = name if field.init else f"_default_{name}"
        elif not field.init:
            continue
        if field.init:
            (named if field.kw_only else plain).append(name)
        body.append((name, value))
    lines = _assign(cls, body, known) if frozen else [f"_self.{name} = {value}" for name, value in body]
    if hasattr(cls, "__post_init__"):
        lines.append("_self.__post_init__()")
    parameters = ", ".join(["_self", *plain, *(["*", *named] if named else [])])
    text = f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"])
    code = next(one for one in compile(text, "<values>", "exec").co_consts if isinstance(one, CodeType))
    init = FunctionType(code, known, "__init__", tuple(defaults[name] for name in plain if name in defaults))
    init.__kwdefaults__ = {name: defaults[name] for name in named if name in defaults}
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _assign(cls: type[Any], body: Sequence[tuple[str, str]], known: dict[str, Any]) -> list[str]:
    """The lines that fill in a frozen value. Each `object.__setattr__` is a call, of which every call of a tool would
    make hundreds. So a value of a plain class is filled in as one of its twin, a class of the same slots that is not
    frozen, and is made its own class's before anybody sees it."""
    one_by_one = [f"_set(_self, {name!r}, {value})" for name, value in body]
    twin = _make_twin(cls)
    if twin is None or len(body) < 2:
        return one_by_one
    known |= {"_cls": cls, "_twin": twin}
    return [
        "if _self.__class__ is _cls:",
        "  _set(_self, '__class__', _twin)",
        *(f"  _self.{name} = {value}" for name, value in body),
        "  _self.__class__ = _cls",
        "else:",  # a subclass may be laid out otherwise
        *(f"  {line}" for line in one_by_one),
    ]


def _make_twin(cls: type[Any]) -> type[Any] | None:
    slots = cls.__dict__.get("__slots__")
    if slots is None or cls.__bases__ != (object,) or type(cls) is not type:
        return None
    return type(cls.__name__, (), {"__slots__": slots, "__module__": cls.__module__})


def _getter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda self: (getattr(self, names[0]),)) if names else lambda self: ()


def _make_eq(fields: Fields) -> Callable[[Any, object], bool]:
    get = _getter([field.name for field in fields if field.compare])

    def __eq__(self: Any, other: object) -> bool:
        if self is other:
            return True  # as the tuples of its fields would be: they compare what is in them in this order, too
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _make_order(fields: Fields) -> dict[str, Callable[[Any, object], bool]]:
    get = _getter([field.name for field in fields if field.compare])

    def make(compare: Callable[[Any, Any], bool]) -> Callable[[Any, object], bool]:
        return lambda self, other: (
            compare(get(self), get(other)) if other.__class__ is self.__class__ else NotImplemented
        )

    return {"__lt__": make(lt), "__le__": make(le), "__gt__": make(gt), "__ge__": make(ge)}


def _make_hash(fields: Fields) -> Callable[[Any], int]:
    get = _getter([field.name for field in fields if (field.compare if field.hash is None else field.hash)])
    return lambda self: hash(get(self))


def _make_repr(fields: Fields) -> Callable[[Any], str]:
    names = [field.name for field in fields if field.repr]

    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refuse_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
