"""Records from another machine's JSON: types, bounds, texts, and where a fault is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from sparktop.model.failure import FailureKind
from sparktop.sources.wire.records import UnfitError, read_json


@dataclass(frozen=True)
class Part:
    """A part of a record, which may have parts of its own."""

    name: str
    value: float | None = None
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Whole:
    """A record with a field of each kind that replies have."""

    count: int
    parts: tuple[Part, ...] = ()
    on: bool | None = None
    kind: FailureKind = FailureKind.INTERNAL
    shares: Mapping[str, float | None] = field(default_factory=dict)


def test_a_record_is_read_with_all_its_parts() -> None:
    """Unknown fields are ignored, missing ones have their defaults, and whole numbers serve as numbers."""
    part = {"name": "a\x1b[31mb", "value": 3, "parts": [{"name": "c", "new": [1]}]}
    body = {"count": 2, "parts": [part], "kind": "time-out", "shares": {"x\n": None, "y": 0.5}, "other": {}}
    body["kind"] = FailureKind.REFUSED.value
    read = read_json(Whole, json.dumps(body).encode())
    inner = read.parts[0]
    assert "\x1b" not in inner.name
    assert (type(inner.value), inner.value) == (float, 3.0)
    assert inner.parts == (Part("c"),)
    assert (read.count, read.on, read.kind) == (2, None, FailureKind.REFUSED)
    assert sorted(read.shares.values(), key=str) == [0.5, None]
    assert not any("\n" in name for name in read.shares)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("[]", "its top level: not an object"),
        ("{}", "its top level: without count"),
        ('{"count": 1.5}', "count: not a whole number"),
        ('{"count": true}', "count: not a whole number"),
        ('{"count": 10000000000000000000000}', "count: a number that is not a reading"),
        ('{"count": 1, "on": 1}', "on: neither true nor false"),
        ('{"count": 1, "kind": "x"}', "kind: a word that is not known"),
        ('{"count": 1, "kind": ["x"]}', "kind: a word that is not known"),
        ('{"count": 1, "shares": []}', "shares: not an object"),
        ('{"count": 1, "shares": {"a": "b"}}', "shares: not a number"),
        ('{"count": 1, "parts": {}}', "parts: not a list"),
        ('{"count": 1, "parts": [{"name": "a"}, {"name": 3}]}', "parts.1.name: not a text"),
        ('{"count": 1, "parts": [{"name": "a", "value": NaN}]}', "parts.0.value: a number that is"),
        ('{"count": 1, "parts": [{"name": "a", "value": -1e19}]}', "parts.0.value: a number that is"),
        ('{"count": 1, "parts": [{"name": "a", "parts": [{}]}]}', "parts.0.parts.0: without name"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(body: str, words: str) -> None:
    """The path to the field, and what is wrong there."""
    with pytest.raises(UnfitError) as raised:
        read_json(Whole, body.encode())
    assert str(raised.value).startswith(words)
