"""`dataclass`, as the standard library has it, for a house with hundreds of values and commands that end in a blink.

The standard one writes and compiles six functions for every class when its module is imported: for a short command
that is half of its life. Here `__init__` is compiled when a class is made again and again, and the others need no
compiler. What a class gets is the same: fields, frozen, slots, keyword-only, `__post_init__`, `replace`, equality,
order, hash, repr, copying and pickling. Where a class asks for anything else (InitVar, other values' fields, …), or for
what the standard one refuses, that one makes it. Two things are otherwise: a class derived from a frozen one is frozen
as a whole, and a signature can be read once a class was made often.

For type checkers this is `dataclasses.dataclass` itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, FrozenInstanceError
from functools import partial
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from palyra.slotted import FIELDS, PARAMS, Shape, is_odd, is_special, make_slotted, params_of, read_shape, shape_of

__all__ = ["change", "dataclass", "is_value", "names_of"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False, eq=True, order=False, **other):
        def make(cls):
            options = {"frozen": frozen, "slots": slots, "kw_only": kw_only, "eq": eq, "order": order}
            unordered = order and (not eq or not _ORDER.keys().isdisjoint(vars(cls)))
            if other or unordered or is_odd(cls, frozen=frozen, kw_only=kw_only):
                return dataclasses.dataclass(**options, **other)(cls)
            return _make(cls, **options)

        return make if cls is None else make(cls)


T = TypeVar("T")
MADE_BEFORE_COMPILED = 32
"""Compiling pays from about there on; most classes of a short command are made once or twice."""
_MISSING = object()


def change(value: T, /, **changes: Any) -> T:
    """`dataclasses.replace`, for what is done in every call: the names are not asked for each time."""
    cls = value.__class__
    known = _COPIED.get(cls)
    if known is None:
        init = tuple(name for name, _, _, given, _ in shape_of(cls).parts() if given)
        known = _COPIED[cls] = init, _getter(init)
    names, read = known
    return cls(**{**dict(zip(names, read(value), strict=True)), **changes})


def names_of(cls: type[Any]) -> tuple[str, ...]:
    """Those of its fields, for who needs nothing else of them."""
    return tuple(shape_of(cls).kinds)


def is_value(one: object) -> bool:
    """`dataclasses.is_dataclass`, of a value alone and without making its fields."""
    return FIELDS in vars(one.__class__)


_COPIED: dict[type[Any], tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]] = {}
"""By class, of which there are as many as the program has."""


def _make(cls: type[Any], *, frozen: bool, slots: bool, kw_only: bool, eq: bool, order: bool) -> type[Any]:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else the standard library writes the signature there, at some length
    own, made = vars(cls), _Made()
    given: dict[str, Any] = {"__init__": made.first_init(frozen=frozen), "__repr__": made.late("__repr__", _make_repr)}
    if eq:
        given["__eq__"] = made.late("__eq__", _make_eq)
        given["__hash__"] = made.late("__hash__", _make_hash) if frozen else None
    if order:
        given |= {name: made.late(name, partial(_make_order, compare)) for name, compare in _ORDER.items()}
    if frozen:
        given |= {"__setattr__": _refuse_set, "__delattr__": _refuse_delete}
        if slots:
            given |= {"__getstate__": _get_state, "__setstate__": _set_state}
    unhashed = "__eq__" in own and own.get("__hash__") is None
    added = {name: one for name, one in given.items() if name not in own or (unhashed and name == "__hash__")}
    added[PARAMS] = params_of(frozen=frozen, slots=slots, kw_only=kw_only, eq=eq, order=order)
    shape = read_shape(cls, kw_only=kw_only) if slots else None
    if shape is not None:
        made.cls, made.shape = make_slotted(cls, shape, added), shape
        return made.cls
    derived = any(hasattr(base, FIELDS) for base in cls.__bases__)
    # What fields of several classes are together, it alone tells: then it makes its own first, and may complain.
    made.cls = _make_fields(cls, slots=slots, kw_only=kw_only, init=derived, frozen=frozen and derived)
    made.shape = shape_of(made.cls)
    for name, one in added.items():
        setattr(made.cls, name, one)
    return made.cls


def _make_fields(cls: type[Any], **options: bool) -> type[Any]:
    """The standard library reads every annotation that is text, in search of two special ones, which takes half of all
    its time here: where there is neither, it is shown others meanwhile."""
    kinds = cls.__annotations__
    shown = kinds if is_special(kinds) else dict.fromkeys(kinds, object)
    cls.__annotations__ = shown
    made: type[Any] = dataclasses.dataclass(repr=False, eq=False, **options)(cls)
    if shown is not kinds:
        made.__annotations__ = kinds
        for name, kind in kinds.items():
            made.__dataclass_fields__[name].type = kind
    return made


class _Made:
    """A class whose methods are made when they are first called: most of a short command's never are."""

    __slots__ = ("cls", "shape")

    def __init__(self) -> None:
        self.cls: type[Any] = object
        self.shape: Shape = _NOTHING

    def late(self, name: str, make: Callable[[Shape], Callable[..., Any]]) -> Callable[..., Any]:
        def method(value: Any, /, *others: Any) -> Any:
            ready = make(self.shape)
            setattr(self.cls, name, ready)
            return ready(value, *others)

        return method

    def first_init(self, *, frozen: bool) -> Callable[..., None]:
        """Fills in the first few values field by field; a class that is made more often gets a function of its own. So
        does a call with wrong arguments, which then says what is wrong."""
        count = 0

        def __init__(value: Any, /, *args: Any, **kwargs: Any) -> None:
            nonlocal count
            count += 1
            cls = self.cls
            named = _named(self.shape, args, kwargs) if args else kwargs
            values = None if count > MADE_BEFORE_COMPILED else self.shape.fill(named)
            if values is None:
                init = _compile_init(cls, self.shape, frozen=frozen)
                cls.__init__ = init
                init(value, *args, **kwargs)
                return
            for name, one in values.items():
                _set(value, name, one)
            if hasattr(cls, "__post_init__"):
                value.__post_init__()

        return __init__


_set = object.__setattr__
_NOTHING = Shape({}, {}, {}, kw_only=False)


def _named(shape: Shape, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """Both kinds of arguments by name. Too many, or one given twice: something that fits no class."""
    names = [name for name, _, _, init, by_name in shape.parts() if init and not by_name]
    if len(args) > len(names) or not given.keys().isdisjoint(names[: len(args)]):
        return {"": None}
    return {**given, **dict(zip(names, args, strict=False))}


def _compile_init(cls: type[Any], shape: Shape, *, frozen: bool) -> Callable[..., None]:
    # Names of our own that no field has.
    known: dict[str, Any] = {"_values_set": _set, "_values_MISSING": _MISSING}
    plain: list[str] = []
    named: list[str] = []
    defaults: dict[str, Any] = {}
    body: list[tuple[str, str]] = []
    for name, default, factory, init, by_name in shape.parts():
        value = name
        if factory is not MISSING:
            known[f"_values_factory_{name}"], defaults[name] = factory, _MISSING
            value = f"_values_factory_{name}()"
            value = f"{value} if {name} is _values_MISSING else {name}" if init else value
        elif default is not MISSING:
            known[f"_values_default_{name}"] = defaults[name] = default
            value = name if init else f"_values_default_{name}"
        elif not init:
            continue
        if init:
            (named if by_name else plain).append(name)
        body.append((name, value))
    lines = _assign(cls, body, known) if frozen else [f"_values_self.{name} = {value}" for name, value in body]
    if hasattr(cls, "__post_init__"):
        lines.append("_values_self.__post_init__()")
    parameters = ", ".join(["_values_self", *plain, *(["*", *named] if named else [])])
    text = f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"])
    code = next(one for one in compile(text, "<values>", "exec").co_consts if isinstance(one, CodeType))
    made = FunctionType(code, known, "__init__", tuple(defaults[name] for name in plain if name in defaults))
    made.__kwdefaults__ = {name: defaults[name] for name in named if name in defaults}
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _assign(cls: type[Any], body: Sequence[tuple[str, str]], known: dict[str, Any]) -> list[str]:
    """The lines that fill in a frozen value. Each `object.__setattr__` is a call, of which every call of a tool would
    make hundreds. So a value of a plain class is filled in as one of its twin, a class of the same slots that is not
    frozen, and is made its own class's before anybody sees it."""
    one_by_one = [f"_values_set(_values_self, {name!r}, {value})" for name, value in body]
    twin = _make_twin(cls)
    if twin is None or len(body) < 2:
        return one_by_one
    known |= {"_values_cls": cls, "_values_twin": twin}
    return [
        "if _values_self.__class__ is _values_cls:",
        "  _values_set(_values_self, '__class__', _values_twin)",
        *(f"  _values_self.{name} = {value}" for name, value in body),
        "  _values_self.__class__ = _values_cls",
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


def _make_eq(shape: Shape) -> Callable[[Any, object], bool]:
    get = _getter(shape.names_with("compare"))

    def __eq__(self: Any, other: object) -> bool:
        if self is other:
            return True  # as the tuples of its fields would be: they compare what is in them in this order, too
        return get(self) == get(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _make_order(compare: Callable[[Any, Any], bool], shape: Shape) -> Callable[[Any, object], bool]:
    get = _getter(shape.names_with("compare"))
    return lambda self, other: compare(get(self), get(other)) if other.__class__ is self.__class__ else NotImplemented


_ORDER: dict[str, Callable[[Any, Any], bool]] = {"__lt__": lt, "__le__": le, "__gt__": gt, "__ge__": ge}


def _make_hash(shape: Shape) -> Callable[[Any], int]:
    get = _getter(shape.names_with("hash"))
    return lambda self: hash(get(self))


def _make_repr(shape: Shape) -> Callable[[Any], str]:
    names = shape.names_with("repr")

    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refuse_set(self: object, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: object, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in shape_of(self.__class__).kinds]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(shape_of(self.__class__).kinds, state, strict=True):
        _set(self, name, value)
