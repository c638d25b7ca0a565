"""Replies from another machine's JSON: types, bounds, texts, and where a fault is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import get_args, get_origin, get_type_hints

import pytest

from sparktop.sources.decode import MOST, MOST_ITEMS, SHORT_LIMIT, TEXT_LIMIT, WireError, decode
from sparktop.sources.replies import Reply


def reply(sample: str) -> bytes:
    return f'{{"schema": "sparktop.node/1", "sparktop": "1", "samples": [{{"at": 1.0, {sample}}}]}}'.encode()


def test_a_reply_is_read_with_all_its_parts() -> None:
    """Unknown fields are ignored, missing ones have defaults, whole numbers serve, texts are cleaned."""
    gpu = (
        '{"index": 0, "name": "a\\u001b[31mb", "power_w": 3, "new": [1], "throttled_percent": {"x\\n": null}}'
    )
    (read,) = decode(reply(f'"gpus": [{gpu}], "more": {{}}')).samples[0].gpus
    assert (type(read.power_w), read.power_w, read.uuid) == (float, 3.0, None)
    assert "\x1b" not in (read.name or "")
    assert not any("\n" in name for name in read.throttled_percent)


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ('"gpus": {}', "Expected `array`, got `object` - at `$.samples[0].gpus`"),
        ('"gpus": [{"index": 0}, {"index": 1.5}]', "at `$.samples[0].gpus[1].index`"),
        ('"gpus": [{"index": true}]', "at `$.samples[0].gpus[0].index`"),
        ('"gpus": [{}]', "missing required field `index`"),
        ('"gpus": [{"index": 0, "name": 3}]', "at `$.samples[0].gpus[0].name`"),
        ('"gpus": [{"index": 0, "throttled_percent": []}]', "throttled_percent`"),
        ('"gpus": [{"index": 0, "power_w": -1e19}]', "a number that is not a reading"),
        ('"gpus": [{"index": 10000000000000000000000}]', "a number that is not a reading"),
        ('"gpus": [{"index": 0, "power_w": NaN}]', "not JSON"),
        ('"gpus": [' + ",".join(['{"index": 0}'] * 65) + "]", "NodeSample.gpus has 65 entries: too many"),
        (f'"cpu": {{"core_percent": [{",".join(["1"] * 4097)}]}}', "CpuReading.core_percent has 4097"),
        (
            '"memory": {"parts": [' + ",".join(['{"name": "a", "size_bytes": 1}'] * 65) + "]}",
            "MemoryReading.parts has 65",
        ),
        (
            '"network": [{"name": "a", "kind": "b", "errors": {'
            + ",".join(f'"{n}":1' for n in range(999))
            + "}}]",
            "NetworkReading.errors has 999",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(sample: str, words: str) -> None:
    """A field of another type, a number that is none, and a list longer than any machine has are refused."""
    with pytest.raises(WireError) as raised:
        decode(reply(sample))
    assert words in str(raised.value)


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
