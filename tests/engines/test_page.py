"""What is no page is named in one line; JSON in place of pages; names of several engines."""

from __future__ import annotations

import gzip
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparktop.engines import ENGINES, PageError, read_page
from sparktop.engines.tables import RUNNING, names_beside
from sparktop.model.engine import EngineIdentity, EngineSample, Histogram
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean


def error_of(body: bytes, engine: str = "auto") -> PageError:
    with pytest.raises(PageError) as error:
        read_page(body, at=0, engine=engine)
    return error.value


@pytest.mark.parametrize(
    ("body", "looks_like"),
    [
        (b"", "an empty answer"),
        (b"<!DOCTYPE html><title>Login</title>", "an HTML page"),
        (b'{"detail":"Not Found"}', "a JSON document"),
        (gzip.compress(b"vllm:num_requests_running 1", mtime=0), "compressed data"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "binary data"),
        (b"Internal Server Error", "other text"),
        (b"\x1b]0;owned\x07\xff\xfe", "other text"),
    ],
)
def test_what_is_no_metrics_page_is_named(body: bytes, looks_like: str) -> None:
    """The error says in one line what the response looks like."""
    error = error_of(body)
    assert (error.kind, error.message) == (FailureKind.MALFORMED, f"{looks_like}, not metrics")
    assert error.message == clean(error.message) == str(error)


def test_an_unknown_engine_is_refused_in_one_clean_line() -> None:
    """An unknown engine is refused in one line, with its name cleaned."""
    error = error_of(b"vllm:num_requests_running 1\n", "v\x1b[2Jllm")
    assert (error.kind, error.message) == (FailureKind.UNSUPPORTED, "unknown engine 'v [2Jllm'")


@given(body=st.binary(max_size=200) | st.binary(max_size=60).map(b"vllm:num_requests_running".__add__))
def test_random_bytes_raise_nothing_but_page_errors(body: bytes) -> None:
    """Any bytes give a sample with at least one lane, or a `PageError` of one clean line."""
    try:
        sample = read_page(body, at=0)
    except PageError as error:
        assert error.message == clean(error.message)  # noqa: PT017 # either outcome is fine, each has its duty
    else:
        assert sample.lanes


# JSON responses: the model lists of Ollama and OpenAI servers, and the identities of all engines.


def json_page(found: object, engine: str) -> EngineSample:
    return read_page(json.dumps(found).encode(), at=12.5, answer_ms=3.25, engine=engine)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"models": 7, "data": "x"}',
        b"[" * 100_000,
        b'{"models": [], "data": []',
    ],
)
def test_what_is_no_list_is_malformed(body: bytes) -> None:
    """Anything but a model list is refused in one clean line."""
    with pytest.raises(PageError) as caught:
        read_page(body, at=0, engine="openai")
    assert caught.value.kind is FailureKind.MALFORMED
    assert caught.value.message == clean(caught.value.message)


def test_names_are_cleaned_and_few() -> None:
    """Model names are cleaned and cut, invalid ones left out, and at most 64 are kept."""
    odd: list[Any] = [{"id": "\x1b[31mx\u202e"}, {"id": 5}, {"id": ""}, {}, "text", None, {"id": "y" * 5000}]
    assert [len(name) for name in json_page({"data": odd}, "openai").models] == [5, 200]
    assert len(json_page({"data": [{"id": str(n)} for n in range(500)]}, "openai").models) == 64
    assert len(json_page({"models": [{"name": str(n)} for n in range(500)]}, "ollama").models) == 64


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["data", "models", "id", "name", "version", "max_model_len", "total_slots", "model_id"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(found=anything, engine=st.sampled_from(sorted(ENGINES)))
def test_any_json_gives_clean_values(found: object, engine: str) -> None:
    """Any JSON gives an identity with clean text, positive numbers, or None."""
    identity = ENGINES[engine].identify(dict.fromkeys(ENGINES[engine].facts, found))
    for text in (identity.version, identity.model):
        assert text is None or (text and text == clean(text))
    for number in (identity.max_model_len, identity.slots):
        assert number is None or 0 < number < 2**40
    assert isinstance(identity, EngineIdentity)
    if ENGINES[engine].read_json is not None:
        try:
            sample = json_page(found, engine)
        except PageError:
            return
        assert sample.models == tuple(sorted({clean(name) for name in sample.models}))


def test_lanes_of_trtllm_are_its_ranks() -> None:
    """A rank that reports alone keeps its number; what is no rank counts as the first, and ranks are few."""
    one = {"iter": 5, "numActiveRequests": 2}
    named = [{**one, "attentionDpRank": rank} for rank in (3, "\x1b[31m", {"a": 1})]
    assert [lane.lane for lane in json_page(named[:1], "trtllm").lanes] == ["3"]
    assert [lane.lane for lane in json_page(named, "trtllm").lanes] == ["0", "3"]
    with pytest.raises(PageError, match="more than 512 ranks"):
        json_page([{**one, "attentionDpRank": rank} for rank in range(1000)], "trtllm")


# One list of prefixes for pages and for a Prometheus; a page with the names of several engines.

SPELLINGS = [(gauge, engine) for gauge, engine in RUNNING.items()]


@pytest.mark.parametrize(("gauge", "engine"), SPELLINGS)
def test_a_page_is_read_under_every_name_that_marks_a_server(gauge: str, engine: str) -> None:
    """The gauge by which a server is found in a Prometheus makes its page readable."""
    sample = read_page(f'{gauge}{{model_name="m"}} 3\n'.encode(), at=0)
    assert (sample.engine, sample.lanes[0].running) == (engine, 3.0)
    assert gauge in names_beside(gauge)


def test_a_word_in_front_of_a_name_of_no_engine_is_not_an_engine() -> None:
    """Only names that are read make a page one of an engine under another prefix."""
    sample = read_page(b"acme_vllm:generation_tokens_total 5\nacme_vllm:other 1\n", at=0)
    assert sample.lanes[0].generation_tokens == 5.0
    with pytest.raises(Exception, match="metrics of another program"):
        read_page(b"acme_vllm_router_requests_total 5\n", at=0)


def test_a_summary_has_a_mean_and_no_quantiles() -> None:
    """Without buckets, sum and count are all that is known of a latency."""
    name = "vllm:time_to_first_token_seconds"
    lines = [
        'vllm:num_requests_running{model_name="m"} 1',
        f'{name}{{model_name="m",quantile="0.5"}} 0.2',
        f'{name}_sum{{model_name="m"}} 2.5',
        f'{name}_count{{model_name="m"}} 10',
    ]
    ttft = read_page("\n".join(lines).encode(), at=0).lanes[0].ttft
    assert ttft == Histogram((math.inf,), (10.0,), 2.5)
