"""What the reader that is sent over ssh uses of msgspec, made of standard dataclasses.

It is sent as the package `msgspec`: nothing has to be installed on the other machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

__all__ = ["Struct", "field"]


class Struct:
    """A record: its fields are the annotations of the class."""

    __struct_fields__: tuple[str, ...] = ()

    def __init_subclass__(cls, *, frozen: bool = False) -> None:
        """Give a class of records its methods; a dict, list or set as a default is a new one each time."""
        for name in cls.__annotations__:
            default = vars(cls).get(name)
            if isinstance(default, dict | list | set):
                setattr(cls, name, field(default_factory=type(default)))
        dataclass(frozen=frozen)(cls)
        cls.__struct_fields__ = tuple(declared.name for declared in fields(cls))  # type: ignore[arg-type]  # is one now
