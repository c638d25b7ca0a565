"""The decorator of this package's values: dataclasses with slots that cost little to define and to create.

The standard decorator compiles seven functions for each frozen class, which makes up a third of the time to
the first picture, and a frozen instance is created with a slow call for each field. Here `__init__` is the
only compiled function, and it is compiled when the first instance is created: most classes that a start loads
have none before the first picture. The other methods are shared, and that nothing is assigned to a frozen
instance is left to the type checker, which sees the standard decorator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    from collections.abc import Callable, Container
    from dataclasses import dataclass as _dataclass
    from dataclasses import fields
    from operator import attrgetter
    from threading import RLock

    _COMPLETING = RLock()
    _MADE_LATE = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
    _UNUSUAL = ("ClassVar", "InitVar", "KW_ONLY")
    """Annotations of what is not a field; a class with one is completed at once."""

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True) -> Callable[[type], type]:
        """Return a decorator like that of the standard library, without checks against assignment."""

        def make(cls: type) -> type:
            own = vars(cls)
            kinds = cls.__annotations__.values()
            usual = slots and cls.__bases__ == (object,) and "__init__" not in own
            if not usual or any(word in kind for kind in kinds for word in _UNUSUAL):
                made = _dataclass(slots=slots, eq=False, repr=False)(cls)
            else:
                made = _with_slots(cls)
            if "__repr__" not in own:
                made.__repr__ = _repr
            if eq:
                _add_equality(made, own.keys(), hashable=frozen)
            return made

        return make

    _COPIED = {}
    """For each class of which `replace` was called: a function that reads all fields, and their places."""

    def replace(value: object, /, **changes: object) -> object:
        """Return a copy of a value with other values of some fields, in a third of the standard time."""
        cls = value.__class__
        read, places = _COPIED.get(cls) or _learn(cls)
        copied = list(read(value))
        for name, changed in changes.items():
            copied[places[name]] = changed
        return cls(*copied)

    def _learn(cls: type) -> tuple[Callable[[object], tuple[object, ...]], dict[str, int]]:
        names = [one.name for one in fields(cls)]
        single = attrgetter(names[0])
        read = attrgetter(*names) if len(names) > 1 else lambda value: (single(value),)
        _COPIED[cls] = read, {name: place for place, name in enumerate(names)}
        return _COPIED[cls]

    class _Late:
        """An attribute of a class that is computed when it is first read."""

        __slots__ = ("complete", "name")

        def __init__(self, name: str, complete: Callable[[], None]) -> None:
            """Call `complete`, which replaces this attribute `name` of the class."""
            self.name = name
            self.complete = complete

        def __get__(self, instance: object, owner: type) -> object:
            """Return the attribute's value."""
            self.complete()
            return getattr(owner, self.name)

    def _with_slots(cls: type) -> type:
        """Return a copy of `cls` with slots; what the standard library compiles follows when it is needed."""
        names = tuple(cls.__annotations__)
        kept = {name: value for name, value in vars(cls).items() if name not in names}
        for unwanted in ("__dict__", "__weakref__"):
            kept.pop(unwanted, None)
        made = type(cls)(cls.__name__, cls.__bases__, {**kept, "__slots__": names})
        made.__qualname__ = cls.__qualname__

        def complete() -> None:
            with _COMPLETING:
                if made.__init__ is not __init__:  # another thread was faster
                    return
                complete_class = _dataclass(slots=True, eq=False, repr=False)(cls)
                for name in (*_MADE_LATE, "__init__"):
                    setattr(made, name, vars(complete_class)[name])

        def __init__(self: object, *values: object, **named: object) -> None:  # noqa: N807 - as below
            complete()
            self.__init__(*values, **named)

        made.__init__ = __init__
        for name in _MADE_LATE:
            setattr(made, name, _Late(name, complete))
        return made

    def _repr(self: object) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _add_equality(cls: type, own: Container[str], *, hashable: bool) -> None:
        values = None

        def compared() -> Callable[[object], object]:
            nonlocal values
            names = [one.name for one in fields(cls) if one.compare]
            values = attrgetter(*names) if names else lambda _: ()
            return values

        def __eq__(self: object, other: object) -> bool:  # noqa: N807 - it becomes a method
            if other.__class__ is self.__class__:
                get = values or compared()
                return get(self) == get(other)
            return NotImplemented

        def __hash__(self: object) -> int:  # noqa: N807 - it becomes a method
            return hash((values or compared())(self))

        if "__eq__" not in own:
            cls.__eq__ = __eq__
        if "__hash__" not in own:
            cls.__hash__ = __hash__ if hashable else None


__all__ = ["dataclass", "replace"]
