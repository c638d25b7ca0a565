"""Records from another machine's JSON: types, bounds, texts, and where a fault is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from typing import get_args, get_origin, get_type_hints

import pytest

from sparktop.model.failure import FailureKind
from sparktop.sources.wire.decode import WireError, decode
from sparktop.sources.wire.records import MOST, MOST_ITEMS, SHORT_LIMIT, TEXT_LIMIT, UnfitError, read_json
from sparktop.sources.wire.reply import Reply


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


def reply(sample: str) -> bytes:
    return f'{{"schema": "sparktop.node/1", "sparktop": "1", "samples": [{{"at": 1.0, {sample}}}]}}'.encode()


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (f'"gpus": [{",".join(["{}"] * 200_000)}]', "samples.0.gpus: 200000 entries, more than 64"),
        (
            f'"gpus": [{{"index": 0, "processes": [{",".join(["{}"] * 9_999)}]}}]',
            "9999 entries, more than 256",
        ),
        (f'"cpu": {{"core_percent": [{",".join(["1"] * 1_000_000)}]}}', "1000000 entries, more than 4096"),
        (f'"processes": {{"processes": [{",".join(["{}"] * 105_000)}]}}', "105000 entries, more than 200"),
        (f'"network": [{",".join(["{}"] * 5_000)}]', "5000 entries, more than 128"),
        (f'"sensors": [{",".join(["{}"] * 5_000)}]', "5000 entries, more than 64"),
        (f'"rails": [{",".join(["{}"] * 5_000)}]', "5000 entries, more than 64"),
        (f'"memory": {{"parts": [{",".join(["{}"] * 5_000)}]}}', "5000 entries, more than 64"),
        (
            '"network": [{"name": "a", "kind": "b", "errors": {'
            + ",".join(f'"{n}":1' for n in range(999))
            + "}}]",
            "999",
        ),
    ],
)
def test_no_list_is_longer_than_a_machine_has(sample: str, words: str) -> None:
    """Each list and mapping of a reply has a maximum; a longer one is refused before its entries are read."""
    with pytest.raises(WireError, match=words):
        decode(reply(sample))


def test_every_list_of_a_reply_is_bounded() -> None:
    """No list or mapping of the records of a reply can be added without a maximum."""
    seen: set[object] = set()

    def check(kind: type[object]) -> None:
        if kind in seen:
            return
        seen.add(kind)
        for name, found in get_type_hints(kind).items():
            for part in _parts(found):
                if get_origin(part) in {tuple, Mapping}:
                    most = MOST.get(f"{kind.__name__}.{name}", MOST_ITEMS)
                    assert most <= 4096, (kind, name)
                elif isinstance(part, type) and is_dataclass(part):
                    check(part)

    check(Reply)
    assert len(seen) > 15


def _parts(kind: object) -> Iterator[object]:
    yield kind
    for one in get_args(kind):
        yield from _parts(one)


def test_names_in_lists_are_short() -> None:
    """A name is cut where thousands of them could stand; a sentence is not."""
    found = decode(
        reply(f'"gpus": [{{"index": 0, "name": "{"n" * 4000}"}}], "gpu_note": "{"w" * 4000}"')
    ).samples[0]
    assert (len(found.gpus[0].name or ""), len(found.gpu_note or "")) == (SHORT_LIMIT, TEXT_LIMIT)
