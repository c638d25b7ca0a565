"""Makes records from the JSON of another machine: types are checked, texts cleaned, numbers bounded.

Dataclasses are enough for a reply: here pydantic would take 13 MiB, and 0.2 s of a start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from sparktop.model.text import clean

TEXT_LIMIT = 400
SHORT_LIMIT = 120
"""Most characters of a name in a list, of which there may be thousands."""
LARGEST = 1e18
"""Largest plausible number: an exabyte, thirty billion years."""

MOST_ITEMS = 64
"""Most entries of a list or mapping that is not named below."""
MOST: Mapping[str, int] = {
    "NodeSample.gpus": 64,
    "NodeSample.gpus_lost": 64,
    "NodeSample.network": 128,
    "NodeSample.sensors": 64,
    "NodeSample.rails": 64,
    "Reply.samples": 300,
    "CpuReading.core_percent": 4096,
    "CoreGroup.cores": 4096,
    "GpuReading.processes": 256,
    "GpuReading.mig_instances": 64,
    "Workloads.processes": 64,
    "KernelLog.lines": 64,
    "NodeIdentity.addresses": 64,
    "ProcessTable.processes": 200,
    "RanksAnswer.communicators": 1024,
    "Communicator.ranks": 4096,
    "Communicator.missing": 4096,
}
"""Most entries of these lists: no machine has more, and no reader sends more."""
_SHORT = frozenset({"name", "kind", "uuid", "netdev", "container", "container_name"})
"""Fields that are names."""

Value = TypeVar("Value")
_Read = Callable[[Any], Any]


class UnfitError(Exception):
    """Raised for a value that is not of the type that its place needs; `path` leads to it."""

    def __init__(self, message: str) -> None:
        """Store `message`, which says what is wrong there."""
        super().__init__(message)
        self.message = message
        self.path: list[str] = []

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.path)) or 'its top level'}: {self.message}"


def read_json(kind: type[Value], body: bytes) -> Value:
    """Return the dataclass `kind` that JSON in UTF-8 holds: unknown fields are ignored, defaults filled in.

    Raises:
        ValueError, RecursionError: the bytes are not JSON.
        UnfitError: a field is missing or of another type, or a number is implausibly large or not finite.
    """
    return cast("Value", _reader(cast("Any", kind))(json.loads(body)))


@cache
def _reader(kind: Any, most: int = MOST_ITEMS, longest: int = TEXT_LIMIT) -> _Read:  # noqa: ANN401 - a type
    """Return the function that checks and converts a value of JSON to the type `kind`.

    A list or mapping has at most `most` entries; a longer text is cut after `longest` characters.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is str or kind in _PLAIN:
        return _PLAIN.get(kind) or _text(longest)
    if origin in {Union, UnionType} and len(some := [one for one in arguments if one is not NoneType]) == 1:
        return _optional(_reader(some[0], most, longest))
    if origin is tuple and len(arguments) > 1 and arguments[1] is Ellipsis:
        return _items(_reader(arguments[0], longest=SHORT_LIMIT), most)
    if origin is Mapping and arguments[0] is str:
        return _mapping(_reader(arguments[1], longest=SHORT_LIMIT), most)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _Record(kind)
    raise TypeError(f"no reader of {kind}")


def _text(longest: int) -> _Read:
    def text(value: object) -> str:
        if not isinstance(value, str):
            raise UnfitError("not a text")
        return clean(value, longest)

    return text


def _truth(value: object) -> bool:
    if value is True or value is False:
        return value
    raise UnfitError("neither true nor false")


def _whole(value: object) -> int:
    if type(value) is not int:
        raise UnfitError("not a whole number")
    if not -LARGEST <= value <= LARGEST:
        raise UnfitError("a number that is not a reading")
    return value


def _number(value: object) -> float:
    if type(value) is not float and type(value) is not int:
        raise UnfitError("not a number")
    if not -LARGEST <= value <= LARGEST:
        raise UnfitError("a number that is not a reading")
    return float(value)


_PLAIN: Mapping[Any, _Read] = {bool: _truth, int: _whole, float: _number}


def _optional(read: _Read) -> _Read:
    return lambda value: None if value is None else read(value)


def _items(read: _Read, most: int) -> _Read:
    def items(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise UnfitError("not a list")
        if len(value) > most:
            raise UnfitError(f"{len(value)} entries, more than {most}")
        place = 0
        try:
            found = []
            for item in value:
                found.append(read(item))
                place += 1
        except UnfitError as error:
            error.path.append(str(place))
            raise
        return tuple(found)

    return items


def _mapping(read: _Read, most: int) -> _Read:
    def mapping(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise UnfitError("not an object")
        if len(value) > most:
            raise UnfitError(f"{len(value)} entries, more than {most}")
        return {clean(name, SHORT_LIMIT): read(item) for name, item in value.items()}

    return mapping


def _member(kind: type[Enum]) -> _Read:
    known = {one.value: one for one in kind}

    def member(value: object) -> Enum:
        found = known.get(value) if isinstance(value, str) else None
        if found is None:
            raise UnfitError("a word that is not known")
        return found

    return member


class _Record:
    """Reads one dataclass from an object of JSON; its fields are looked up at the first call."""

    def __init__(self, kind: type[Any]) -> None:
        """Read values of the dataclass `kind`, which may contain itself."""
        self._kind = kind
        self._fields: dict[str, _Read] | None = None
        self._needed: frozenset[str] = frozenset()

    def __call__(self, value: object) -> Any:  # noqa: ANN401 - a value of `kind`
        """Return the dataclass that `value` describes."""
        if not isinstance(value, dict):
            raise UnfitError("not an object")
        known = self._fields
        if known is None:
            known = self._learn()
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, item in value.items():
                read = known.get(name)
                if read is not None:
                    found[name] = read(item)
        except UnfitError as error:
            error.path.append(name)
            raise
        if missing := self._needed - found.keys():
            raise UnfitError(f"without {min(missing)}")
        return self._kind(**found)

    def _learn(self) -> dict[str, _Read]:
        kinds = get_type_hints(self._kind)
        own = fields(self._kind)
        self._needed = frozenset(
            one.name for one in own if one.default is MISSING and one.default_factory is MISSING
        )
        self._fields = {
            one.name: _reader(
                kinds[one.name],
                MOST.get(f"{self._kind.__name__}.{one.name}", MOST_ITEMS),
                SHORT_LIMIT if one.name in _SHORT else TEXT_LIMIT,
            )
            for one in own
        }
        return self._fields
