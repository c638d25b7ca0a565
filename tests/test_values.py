"""The decorator of value classes: equality, hash and repr as with the standard `dataclass`."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, fields, replace
from threading import Barrier

import pytest

from sparktop import values
from sparktop.values import dataclass


@dataclass(frozen=True, slots=True)
class _Point:
    x: float
    y: float | None = None
    key: str | None = field(default=None, repr=False)
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class _Other:
    x: float
    y: float | None = None


@dataclass(slots=True)
class _Changing:
    count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    x: float


@dataclass(frozen=True, slots=True)
class _Nothing:
    pass


def test_values_are_equal_by_the_fields_that_are_compared() -> None:
    """Fields with `compare=False` do not count, and values of other classes are never equal."""
    assert _Point(1.0, 2.0) == _Point(1.0, 2.0, note="other")
    assert _Point(1.0, 2.0) != _Point(1.0, 3.0)
    other: object = _Other(1.0, 2.0)
    assert _Point(1.0, 2.0) != other
    assert len({_Point(1.0), _Point(1.0), _Point(2.0)}) == 2
    assert _Nothing() == _Nothing()
    assert len({_Nothing(), _Nothing()}) == 1


@dataclass(frozen=True, slots=True)
class _Own:
    names: dict[str, float]

    def __hash__(self) -> int:
        return hash(tuple(self.names))

    def __repr__(self) -> str:
        return "own"


def test_a_copy_differs_in_the_fields_that_are_named() -> None:
    """`replace` returns a copy with other values in the named fields; the original does not change."""
    point = _Point(1.0, note="a")
    assert values.replace(point, y=2.0, note="b") == replace(point, y=2.0, note="b")
    assert values.replace(point, note="b").note == "b"
    assert values.replace(_Same(1.0), x=2.0).x == 2.0
    assert point == _Point(1.0)


def test_a_class_keeps_its_own_methods() -> None:
    """A hash or repr that the class defines itself is not replaced."""
    assert len({_Own({"a": 1.0}), _Own({"a": 1.0})}) == 1
    assert repr(_Own({})) == "own"


def test_values_without_equality_are_equal_to_themselves_alone() -> None:
    """With `eq=False` a value is equal only to itself."""
    one = _Same(1.0)
    assert one == one  # noqa: PLR0124 - the identity is tested
    assert one != _Same(1.0)
    assert len({one, _Same(1.0)}) == 2


def test_what_can_change_has_no_hash() -> None:
    """Only frozen values have a hash."""
    changing = _Changing()
    changing.count += 1
    assert changing == _Changing(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(changing)


def test_secrets_are_not_in_the_text() -> None:
    """Fields with `repr=False` are not in the repr."""
    assert repr(_Point(1.0, key="secret")) == "_Point(x=1.0, y=None, note='')"


def test_they_are_dataclasses_with_slots() -> None:
    """`dataclasses.replace`, `fields` and match patterns work as with the standard decorator."""
    assert dataclasses.is_dataclass(_Point)
    assert [one.name for one in fields(_Point)] == ["x", "y", "key", "note"]
    assert replace(_Point(1.0), y=3.0) == _Point(1.0, 3.0)
    assert not hasattr(_Point(1.0), "__dict__")
    assert _Point.__match_args__ == ("x", "y", "key", "note")


def test_init_is_compiled_with_the_first_instance() -> None:
    """`__init__` is compiled when the first instance is made, and `fields` works before that."""

    @dataclass(slots=True)
    class Late:
        names: list[str] = field(default_factory=list)
        read: bool = field(default=False, init=False)

    before = Late.__init__
    assert (Late().names, Late().read) == ([], False)
    assert Late.__init__ is not before
    assert Late().names is not Late().names

    @dataclass(frozen=True, slots=True)
    class Read:
        count: int = 3

    assert [one.default for one in fields(Read)] == [3]
    assert Read() == Read(3)
    with pytest.raises(TypeError, match="unexpected keyword"):
        Read(other=1)  # type: ignore[call-arg]  # it is to fail


def test_first_instances_of_several_threads() -> None:
    """Threads that create the first instances at the same moment get complete instances."""
    for _ in range(20):

        @dataclass(slots=True)
        class Shared:
            number: int
            names: list[str] = field(default_factory=list)

        together = Barrier(4)

        def create(number: int, made: type[Shared] = Shared, together: Barrier = together) -> list[str]:
            together.wait(30)
            return made(number).names

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(create, range(4))) == [[]] * 4


@dataclass(frozen=True, slots=True)
class _Longer(_Other):
    z: float = 0.0


def test_a_value_may_extend_another() -> None:
    """Fields of the base class come first, also in positional match patterns."""
    match _Longer(1.0, z=2.0):
        case _Longer(x, y, z):
            assert (x, y, z) == (1.0, None, 2.0)
    assert replace(_Longer(1.0), z=5.0) == _Longer(1.0, None, 5.0)
