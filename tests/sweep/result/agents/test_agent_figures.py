"""Figures of agents, from requests whose times and places are known."""

from __future__ import annotations

import pytest

from sparktop.model.load import CallStart, ConversationCall, EndReason, RequestEnded
from sparktop.sweep.result.level import agents_result
from sparktop.sweep.result.measure import RequestTrace
from sparktop.sweep.terms.request_errors import request_failure
from tests.known import known

HUMAN, TOOL = CallStart.HUMAN, CallStart.TOOL


def _call(
    turn: int,
    at: float,
    *,
    then: CallStart | None = TOOL,
    start: CallStart = TOOL,
    lane: int = 0,
    request: int = 0,
    ttft_s: float = 1.0,
    decode_s: float = 4.0,
    prompt: int = 1_000,
    cached: int | None = None,
    known: int = 0,
    compacted: bool = False,
    reason: EndReason = EndReason.LENGTH,
) -> RequestTrace:
    name = f"{lane}-{turn}-{at}"
    place = ConversationCall(lane, 0, turn, request, start, then, known, prompt - known, compacted=compacted)
    error = request_failure("http:400", "too long", at) if reason is EndReason.ERROR else None
    end = RequestEnded(
        name, at + ttft_s + decode_s, reason, error, prompt, cached, 10 if error is None else None
    )
    arrivals = [(at + ttft_s, 1), (at + ttft_s + decode_s, 9)] if error is None else []
    return RequestTrace(name, at, 0, prompt, arrivals=arrivals, ended=end, call=place)


REQUEST = [
    _call(0, 0.0, start=HUMAN, prompt=1_000, known=400, cached=400, ttft_s=3.0, decode_s=2.0),
    _call(1, 6.0, prompt=1_100, known=1_010, cached=992, ttft_s=0.5, decode_s=2.5),
    _call(2, 10.0, then=HUMAN, prompt=1_200, known=1_110, cached=None, ttft_s=1.0, decode_s=1.0),
    _call(3, 20.0, start=HUMAN, then=None, request=1, prompt=700, known=400, compacted=True, cached=400),
]


def test_times_to_the_first_token_are_split_by_what_came_before() -> None:
    """First calls, calls after a tool, after a human, and after a compaction each have their own."""
    found = agents_result(REQUEST, {0: (0.0, 30.0)})
    assert known(found.first_ms).p50 == 3_000
    assert (known(found.after_tool_ms).count, known(found.after_tool_ms).p50) == (2, 750)
    assert found.after_human_ms is None
    assert known(found.compacted_ms).count == found.compactions == 1
    assert [(one.name, one.calls) for one in found.turns] == [("1", 1), ("2-3", 2), ("4-5", 1)]


def test_a_persons_request_takes_the_time_of_all_its_calls() -> None:
    """Model time without tools; a request with a call missing does not count."""
    found = agents_result(REQUEST, {0: (0.0, 30.0)})
    assert known(found.request_ms).count == 2
    assert known(found.request_ms).max == 1000 * (5 + 3 + 2)
    assert found.calls_per_request == 2
    assert agents_result(REQUEST[1:3], {0: (0.0, 30.0)}).request_ms is None


def test_tokens_from_the_cache_and_amplification() -> None:
    """Servers leave out a count of 0; computed tokens are divided by the new ones."""
    found = agents_result(REQUEST, {0: (0.0, 30.0)})
    assert (found.prompt_tokens, found.cached_tokens) == (4_000, 1_792)
    assert found.new_tokens == 600 + 90 + 90 + 300
    assert found.cached_percent == pytest.approx(44.8)
    assert found.amplification == pytest.approx((4_000 - 1_792) / 1_080)


def test_lanes_share_their_time_between_model_tools_and_people() -> None:
    """Waiting, generation, tool and the rest of the window are 100 %."""
    found = agents_result(REQUEST, {0: (0.0, 25.0)})
    shares = known(found.shares)
    assert shares.first_token == pytest.approx(100 * (3 + 0.5 + 1 + 1) / 25)
    assert shares.generation == pytest.approx(100 * (2 + 2.5 + 1 + 4) / 25)
    assert shares.tool == pytest.approx(100 * (1 + 1) / 25)
    assert shares.human == pytest.approx(100 * 8 / 25)
    assert found.in_flight_mean == pytest.approx(15 / 25)


def test_a_failed_call_ends_its_conversation_with_its_reason() -> None:
    """Counted by error code, with the message of the latest."""
    failed = _call(4, 27.0, reason=EndReason.ERROR)
    aborted = _call(5, 28.0, lane=1, reason=EndReason.ABORT)
    found = agents_result([*REQUEST, failed, aborted], {0: (0.0, 30.0)})
    assert (found.ended_early, found.early, found.early_message) == (1, {"http:400": 1}, "too long")
    assert (found.calls, found.unanswered, found.conversations) == (6, 1, 2)
