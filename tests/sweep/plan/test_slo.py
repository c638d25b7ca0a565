"""Conditions of a search: how they are written, and how many runs a level gets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.sweep.plan.plan import Plan, SloCondition, SweepTarget
from sparktop.sweep.plan.slo import any_falls, any_rises, parse_slo, runs_needed, words_of

PLAN = Plan((SweepTarget("solo", "http://127.0.0.1:8000"),))


def test_conditions_are_read() -> None:
    """Latencies hold at most, rates at least."""
    assert parse_slo("ttft_p90_ms=2000,stream_tps=15") == (
        SloCondition("ttft_p90_ms", 2000.0),
        SloCondition("stream_tps", 15.0, at_least=True),
    )
    assert words_of(SloCondition("stream_tps", 15.0, at_least=True)) == "stream_tps ≥ 15"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no condition"),
        ("ttft_p90_ms", "not a condition"),
        ("ttft_p90_ms=x", "not a condition"),
        ("ttft_p90_ms=-1", "not a condition"),
        ("ttft_p90_ms=nan", "not a condition"),
        ("ttft_p9_ms=1", "did you mean 'ttft_p9"),
        ("tftt_p90_ms=1", "did you mean 'ttft_p90_ms'"),
        ("\x1b[31m=1", "no figure"),
    ],
)
def test_what_is_no_condition_is_told(text: str, words: str) -> None:
    """One clean line says what is wrong and what to write."""
    with pytest.raises(UsageError, match=r".") as found:
        parse_slo(text)
    assert words in str(found.value)
    assert "\x1b" not in str(found.value)


def needed(text: str, concurrency: int, runs: int = 3) -> int:
    return runs_needed(replace(PLAN, slo=parse_slo(text), runs=runs), concurrency)


def test_a_quantile_gets_the_runs_that_it_needs() -> None:
    """A p90 needs 36 requests, whatever the plan says."""
    assert [needed("ttft_p90_ms=1", c) for c in (1, 12, 16, 64)] == [36, 3, 3, 3]
    assert needed("e2e_p99_ms=1", 4) == 92


def test_conditions_bound_the_concurrency_from_one_side() -> None:
    """Latencies and the rate of one stream bound it from above, rates of the whole server from below."""
    assert any_falls(parse_slo("stream_tps=15"))
    assert not any_rises(parse_slo("stream_tps=15,ttft_p90_ms=1"))
    assert any_rises(parse_slo("output_tps=600"))
    assert not any_falls(parse_slo("output_tps=600"))
