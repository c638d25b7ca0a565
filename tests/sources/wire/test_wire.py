"""Replies of agents: the same with the standard library alone, bounded, and faults with their place."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    CpuReading,
    GpuReading,
    NodeIdentity,
    NodeSample,
    ProcessReading,
    ProcessTable,
)
from sparktop.sources.decode import (
    MOST,
    MOST_ITEMS,
    SHORT_LIMIT,
    TEXT_LIMIT,
    WireError,
    decode,
    decode_ranks,
)
from sparktop.sources.replies import Reply, encode, encode_error, encode_ranks, make_reply

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.none() | st.floats(-1e15, 1e15).map(lambda value: round(value, 3))
SAMPLES = st.builds(
    NodeSample,
    at=st.floats(0, 1e9).map(lambda value: round(value, 6)),
    cpu=st.builds(CpuReading, percent=NUMBERS, core_percent=st.lists(st.floats(0, 100)).map(tuple)),
    gpus=st.lists(
        st.builds(
            GpuReading,
            index=st.integers(0, 7),
            name=TEXTS,
            power_w=NUMBERS,
            throttled_percent=st.dictionaries(TEXTS, NUMBERS, max_size=3),
        ),
        max_size=3,
    ).map(tuple),
    processes=st.none()
    | st.builds(
        ProcessTable,
        st.lists(st.builds(ProcessReading, st.integers(0, 1 << 22), TEXTS), max_size=3).map(tuple),
    ),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(SAMPLES, max_size=3).map(tuple), TEXTS)
def test_the_reader_without_msgspec_writes_what_msgspec_writes(
    samples: tuple[NodeSample, ...], hostname: str
) -> None:
    """Any reply is the same JSON from either, whatever its texts and numbers are."""
    reply = make_reply(NodeIdentity(hostname=hostname), samples, 12.5, interval_s=1.0)
    assert json.loads(encode(reply)) == json.loads(msgspec.json.encode(reply, enc_hook=dict))


def test_a_number_that_is_none_becomes_null() -> None:
    """NaN and infinity are not JSON: what they stand for is unknown."""
    cpu = CpuReading(percent=math.nan, core_percent=(math.inf, 1.0), load1=2.0)
    gpu = GpuReading(0, throttled_percent={"power": -math.inf})
    reply = Reply("1", samples=(NodeSample(3.0, cpu, gpus=(gpu,)),))
    (sample,) = json.loads(encode(reply))["samples"]
    assert (sample["cpu"]["percent"], sample["cpu"]["core_percent"]) == (None, [None, 1.0])
    assert sample["gpus"][0]["throttled_percent"] == {"power": None}


def test_texts_and_refusals_arrive_as_they_left() -> None:
    """Text that is not UTF-8, and a refusal with its kind."""
    identity = json.loads(encode(Reply("1", identity=NodeIdentity(hostname="a\udc80b"))))["identity"]
    assert identity["hostname"] == "a?b"
    with pytest.raises(WireError, match="the driver hangs") as refused:
        decode(encode_error(FailureKind.TIMEOUT, "the driver hangs"))
    assert refused.value.kind is FailureKind.TIMEOUT
    failed = Failure(FailureKind.UNSUPPORTED, "no NCCL", 1.0)
    with pytest.raises(WireError, match="no NCCL"):
        decode_ranks(encode_ranks(failed))


# Replies from another machine's JSON: types, bounds, texts, and where a fault is.


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
        ('"gpus": [{"index": 0, "name": 3}]', "at `$.samples[0].gpus[0].name`"),
        ('"gpus": [{"index": 0, "power_w": -1e19}]', "a number that is not a reading"),
        ('"gpus": [{"index": 0, "power_w": NaN}]', "not JSON"),
        ('"gpus": [' + ",".join(['{"index": 0}'] * 65) + "]", "NodeSample.gpus has 65 entries: too many"),
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
                elif isinstance(part, type) and issubclass(part, msgspec.Struct):
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
