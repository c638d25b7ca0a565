"""The decorator of this package's values: dataclasses that cost little when they are defined and created.

The standard decorator compiles seven functions for each frozen class, which makes up a third of the time to
the first picture, and a frozen instance is created with a slow call for each field. Here `__init__` is the
only compiled function. The others are shared, and that nothing is assigned to a frozen instance is left to
the type checker, which sees the standard decorator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from collections.abc import Callable, Container
    from dataclasses import dataclass as _dataclass
    from dataclasses import fields
    from operator import attrgetter

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True) -> Callable[[type], type]:
        """Return a decorator like that of the standard library, without checks against assignment."""

        def make(cls: type) -> type:
            own = vars(cls).keys() & {"__repr__", "__eq__", "__hash__"}
            made = _dataclass(slots=slots, eq=False, repr=False)(cls)
            if "__repr__" not in own:
                made.__repr__ = _repr
            if eq:
                _add_equality(made, own, hashable=frozen)
            return made

        return make

    def _repr(self: object) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _add_equality(cls: type, own: Container[str], *, hashable: bool) -> None:
        names = [one.name for one in fields(cls) if one.compare]
        values = attrgetter(*names) if names else lambda _: ()

        def __eq__(self: object, other: object) -> bool:  # noqa: N807 - it becomes a method
            if other.__class__ is self.__class__:
                return values(self) == values(other)
            return NotImplemented

        def __hash__(self: object) -> int:  # noqa: N807 - it becomes a method
            return hash(values(self))

        if "__eq__" not in own:
            cls.__eq__ = __eq__
        if "__hash__" not in own:
            cls.__hash__ = __hash__ if hashable else None


__all__ = ["dataclass"]
