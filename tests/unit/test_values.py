"""Values of ours behave as the standard library's dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, InitVar, field, fields, replace
from typing import Any, ClassVar

import pytest

from palyra import values
from palyra.values import change, dataclass

OPTIONS: tuple[dict[str, bool], ...] = (
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"eq": False},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list, compare=False)
    length: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("below")
        object.__setattr__(self, "length", self.x + self.y)


@dataclass(frozen=True, slots=True)
class Pair:
    left: str
    right: str = "r"


@dataclass(slots=True)
class Count:
    number: int = 0


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


def make_pair(make: Any, **options: Any) -> tuple[Any, Any]:
    """The same class twice: by ours and by the standard library."""
    return tuple(make(with_it, options) for with_it in (dataclass, dataclasses.dataclass))  # type: ignore[return-value]


def _make_with_kind(decorate: Any, options: dict[str, Any]) -> Any:
    class Value:
        """Said."""

        kind: ClassVar[str] = "k"
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        d: int = field(default=4, repr=False, compare=False)
        e: int = field(default=5, init=False)

    return decorate(**options)(Value)


def _make(decorate: Any, options: dict[str, Any]) -> Any:
    class Value:
        """Said."""

        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        d: int = field(default=4, repr=False, compare=False)
        e: int = field(default=5, init=False)

    return decorate(**options)(Value)


@pytest.mark.parametrize("make", [_make, _make_with_kind])
@pytest.mark.parametrize("options", [o | more for o in OPTIONS for more in ({}, {"kw_only": True})], ids=str)
def test_a_class_gets_what_the_standard_library_gives(options, make):
    ours, theirs = make_pair(make, **options)
    one, other = ours(a=1, b="x"), theirs(a=1, b="x")
    assert repr(one) == repr(other)
    assert [(f.name, f.type, f.init, f.compare, f.kw_only) for f in fields(ours)] == [
        (f.name, f.type, f.init, f.compare, f.kw_only) for f in fields(theirs)
    ]
    assert inspect.get_annotations(ours) == inspect.get_annotations(theirs)
    assert ours.__match_args__ == theirs.__match_args__
    assert (one == ours(a=1, b="x")) == (other == theirs(a=1, b="x"))
    assert one != ours(a=2, b="x")
    assert (one == ours(a=1, b="x", d=9)) == (other == theirs(a=1, b="x", d=9))
    assert one != other
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    for number in range(values.MADE_BEFORE_COMPILED + 2):
        assert ours(a=number) == theirs(a=number) or repr(ours(a=number)) == repr(theirs(a=number))
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    assert hasattr(one, "__dict__") == hasattr(other, "__dict__")
    assert dataclasses.asdict(one) == dataclasses.asdict(other)
    if not options.get("kw_only"):
        assert repr(ours(1, "y", [2])) == repr(theirs(1, "y", [2]))


@pytest.mark.parametrize("given", [{}, {"x": 1, "z": 2}, {"x": 1, "length": 3}])
def test_wrong_arguments_are_type_errors(given):
    for _ in range(2):  # before and after its function was compiled
        with pytest.raises(TypeError):
            Point(**given)
        Point(x=1)
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[misc]


def test_a_frozen_value_stays_as_it_is():
    point = Point(x=1)
    for name in ("x", "length", "unknown"):
        with pytest.raises(FrozenInstanceError):
            setattr(point, name, 2)
        with pytest.raises(FrozenInstanceError):
            delattr(point, name)
    assert point == Point(x=1)


def test_what_is_checked_when_a_value_is_made_is_checked_every_time():
    for _ in range(values.MADE_BEFORE_COMPILED + 2):
        with pytest.raises(ValueError, match="below"):
            Point(x=-1)
        with pytest.raises(ValueError, match="below"):
            replace(Point(x=1), x=-2)


def test_values_are_replaced_copied_and_pickled():
    point = Point(x=1, tags=["t"])
    assert replace(point, y=5) == Point(x=1, y=5)
    assert replace(point, y=5).length == 6
    for again in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert (again, again.tags, again.length) == (point, ["t"], 1)


def test_hash_follows_equality():
    assert hash(Point(x=1, tags=["a"])) == hash(Point(x=1))
    assert len({Pair("a"), Pair("a", "r"), Pair("b")}) == 2
    assert hash(Nothing()) == hash(Nothing())
    with pytest.raises(TypeError, match="unhashable"):
        hash(Count())


def test_each_value_has_its_own_defaults():
    first, second = Point(x=1), Point(x=1)
    first.tags.append("a")
    assert second.tags == []


def test_a_class_keeps_methods_of_its_own():
    @dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            return True

    assert (repr(Own(1)), hash(Own(1)), Own(1) == 5) == ("own", 7, True)


def test_a_class_with_its_own_equality_alone_is_hashed_as_the_standard_library_hashes_it():
    def make(decorate: Any) -> Any:
        class Own:  # noqa: PLW1641  # that is the question
            a: int

            def __eq__(self, other: object) -> bool:
                return True

        Own.__annotations__ = {"a": int}
        return decorate(frozen=True)(Own)

    assert hash(make(dataclass)(3)) == hash(make(dataclasses.dataclass)(3)) == hash((3,))


def test_inherited_fields_come_first():
    @dataclass(frozen=True, slots=True)
    class Base:
        a: int

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        b: int

    assert (Base(1).a, Derived(1, 2)) == (1, Derived(a=1, b=2))
    assert Base(1) != Derived(1, 2)
    assert repr(Derived(1, 2)).endswith("Derived(a=1, b=2)")


@pytest.mark.parametrize("with_it", [dataclass, dataclasses.dataclass])
def test_an_ordered_value_is_ordered_by_what_is_compared(with_it):
    @with_it(frozen=True, slots=True, order=True)
    class Ordered:
        a: int
        note: str = field(default="", compare=False)
        b: str = ""

    low, same, high = Ordered(1, "z", "x"), Ordered(1, "y", "x"), Ordered(1, "a", "y")
    assert sorted([high, low]) == [low, high]
    assert (low < high, low <= same, high > low, low >= same, low < same, low > same) == (True,) * 4 + (False,) * 2
    with pytest.raises(TypeError):
        low < Pair("a")  # noqa: B015


@pytest.mark.parametrize("given", [(1, "x", 3), (1, {"left": 1}), ()])
def test_arguments_by_place_that_do_not_fit_are_type_errors(given):
    @dataclass(frozen=True, slots=True)
    class Two:
        left: int
        right: str = "r"

    named = given[-1] if given and isinstance(given[-1], dict) else {}
    with pytest.raises(TypeError):
        Two(*(one for one in given if one is not named), **named)
    assert (Two(1).right, Two(1, "x"), Two(1, right="x")) == ("r", Two(left=1, right="x"), Two(1, "x"))


def test_matching_by_class_works():
    match Pair("l"):
        case Pair(left, right="r"):
            assert left == "l"
        case _:
            raise AssertionError


def test_what_is_not_done_here_is_done_by_the_standard_library(monkeypatch):
    monkeypatch.setattr(values, "_make", lambda *_, **__: pytest.fail("not ours to make"))

    @dataclass(unsafe_hash=True)
    class Hashed:
        a: int

    @dataclass
    class Fed:
        a: InitVar[int]
        b: int = 0

        def __post_init__(self, a: int) -> None:
            self.b = a

    assert hash(Hashed(1)) == hash(Hashed(1))
    with pytest.raises(ValueError, match="eq must be true"):
        dataclass(order=True, eq=False)(Count)
    assert Fed(3).b == 3


def test_a_value_that_is_made_often_is_of_its_class_and_frozen_whatever_made_it():
    class Near(Pair):
        """Without slots: laid out otherwise."""

    @dataclass(frozen=True, slots=True)
    class Derived(Pair):
        more: int = 3

    for _ in range(values.MADE_BEFORE_COMPILED + 2):
        for cls in (Pair, Near, Derived):
            made = cls("l", right="x")
            assert (type(made), made.left, made.right) == (cls, "l", "x")
            for name in ("left", "__class__"):
                with pytest.raises(FrozenInstanceError):
                    setattr(made, name, Pair)
    assert Derived("l").more == 3


def test_a_value_whose_default_cannot_be_made_is_not_made():
    def fail() -> int:
        raise KeyError("no default")

    @dataclass(frozen=True, slots=True)
    class Fussy:
        a: int
        b: int = field(default_factory=fail)

    for _ in range(values.MADE_BEFORE_COMPILED + 2):
        with pytest.raises(KeyError, match="no default"):
            Fussy(1)
        assert Fussy(1, 2).b == 2


def test_a_value_is_changed_as_the_standard_library_replaces():
    point = Point(x=1, tags=["t"])
    for changes in ({}, {"y": 5}, {"x": 2, "tags": []}):
        changed, replaced = change(point, **changes), replace(point, **changes)
        assert (changed, changed.tags, changed.length) == (replaced, replaced.tags, replaced.length)
    assert change(Pair("a"), right="b") == Pair("a", "b")
    assert change(Nothing()) == Nothing()
    with pytest.raises(ValueError, match="below"):
        change(point, x=-1)
    for wrong in ({"length": 1}, {"unknown": 1}):
        with pytest.raises(TypeError):
            change(point, **wrong)
    assert type(change(Count(3))) is Count


def test_fields_are_made_when_somebody_asks_for_them():
    @dataclass(frozen=True, slots=True)
    class Late:
        a: int
        b: list[int] = field(default_factory=list, repr=False)

    assert (Late(1), hash(Late(1, ())) != 0, repr(Late(1))) == (Late(a=1, b=[]), True, f"{Late.__qualname__}(a=1)")
    assert (values.names_of(Late), values.is_value(Late(1)), values.is_value(Late), values.is_value(3)) == (
        ("a", "b"),
        True,
        False,
        False,
    )
    assert not isinstance(vars(Late)["__dataclass_fields__"], dict)
    assert dataclasses.is_dataclass(Late)
    assert [(f.name, f.type, f.repr) for f in fields(Late)] == [("a", "int", True), ("b", "list[int]", False)]
    assert isinstance(vars(Late)["__dataclass_fields__"], dict)
    assert (values.names_of(Late), replace(Late(1), a=2)) == (("a", "b"), Late(2))


@pytest.mark.parametrize("wrong", [{"a": [], "__annotations__": {"a": "list"}}, {"a": field(default=1)}])
def test_what_the_standard_library_complains_about_it_complains_about(wrong):
    for decorate in (dataclass, dataclasses.dataclass):
        with pytest.raises((TypeError, ValueError)):
            decorate(frozen=True, slots=True)(type("Wrong", (), dict(wrong)))
