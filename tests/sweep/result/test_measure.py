"""Figures of a level from made-up events, computed by hand.

One request from its events, in hand-computed cases.

Figures of a level from values made by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from sparktop.model.failure import FailureKind, RequestFailure
from sparktop.model.load import (
    AnswerRead,
    EndReason,
    Level,
    LoadEvent,
    LoadMode,
    RequestEnded,
    RequestStarted,
    TokenSource,
    concurrency_point,
)
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import (
    RequestTrace,
    collect,
    decode_tps,
    output_tps,
    peak_tps,
    prefill_tps,
    prompt_tokens,
    pure_decode_tps,
    run_duration_s,
    sustained_tps,
    total_tps,
)
from sparktop.sweep.result.results import Latency
from tests.known import known


def request(
    name: str,
    start: float,
    tokens: Sequence[float],
    *,
    prompt: int | None = 100,
    end: float | None = None,
    run: int = 0,
    reason: EndReason = EndReason.LENGTH,
) -> Iterator[LoadEvent]:
    """Yield the events of a request with a token at each of these times; by default it ends with the last."""
    yield RequestStarted(name, start, run, prompt)
    yield from (AnswerRead(name, when) for when in tokens)
    ended = end if end is not None else tokens[-1] if tokens else start
    error = RequestFailure(FailureKind.HTTP, "500", ended) if reason is EndReason.ERROR else None
    yield RequestEnded(name, ended, reason, error=error)


def traces(*requests: Iterator[LoadEvent]) -> list[RequestTrace]:
    return collect(event for one in requests for event in one)


PAIR = (
    ("a", 0.0, (1.0, 1.5, 2.0, 2.5)),
    ("b", 0.1, (1.25, 1.75, 2.25, 2.75, 3.25)),
)
"""Two requests, a token each half second; b starts later and makes one token more."""


def pair() -> list[RequestTrace]:
    return traces(*(request(*one) for one in PAIR))


def test_prefill_is_all_prompts_until_the_last_first_token() -> None:
    """200 prompt tokens from the earliest start (0) to the latest first token (1.25 s)."""
    assert prefill_tps(pair()) == pytest.approx(200 / 1.25)


def test_decode_leaves_out_first_tokens_and_runs_to_the_very_last() -> None:
    """3 + 4 tokens from the earliest first (1.0) to the latest last (3.25)."""
    assert decode_tps(pair()) == pytest.approx(7 / 2.25)


def test_pure_decode_counts_only_while_all_decode() -> None:
    """From b's first token (1.25, not counted) to a's last (2.5): a's 1.5, 2.0, 2.5 and b's 1.75, 2.25."""
    assert pure_decode_tps(pair(), 2) == pytest.approx(5 / 1.25)


def test_output_and_total_are_over_the_whole_run() -> None:
    """9 tokens, and 209 with the prompts, in the 3.25 s from the first start to the last end."""
    assert run_duration_s(pair()) == 3.25
    assert output_tps(pair()) == pytest.approx(9 / 3.25)
    assert total_tps(pair()) == pytest.approx(209 / 3.25)


def test_the_peak_is_the_fullest_second() -> None:
    """Five tokens within 0.9 s beat two; a token exactly a second earlier is not in the window."""
    run = traces(request("a", 0.0, (1.0, 1.5, 3.0, 3.2, 3.4, 3.6, 3.9, 4.0)))
    assert peak_tps(run) == 5


def test_sustained_leaves_out_ramp_and_drain() -> None:
    """Two clients: from the second's start (1.0) to the last moment with both in flight (5.0)."""
    run = traces(
        request("a", 0.0, (0.5, 1.0, 2.0, 3.0)),
        request("b", 1.0, (1.5, 2.5, 3.5, 4.5, 5.5)),
        request("c", 3.0, (4.0, 5.0)),
    )
    # 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5; a's at 1.0 is the beginning, and b's at 5.5 is the drain.
    assert sustained_tps(run, 2) == pytest.approx(8 / 4.0)


def test_unknown_prompts_make_only_what_needs_them_unknown() -> None:
    """Missing is None, never 0: prefill and total are unknown, decode is not."""
    run = traces(request("a", 0.0, (1.0, 2.0)), request("b", 0.0, (1.0, 2.0), prompt=None))
    assert prompt_tokens(run) is None
    assert prefill_tps(run) is None
    assert total_tps(run) is None
    assert decode_tps(run) == pytest.approx(2.0)


def test_a_level_has_one_value_a_run() -> None:
    """Two runs: two values of each rate with their mean and sample deviation; latencies over all requests."""
    level = Level("x", concurrency_point(1), 100, 3)
    events = [*request("a", 0.0, (1.0, 2.0, 3.0)), *request("b", 10.0, (11.0, 11.5, 12.0), run=1)]
    figures = level_result(level, collect(events))
    decode, ttft, itl = known(figures.decode_tps), known(figures.ttft_ms), known(figures.itl_ms)
    assert (decode.mean, decode.values) == (1.5, (1.0, 2.0))
    assert decode.std == pytest.approx(0.5**0.5)
    assert decode.ci95 == pytest.approx((1.5 - 6.353, 1.5 + 6.353), abs=1e-3)
    assert (figures.runs, figures.duration_s) == pytest.approx((2, 5.0))
    assert (ttft.mean, ttft.count) == pytest.approx((1000.0, 2))
    assert (itl.mean, itl.count) == pytest.approx((750.0, 4))
    stream = known(figures.stream_tps)
    assert (stream.p50, stream.p10) == pytest.approx((1.5, 1.1))
    assert (figures.requests.ok, figures.requests.failed, figures.requests.cancelled) == (2, 0, 0)
    assert (figures.tokens.prompt, figures.tokens.generated) == (200, 6)
    assert figures.sustained_tps is None


def test_failed_and_cancelled_requests_give_no_latency() -> None:
    """Their tokens count in the rates, but only finished requests have a TTFT; errors go by kind."""
    level = Level("x", concurrency_point(3), 100, 3)
    events = [
        *request("a", 0.0, (1.0, 2.0)),
        *request("b", 0.0, (9.0, 10.0), reason=EndReason.ERROR),
        *request("c", 0.0, (9.0,), reason=EndReason.ABORT),
    ]
    figures = level_result(level, collect(events))
    assert (figures.requests.ok, figures.requests.failed, figures.requests.cancelled) == (1, 1, 1)
    assert figures.requests.errors == {"http": 1}
    assert (known(figures.ttft_ms).count, known(figures.ttft_ms).max) == (1, 1000.0)
    assert figures.tokens.generated == 5


def test_a_steady_level_has_no_burst_figures() -> None:
    """Prefill and decode over a closed loop would mix its requests, so they are None; sustained is known."""
    level = Level("x", concurrency_point(1), 100, 3)
    figures = level_result(level, collect(request("a", 0.0, (1.0, 2.0, 3.0))), mode=LoadMode.STEADY)
    assert figures.prefill_tps is None
    assert figures.decode_tps is None
    assert known(figures.sustained_tps).mean == pytest.approx(1.0)


def test_a_request_without_counts_does_not_turn_token_gaps_into_chunk_gaps() -> None:
    """The level names its worst source; its gaps are those of the requests that the server counted."""
    events: list[LoadEvent] = [
        RequestStarted("a", 0.0),
        AnswerRead("a", 1.0),
        AnswerRead("a", 3.0, 2),
        RequestEnded("a", 3.0, EndReason.STOP, token_source=TokenSource.TOKEN_IDS, served_by="left"),
    ]
    more: list[LoadEvent] = [
        RequestStarted("b", 0.0),
        RequestEnded("b", 3.0, EndReason.STOP, token_source=TokenSource.CHUNKS, served_by="left"),
    ]
    level = Level("x", concurrency_point(2), 100, 3)
    exact, rough = level_result(level, collect(events)), level_result(level, collect(events + more))
    assert (exact.tokens_from, rough.tokens_from) == (TokenSource.TOKEN_IDS, TokenSource.CHUNKS)
    assert (known(exact.itl_ms).mean, known(exact.itl_ms).count) == (1000.0, 2)
    assert (known(rough.itl_ms).mean, known(rough.itl_ms).count) == (1000.0, 2)
    uncounted = RequestEnded("a", 3.0, EndReason.STOP, token_source=TokenSource.CHUNKS)
    chunks = level_result(level, collect([*events[:3], uncounted]))
    assert chunks.itl_ms is None  # how many tokens a chunk held is not known
    assert rough.served_by == {"left": 2}


@pytest.mark.parametrize(
    ("others", "rate"),
    [
        ([(float(at), at + 0.5) for at in range(10)], None),
        ([(0.0, 3.0)], 7 / 3.0),
        ([(0.0, 1.5)], None),
    ],
)
def test_a_sustained_rate_needs_windows_of_a_second_and_a_fifth_of_the_run(
    others: list[tuple[float, float]], rate: float | None
) -> None:
    """Beside one stream of ten seconds: windows of half a second, one of three, one of one and a half."""
    steady = request("a", 0.0, [float(at) for at in range(1, 11)])
    beside = [
        request(f"b{begin}", begin, [begin + 0.2, (begin + end) / 2, end - 0.1, end]) for begin, end in others
    ]
    found = sustained_tps(traces(steady, *beside), 2)
    assert found == (None if rate is None else pytest.approx(rate))


def one(*events: LoadEvent) -> RequestTrace:
    (trace,) = collect([RequestStarted("a", 10.0, prompt_tokens=7), *events])
    return trace


def test_a_role_only_event_ends_ttfr_and_not_ttft() -> None:
    """TTFR is the first event's, TTFT the first token's, and the first answer comes after the reasoning."""
    trace = one(
        AnswerRead("a", 10.1, 0),
        AnswerRead("a", 10.3, reasoning=True),
        AnswerRead("a", 10.4, reasoning=True),
        AnswerRead("a", 10.6),
        RequestEnded("a", 10.7, EndReason.STOP),
    )
    assert trace.ttfr_s == pytest.approx(0.1)
    assert trace.ttft_s == pytest.approx(0.3)
    assert trace.first_answer_s == pytest.approx(0.6)
    assert trace.e2e_s == pytest.approx(0.7)


def test_tokens_of_one_read_share_its_gap() -> None:
    """Three tokens 0.6 s after the one before are three gaps of 0.2 s."""
    trace = one(AnswerRead("a", 11.0), AnswerRead("a", 11.6, 3), AnswerRead("a", 11.7))
    assert list(trace.gaps_s()) == pytest.approx([0.2, 0.2, 0.2, 0.1])
    assert trace.tpot_s == pytest.approx(0.7 / 4)
    assert trace.stream_tps == pytest.approx(4 / 0.7)


def ended(generated: int | None, hidden_before: int = 0) -> RequestEnded:
    return RequestEnded("a", 13.0, EndReason.STOP, generated_tokens=generated, hidden_before=hidden_before)


def test_a_total_that_the_chunks_do_not_add_up_to_withholds_what_needs_single_tokens() -> None:
    """Six tokens in three chunks: the times of single tokens are unknown; the total and the end are known."""
    chunks = (AnswerRead("a", 11.0), AnswerRead("a", 12.0), AnswerRead("a", 13.0))
    trace = one(*chunks, ended(6))
    assert (trace.tokens, trace.timed_tokens, trace.untimed_tokens) == (6, 3, 3)
    assert (trace.ttft_s, trace.tpot_s, trace.stream_tps) == (None, None, None)
    assert trace.e2e_s == 3.0
    assert trace.hides_tokens
    fewer = one(*chunks, ended(2))
    assert (fewer.tokens, fewer.untimed_tokens, fewer.ttft_s, fewer.hides_tokens) == (2, 1, None, True)
    whole = one(*chunks, ended(3))
    assert (whole.ttft_s, whole.tpot_s, whole.hides_tokens) == (1.0, 1.0, False)


def test_tokens_hidden_before_the_first_chunk_withhold_ttft_alone() -> None:
    """Forty tokens of thought, then three that show: their pace is known, the first token's time is not."""
    chunks = (AnswerRead("a", 11.0), AnswerRead("a", 12.0), AnswerRead("a", 13.0))
    trace = one(*chunks, ended(43, hidden_before=40))
    assert (trace.tokens, trace.untimed_tokens, trace.ttft_s, trace.tpot_s) == (43, 0, None, 1.0)
    assert trace.hides_tokens


def test_the_pace_is_known_where_both_ends_are() -> None:
    """Eleven tokens in ten seconds, three of them seen: a token a second, and no gap between two is known."""
    chunks = (AnswerRead("a", 11.0), AnswerRead("a", 14.0), AnswerRead("a", 21.0))
    trace = one(*chunks, RequestEnded("a", 21.0, EndReason.STOP, generated_tokens=11, spans_all=True))
    assert (trace.ttft_s, trace.tpot_s, trace.is_timed) == (1.0, 1.0, False)
    assert trace.hides_tokens
    found = level_result(
        Level("x", concurrency_point(1), 7, 11),
        collect([RequestStarted("a", 10.0), *chunks, trace.ended or chunks[0]]),
    )
    assert known(found.decode_tps).mean == pytest.approx(1.0)
    assert (found.pure_decode_tps, found.itl_ms, found.tokens.hidden) == (None, None, 8)


@pytest.mark.parametrize(
    ("count", "are_known"),
    [
        (1, (False, False, False)),
        (35, (False, False, False)),
        (36, (True, False, False)),
        (71, (True, False, False)),
        (72, (True, True, False)),
        (367, (True, True, False)),
        (368, (True, True, True)),
    ],
)
def test_high_quantiles_need_enough_values(count: int, are_known: tuple[bool, bool, bool]) -> None:
    """p90 is known from 36 values on, p95 from 72, p99 from 368, and p50 always."""
    figures = known(Latency.of_values([float(value) for value in range(count)]))
    assert tuple(value is not None for value in (figures.p90, figures.p95, figures.p99)) == are_known
    assert figures.p50 == (count - 1) / 2
    assert (figures.max, figures.count) == (count - 1, count)
