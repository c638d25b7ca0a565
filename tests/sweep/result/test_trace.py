"""One request from its events, in hand-computed cases."""

from __future__ import annotations

import pytest

from sparktop.model.load import (
    EndReason,
    FirstToken,
    Level,
    LoadEvent,
    RequestEnded,
    RequestStarted,
    ResponseStarted,
    Tokens,
)
from sparktop.sweep.result.level import level_result
from sparktop.sweep.result.measure import RequestTrace, collect


def one(*events: LoadEvent) -> RequestTrace:
    (trace,) = collect([RequestStarted("a", 10.0, prompt_tokens=7), *events])
    return trace


def test_a_role_only_event_ends_ttfr_and_not_ttft() -> None:
    """TTFR is the first event's, TTFT the first token's, and the first answer comes after the reasoning."""
    trace = one(
        ResponseStarted("a", 10.1),
        FirstToken("a", 10.3, reasoning=True),
        Tokens("a", 10.4, reasoning=True),
        Tokens("a", 10.6),
        RequestEnded("a", 10.7, EndReason.STOP),
    )
    assert trace.ttfr_s == pytest.approx(0.1)
    assert trace.ttft_s == pytest.approx(0.3)
    assert trace.first_answer_s == pytest.approx(0.6)
    assert trace.e2e_s == pytest.approx(0.7)


def test_tokens_of_one_read_share_its_gap() -> None:
    """Three tokens 0.6 s after the one before are three gaps of 0.2 s."""
    trace = one(FirstToken("a", 11.0), Tokens("a", 11.6, 3), Tokens("a", 11.7))
    assert list(trace.gaps_s()) == pytest.approx([0.2, 0.2, 0.2, 0.1])
    assert trace.tpot_s == pytest.approx(0.7 / 4)
    assert trace.stream_tps == pytest.approx(4 / 0.7)


def ended(generated: int | None, hidden_before: int = 0) -> RequestEnded:
    return RequestEnded("a", 13.0, EndReason.STOP, generated_tokens=generated, hidden_before=hidden_before)


def test_a_total_that_the_chunks_do_not_add_up_to_withholds_what_needs_single_tokens() -> None:
    """Six tokens in three chunks: the times of single tokens are unknown; the total and the end are known."""
    chunks = (FirstToken("a", 11.0), Tokens("a", 12.0), Tokens("a", 13.0))
    trace = one(*chunks, ended(6))
    assert (trace.tokens, trace.placed, trace.unplaced) == (6, 3, 3)
    assert (trace.ttft_s, trace.tpot_s, trace.stream_tps) == (None, None, None)
    assert trace.e2e_s == 3.0
    assert trace.hides_tokens
    whole = one(*chunks, ended(3))
    assert (whole.ttft_s, whole.tpot_s, whole.hides_tokens) == (1.0, 1.0, False)


def test_tokens_hidden_before_the_first_chunk_withhold_ttft_alone() -> None:
    """Forty tokens of thought, then three that show: their pace is known, the first token's time is not."""
    chunks = (FirstToken("a", 11.0), Tokens("a", 12.0), Tokens("a", 13.0))
    trace = one(*chunks, ended(43, hidden_before=40))
    assert (trace.tokens, trace.unplaced, trace.ttft_s, trace.tpot_s) == (43, 0, None, 1.0)
    assert trace.hides_tokens


def test_the_pace_is_known_where_both_ends_are() -> None:
    """Eleven tokens in ten seconds, three of them seen: a token a second, and no gap between two is known."""
    chunks = (FirstToken("a", 11.0), Tokens("a", 14.0), Tokens("a", 21.0))
    trace = one(*chunks, RequestEnded("a", 21.0, EndReason.STOP, generated_tokens=11, spans_all=True))
    assert (trace.ttft_s, trace.tpot_s, trace.is_placed) == (1.0, 1.0, False)
    assert trace.hides_tokens
    found = level_result(
        Level("x", 1, 7, 11), collect([RequestStarted("a", 10.0), *chunks, trace.ended or chunks[0]])
    )
    assert found.decode_tps is not None
    assert found.decode_tps.mean == pytest.approx(1.0)
    assert (found.pure_decode_tps, found.itl_ms, found.tokens.hidden) == (None, None, 8)
