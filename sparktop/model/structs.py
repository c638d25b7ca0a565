"""What `msgspec.Struct` has no setting for: fields that do not count for a value's text or its equality."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

from msgspec import Struct

Value = TypeVar("Value", bound=Struct)


def hide_in_repr(*names: str) -> Callable[[type[Value]], type[Value]]:
    """Return a decorator: the text of a value leaves out the fields `names`, secrets or what is long."""

    def decorate(cls: type[Value]) -> type[Value]:
        shown = [name for name in cls.__struct_fields__ if name not in names]

        def text(self: Value) -> str:
            return f"{cls.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

        cls.__repr__ = text  # type: ignore[assignment,method-assign]  # that is what the decorator is for
        return cls

    return decorate


def compare_without(*names: str) -> Callable[[type[Value]], type[Value]]:
    """Return a decorator: values that differ only in the fields `names` are equal, and have one hash."""

    def decorate(cls: type[Value]) -> type[Value]:
        compared = attrgetter(*(name for name in cls.__struct_fields__ if name not in names))

        def equal(self: Value, other: object) -> bool:
            return other.__class__ is self.__class__ and bool(compared(self) == compared(other))

        cls.__eq__ = equal  # type: ignore[assignment,method-assign]  # that is what the decorator is for
        cls.__hash__ = lambda self: hash(compared(self))  # type: ignore[method-assign]  # as above
        return cls

    return decorate
