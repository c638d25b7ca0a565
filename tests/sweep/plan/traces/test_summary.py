"""The summary of a trace states what its replay will send."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparktop.sweep.plan.traces import TraceChoice, TraceFormat, summarise

DATA = Path(__file__).parents[3] / "data" / "traffic"


def test_a_timed_trace_has_a_duration_and_a_mean_rate() -> None:
    """Five requests in 5.4 s; 4 blocks of 512 are at the begin of earlier prompts, and a prompt of 300."""
    found = summarise(TraceChoice(str(DATA / "mooncake.jsonl")))
    assert (found.form, found.requests, found.waits) == (TraceFormat.MOONCAKE, 5, False)
    assert found.duration_s == pytest.approx(5.4)
    assert found.per_s == pytest.approx(4 / 5.4)
    assert (found.prompt_tokens, found.output_tokens) == (6600, 305)
    assert (found.longest_prompt, found.longest_answer) == (2100, 118)
    # The second shares one block, the third 300 tokens, the fourth three blocks, the fifth two.
    assert found.repeated_share == pytest.approx((512 + 300 + 3 * 512 + 2 * 512) / 6600)


def test_conversations_last_at_least_as_long_as_their_pauses() -> None:
    """A conversation of 0.8 and 2 s of pauses, and one that begins 30 s later and pauses for 300 s."""
    found = summarise(TraceChoice(str(DATA / "aiperf-sessions.jsonl")))
    assert found.waits
    assert found.duration_s == pytest.approx(330.0)
    assert (found.conversations, found.shortened) == (2, 1)
