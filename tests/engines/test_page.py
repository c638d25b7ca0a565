"""A page that is not a metrics page is named in one line; no other error than `PageError` occurs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparktop.engines import ENGINES, PageError, read_page
from sparktop.engines.tables import RUNNING, names_beside
from sparktop.model.engine import EngineIdentity, EngineSample, LaneSample
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


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", "no vllm: name on the metrics page: vLLM has none with --disable-log-stats"),
        ("auto", "metrics of a Python program: no engine figures"),
    ],
)
def test_a_server_without_statistics_is_up_with_metrics_disabled(
    page: Callable[[str], bytes], engine: str, words: str
) -> None:
    """VLLM with --disable-log-stats is not down; its flag is named only where it is known to be vLLM."""
    error = error_of(page("vllm-names/disable-log-stats.prom"), engine)
    assert (error.kind, error.message) == (FailureKind.METRICS_DISABLED, words)


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        (b"go_info 1\nlitellm_requests_metric_total 5\n", "LiteLLM"),
        (b'node_cpu_seconds_total{cpu="0"} 5\n', "node_exporter"),
        (b"DCGM_FI_DEV_GPU_UTIL 5\n", "dcgm-exporter"),
        (b"my_own_app_total 5\n", "another program (my_...)"),
    ],
)
def test_the_metrics_of_another_program_are_named(lines: bytes, title: str) -> None:
    """Metrics of a program that is no engine are said to be that, with no word about an engine's options."""
    error = error_of(b"python_info 1\n" + lines, "vllm")
    assert error.kind is FailureKind.OTHER_PROGRAM
    assert error.message == f"metrics of {title}: no engine figures"


@pytest.mark.parametrize(
    ("line", "title"),
    [
        (b'sglang:num_running_reqs{model_name="m"} 3', "SGLang"),
        (b"llamacpp:requests_processing 1", "llama.cpp"),
        (b"tgi_batch_current_size 4", "TGI"),
        (b"trtllm_num_requests_running 2", "TensorRT-LLM"),
    ],
)
def test_each_engine_is_recognised_by_its_names(line: bytes, title: str) -> None:
    """One sample suffices to recognise an engine, and none is taken for that of another engine."""
    body = b"# HELP python_info x\npython_info 1\n" + line + b"\n"
    sample = read_page(body, at=0)
    assert ENGINES[sample.engine].title == title
    assert sample.lanes[0].running == int(line[-1:])
    error = error_of(body, "vllm")
    assert error.kind is FailureKind.UNSUPPORTED
    assert error.message == f"a page of {title}, not of vLLM as configured"


def test_an_unknown_engine_is_refused_in_one_clean_line() -> None:
    """An unknown engine is refused in one line, with its name cleaned."""
    error = error_of(b"vllm:num_requests_running 1\n", "v\x1b[2Jllm")
    assert (error.kind, error.message) == (FailureKind.UNSUPPORTED, "unknown engine 'v [2Jllm'")


@settings(max_examples=50, deadline=None)
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

# The shape of /api/ps in Ollama's docs/api.md.
LOADED = {
    "models": [
        {
            "name": "mistral:latest",
            "model": "mistral:latest",
            "size": 5137025024,
            "digest": "2ae6f6dd7a3dd734790bbbf58b8909a606e0e7e97e94b7604e0aa7ae4490e6d8",
            "details": {"parent_model": "", "format": "gguf", "family": "llama", "parameter_size": "7.2B"},
            "expires_at": "2024-06-04T14:38:31.83753-07:00",
            "size_vram": 5137025024,
        },
        {"name": "gemma3:4b", "model": "gemma3:4b", "size": 1, "size_vram": 0},
    ]
}


def json_page(found: object, engine: str) -> EngineSample:
    return read_page(json.dumps(found).encode(), at=12.5, answer_ms=3.25, engine=engine)


def test_ollama_tells_what_is_loaded_and_no_figure() -> None:
    """Ollama's loaded models are read; load, tokens and latencies are unknown, as a note says."""
    sample = json_page(LOADED, "ollama")
    assert sample.models == ("gemma3:4b", "mistral:latest")
    assert sample.lanes == (LaneSample("0"),)
    assert (sample.engine, sample.at, sample.answer_ms) == ("ollama", 12.5, 3.25)
    assert sample.note == "2 models loaded; Ollama does not report how many requests run"


def test_ollama_with_nothing_loaded_is_there() -> None:
    """Ollama without a loaded model is available, with a note and no figures."""
    sample = json_page({"models": None}, "ollama")
    assert (sample.models, sample.lanes) == ((), (LaneSample("0"),))
    assert sample.note == "no model is loaded; Ollama does not report how many requests run"


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


@settings(max_examples=40, deadline=None)
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


def test_the_engine_wins_over_its_front() -> None:
    """A figure that both report is the engine's; what only the front reports is kept."""
    body = (
        b"tgi_queue_size 7\ntgi_batch_inference_count 40\n"
        b'vllm:num_requests_running{model_name="m"} 3\nvllm:num_requests_waiting{model_name="m"} 1\n'
    )
    (lane,) = read_page(body, at=0).lanes
    assert (lane.running, lane.waiting, lane.engine_work) == (3.0, 1.0, 40.0)


def test_a_word_in_front_of_a_name_of_no_engine_is_not_an_engine() -> None:
    """Only names that are read make a page one of an engine under another prefix."""
    sample = read_page(b"acme_vllm:generation_tokens_total 5\nacme_vllm:other 1\n", at=0)
    assert sample.lanes[0].generation_tokens == 5.0
    with pytest.raises(Exception, match="metrics of another program"):
        read_page(b"acme_vllm_router_requests_total 5\n", at=0)
