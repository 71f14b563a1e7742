"""Classes of every make, by ours and by the standard library: whatever is done with them, both do the same."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import field
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra import values
from palyra.values import dataclass

T = TypeVar("T")
Decorate = Callable[..., Any]
BOTH: tuple[Decorate, Decorate] = (dataclass, dataclasses.dataclass)
OPTIONS = st.fixed_dictionaries({name: st.booleans() for name in ("frozen", "slots", "kw_only", "eq", "order")})
NAMES = ("a", "b", "_c", "self", "value", "args", "_set", "_self", "_cls", "_twin", "_MISSING", "_default_a")
FLAGS = st.fixed_dictionaries(
    {}, optional={"init": st.booleans(), "repr": st.booleans(), "compare": st.booleans(), "kw_only": st.booleans()}
)
DEFAULTS = st.one_of(
    st.just(("none", {})),
    st.just(("none", {})),
    st.sampled_from([1, "x", (), None]).map(lambda one: ("plain", one)),
    FLAGS.map(lambda flags: ("field", flags)),
    FLAGS.map(lambda flags: ("field", {**flags, "default": 3})),
    FLAGS.map(lambda flags: ("field", {**flags, "default_factory": list})),
    st.just(("field", {"default": 3, "hash": False, "metadata": {"told": 1}})),
    st.just(("plain", [])),
    st.just(("field", {"default": {}})),
    st.just(("plain", property(len))),
)
WRITTEN = st.dictionaries(st.sampled_from(NAMES), DEFAULTS, max_size=5)
METHODS: dict[str, Any] = {
    "__repr__": lambda self: "own",
    "__eq__": lambda self, other: True,
    "__hash__": lambda self: 7,
    "__lt__": lambda self, other: True,
    "__setattr__": object.__setattr__,
    "__post_init__": lambda self: None,
}
BODIES = st.sets(st.sampled_from(sorted(METHODS)), max_size=2)


class Plain:
    """Has something of a field's name."""

    b = 9


class Slotted:
    __slots__ = ("a",)


def _make(decorate: Decorate, written: dict[str, Any], options: dict[str, bool], body: set[str], bases: Any) -> Any:
    space: dict[str, Any] = {"__annotations__": dict.fromkeys(written, "int"), "__doc__": "-", "__module__": __name__}
    for name, (kind, default) in written.items():
        if kind != "none":
            space[name] = field(**default) if kind == "field" else default
    space |= {name: METHODS[name] for name in body}
    return decorate(**options)(type("Value", bases(decorate, options), space))


def _derived(decorate: Decorate, options: dict[str, bool]) -> tuple[type, ...]:
    return (_make(decorate, {"z": ("plain", 0)}, {**options, "order": False}, set(), lambda *_: ()),)


def _of_thawed(decorate: Decorate, options: dict[str, bool]) -> tuple[type, ...]:
    return (_make(decorate, {"z": ("plain", 0)}, {"frozen": False}, set(), lambda *_: ()),)


BASES = st.sampled_from([lambda *_: (), lambda *_: (Plain,), lambda *_: (Slotted,), _derived, _of_thawed])


def _said(work: Callable[[], Any]) -> Any:
    """What came of it, or which complaint."""
    try:
        return work()
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        return type(error)


def _fields(cls: Any) -> Any:
    names = ("name", "type", "default", "init", "repr", "hash", "compare", "kw_only")
    return [[repr(getattr(one, name)) for name in names] + [dict(one.metadata)] for one in dataclasses.fields(cls)]


def _told_of_class(cls: Any) -> Any:
    params = cls.__dataclass_params__
    flags = [getattr(params, name) for name in ("init", "repr", "eq", "order", "frozen")]
    slots = vars(cls).get("__slots__")
    return _fields(cls), cls.__match_args__, flags, slots, cls.__hash__ is None, cls.__qualname__, cls.__doc__


def _hashes_are_one(one: object, other: object) -> bool:
    """Of two that live at the same time."""
    return hash(one) == hash(other)


def _told_of_value(cls: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    def made() -> Any:
        return cls(*args, **named)

    # Of a name that is no field's some Pythons say strange things; a default that is never given may be the class's.
    first = next((one.name for one in dataclasses.fields(cls) if one.init), None)
    return [
        _said(work)
        for work in (
            lambda: repr(made()),
            lambda: (made() == made(), made() != made(), made() == 3, made() == made().__class__),
            lambda: _hashes_are_one(made(), made()),
            lambda: (made() < made(), made() >= made()),
            lambda: repr(copy.copy(made())),
            lambda: repr(copy.deepcopy(made())),
            lambda: repr(dataclasses.replace(made())),
            lambda: repr(dataclasses.replace(made(), a=[5])),
            lambda: dataclasses.asdict(made()),
            lambda: first and setattr(made(), first, 5),
            lambda: first and delattr(made(), first),
            lambda: weakref.ref(made()) is None,
            lambda: made().__getstate__() == made().__getstate__(),
        )
    ]


@given(WRITTEN, OPTIONS, BODIES, BASES, st.integers(0, 3), st.sets(st.sampled_from(NAMES), max_size=4))
def test_any_class_is_as_the_standard_library_makes_it(written, options, body, bases, placed, names):
    ours, theirs = (_said(lambda one=one: _make(one, written, options, body, bases)) for one in BOTH)
    if not (isinstance(ours, type) and hasattr(ours, "__dataclass_fields__")):
        assert ours is theirs, "the same complaint"
        return
    assert hasattr(theirs, "__dataclass_fields__"), "ours complained of nothing"
    args, named = tuple(range(placed)), dict.fromkeys(sorted(names), 2)
    fits = {one.name: 4 for one in dataclasses.fields(theirs) if one.init}
    for _ in (0, values.MADE_BEFORE_COMPILED):  # before its function is compiled, and then
        for given_args, given_named in ((args, {}), ((), fits), (args, named)):
            assert _told_of_value(ours, given_args, given_named) == _told_of_value(theirs, given_args, given_named)
        for _ in range(values.MADE_BEFORE_COMPILED):
            _said(lambda: ours(**fits))
    assert _told_of_class(ours) == _told_of_class(theirs)


@pytest.mark.parametrize("decorate", BOTH)
@pytest.mark.parametrize("options", [{}, {"slots": True}, {"frozen": True, "slots": True}])
def test_a_value_that_holds_itself_can_be_shown(decorate, options):
    value = _make(decorate, {"a": ("none", {})}, options, set(), lambda *_: ())([])
    value.a.append(value)
    assert repr(value) == "Value(a=[...])"


@pytest.mark.parametrize("decorate", BOTH)
def test_the_standard_library_derives_from_a_frozen_value(decorate):
    base = _make(decorate, {"a": ("none", {})}, {"frozen": True, "slots": True}, set(), lambda *_: ())

    @dataclasses.dataclass(frozen=True)
    class Derived(base):  # type: ignore[misc]
        b: int = 2

    assert (Derived(1).a, Derived(1) == Derived(1, 2)) == (1, True)
    with pytest.raises(TypeError, match="frozen"):
        dataclasses.dataclass(type("Thawed", (base,), {"__annotations__": {"b": "int"}}))


@dataclass(frozen=True, slots=True)
class Held(Generic[T]):
    what: T
    more: tuple[T, ...] = ()


def test_a_generic_value_is_made_matched_and_pickled():
    value = Held[int](1, more=(2,))
    match value:
        case Held(what, more=(two,)):
            assert (what, two) == (1, 2)
        case _:
            raise AssertionError
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value


@pytest.mark.parametrize("options", [{"slots": True}, {"frozen": True, "slots": True}, {"frozen": True}])
def test_threads_that_make_the_first_values_at_the_same_time_make_whole_ones(options):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            wrong = _make_in_threads(options)
            assert wrong == []
    finally:
        sys.setswitchinterval(before)


def _make_in_threads(options: dict[str, bool]) -> list[object]:
    written = {"a": ("none", {}), "b": ("field", {"default_factory": list}), "_c": ("plain", 3)}
    cls = _make(dataclass, written, options, set(), lambda *_: ())
    wrong: list[object] = []
    ready = threading.Barrier(4)

    def work(number: int) -> None:
        ready.wait()
        for _ in range(values.MADE_BEFORE_COMPILED):
            value = cls(number)
            told = (type(value), value.a, value.b, value._c, [one.name for one in dataclasses.fields(value)])
            if told != (cls, number, [], 3, ["a", "b", "_c"]) or value != cls(number):
                wrong.append((told, repr(value)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return wrong
