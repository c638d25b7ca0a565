"""A page that is not a metrics page is named in one line; no other error than `PageError` occurs."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparktop.engines import ENGINES, PageError, read_page
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
        (b" \r\n\t\n", "an empty answer"),
        (b"<!DOCTYPE html><title>Login</title>", "an HTML page"),
        (b"\xef\xbb\xbf\n  <html lang=en>vllm:</html>", "an HTML page"),
        (b'<?xml version="1.0"?><a/>', "an XML document"),
        (b'{"detail":"Not Found"}', "a JSON document"),
        (b'[{"iter": 5}]', "a JSON document"),
        (gzip.compress(b"vllm:num_requests_running 1", mtime=0), "compressed data"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "binary data"),
        (b"Internal Server Error", "other text"),
        (b"error 404\n", "other text"),
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
@pytest.mark.parametrize("engine", ["auto", "vllm"])
def test_the_metrics_of_another_program_are_named(lines: bytes, title: str, engine: str) -> None:
    """Metrics of a program that is no engine are said to be that, with no word about an engine's options."""
    error = error_of(b"python_info 1\n" + lines, engine)
    assert error.kind is FailureKind.OTHER_PROGRAM
    assert error.message == f"metrics of {title}: no engine figures"


def test_comments_alone_are_no_samples() -> None:
    """TYPE and HELP lines of vLLM's names without samples mean "metrics disabled"."""
    assert error_of(b"# TYPE vllm:prompt_tokens counter\n").kind is FailureKind.METRICS_DISABLED


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


@pytest.mark.parametrize("engine", ["sglang", "llamacpp", "trtllm", "tgi"])
def test_a_configured_engine_without_its_names_says_why(engine: str) -> None:
    """A metrics page without a name of the configured engine means "metrics disabled", with the reason."""
    error = error_of(b"# TYPE python_info gauge\npython_info 1.0\n", engine)
    assert error.kind is FailureKind.METRICS_DISABLED
    assert f"no {ENGINES[engine].prefix} name" in error.message
    assert ENGINES[engine].silent in error.message


def test_an_unknown_engine_is_refused_in_one_clean_line() -> None:
    """An unknown engine is refused in one line, with its name cleaned."""
    error = error_of(b"vllm:num_requests_running 1\n", "v\x1b[2Jllm")
    assert (error.kind, error.message) == (FailureKind.UNSUPPORTED, "unknown engine 'v [2Jllm'")


def test_metric_lines_in_an_html_page_are_not_believed_as_vllm() -> None:
    """An HTML page that mentions a metric's name within a line is not a metrics page."""
    assert error_of(b"<html><pre>see vllm:num_requests_running 1</pre>").kind is FailureKind.MALFORMED


def test_the_configured_engine_reads_as_auto_does(page: Callable[[str], bytes]) -> None:
    """A configured engine gives the same result as a detected one."""
    body = page("vllm-names/0.22.prom")
    assert read_page(body, at=1, engine="vllm") == read_page(body, at=1)


@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=200) | st.binary(max_size=60).map(b"vllm:num_requests_running".__add__))
def test_random_bytes_raise_nothing_but_page_errors(body: bytes) -> None:
    """Any bytes give a sample with at least one lane, or a `PageError` of one clean line."""
    try:
        sample = read_page(body, at=0)
    except PageError as error:
        assert error.message == clean(error.message)  # noqa: PT017 # either outcome is fine, each has its duty
    else:
        assert sample.lanes


cuts = st.tuples(st.integers(0, 8000), st.integers(0, 40), st.binary(max_size=12))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=st.lists(cuts, min_size=1, max_size=6))
def test_a_damaged_page_raises_nothing_but_page_errors(
    page: Callable[[str], bytes], damage: list[tuple[int, int, bytes]]
) -> None:
    """A damaged page gives valid numbers or a `PageError`."""
    body = page("vllm-names/0.22.prom")
    for start, length, junk in damage:
        body = body[:start] + junk + body[start + length :]
    try:
        lanes = read_page(body, at=0).lanes
    except PageError:
        return
    for lane in lanes:
        assert lane.kv_cache_percent is None or 0 <= lane.kv_cache_percent <= 100
        assert lane.generation_tokens is None or lane.generation_tokens >= 0
        assert lane.ttft is None or list(lane.ttft.cumulative) == sorted(lane.ttft.cumulative)
