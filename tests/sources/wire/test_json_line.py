"""The bytes of a reply are the same with the standard library alone and with pydantic."""

from __future__ import annotations

import asyncio
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.hardware.machine import Machine
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.node import (
    CpuReading,
    GpuReading,
    LastBoot,
    NodeIdentity,
    NodeSample,
    ProcessReading,
    ProcessTable,
)
from sparktop.sources.decode import WireError, decode, decode_ranks, encode_fast
from sparktop.sources.replies import Reply, encode, encode_error, encode_ranks, json_line, make_reply

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


@settings(max_examples=60, deadline=None)
@given(st.lists(SAMPLES, max_size=3).map(tuple), TEXTS)
def test_both_encoders_say_the_same(samples: tuple[NodeSample, ...], hostname: str) -> None:
    """Any reply is decoded as equal from either, whatever its texts and numbers are."""
    reply = make_reply(NodeIdentity(hostname=hostname), samples, 12.5, interval_s=1.0)
    assert json.loads(encode(reply)) == json.loads(encode_fast(reply))
    assert decode(encode(reply)) == decode(encode_fast(reply))


def test_a_reply_about_this_machine_has_the_same_bytes() -> None:
    """With all that this machine reports, byte for byte."""
    machine = Machine()
    sample = machine.read(processes=True)
    assert machine.identity is not None
    reply = make_reply(machine.identity, (sample,), sample.at, interval_s=1.0)
    machine.close()
    assert encode(reply) == encode_fast(reply)


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
    boot = LastBoot(clean=True, last_line="a\udc80b")
    identity = json.loads(encode(Reply("1", identity=NodeIdentity(last_boot=boot))))["identity"]
    assert identity["last_boot"]["last_line"] == "a?b"
    with pytest.raises(WireError, match="the driver hangs") as refused:
        decode(encode_error(FailureKind.TIMEOUT, "the driver hangs"))
    assert refused.value.kind is FailureKind.TIMEOUT
    failed = Failure(FailureKind.UNSUPPORTED, "no NCCL", 1.0)
    with pytest.raises(WireError, match="no NCCL"):
        decode_ranks(encode_ranks(failed))


def test_what_does_not_belong_into_a_reply_is_a_fault_of_ours() -> None:
    """A value of an unknown type raises an error instead of becoming text."""
    with pytest.raises(TypeError, match="no JSON for Event"):
        json_line(asyncio.Event())
