"""Conditions and plans of capacity searches."""

from __future__ import annotations

import pytest

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadPoint
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.capacity import (
    Pace,
    arrivals_needed,
    default_capacity,
    find_limits,
    level_plan,
    make_capacity_plan,
    parse_conditions,
    share_needed,
)
from sparktop.sweep.plan.plan import Capacity, SweepTarget

TARGET = SweepTarget("spark", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("slo", "kind", "words"),
    [
        ("", LoadKind.RATE, "names no condition"),
        ("ttft_p90_ms=0", LoadKind.RATE, "is not a condition"),
        ("ttft_mean_ms=9", LoadKind.RATE, "does not limit single requests"),
        ("output_tps=600", LoadKind.RATE, "does not limit single requests"),
        ("ttft_tool_p90_ms=9", LoadKind.RATE, "there is no figure 'ttft_tool_p90_ms'"),
        ("nonsense=3", LoadKind.AGENTS, "there is no figure 'nonsense'"),
    ],
)
def test_conditions_that_cannot_be_judged_are_refused(slo: str, kind: LoadKind, words: str) -> None:
    """Each with one line that says why."""
    with pytest.raises(UsageError, match=words):
        parse_conditions(slo, kind)


def test_each_condition_has_its_share_and_a_rate_one_for_all() -> None:
    """p95 of a latency and p10 of a token rate; a rate has 95 % or that of the published limits."""
    conditions = parse_conditions("ttft_p95_ms=2000,stream_tps=15,ttft_tool_p50_ms=900", LoadKind.AGENTS)
    agents = Capacity(LoadKind.AGENTS, conditions)
    assert [round(share_needed(agents, one), 2) for one in conditions] == [0.95, 0.9, 0.5]
    rate = Capacity(LoadKind.RATE, parse_conditions("ttft_p90_ms=2000", LoadKind.RATE), share=0.99)
    assert share_needed(rate, rate.conditions[0]) == 0.99


def test_published_limits() -> None:
    """MLPerf's for gpt-oss-120b: 3 s and 80 ms for 99 % of the requests; a wrong name gets a hint."""
    found = find_limits("mlperf-gpt-oss-120b")
    assert (found.conditions, found.share) == ("ttft_p99_ms=3000,tpot_p99_ms=80", 0.99)
    assert find_limits("mlperf-gpt-oss-120b-interactive").conditions == "ttft_p99_ms=2000,tpot_p99_ms=20"
    with pytest.raises(UsageError, match="did you mean 'mlperf-gpt-oss-120b'"):
        find_limits("mlperf-gpt-oss-12b")
    with pytest.raises(UsageError, match="known: mlperf-gpt-oss-120b, "):
        find_limits("arena")


def test_levels_last_as_long_as_a_judgement_needs() -> None:
    """Three times the median E2E, enough arrivals at low rates, and exactly what the user says."""
    agents = make_capacity_plan(default_capacity(), [TARGET], SweepSpec())
    assert level_plan(agents, LoadPoint(LoadKind.AGENTS, 1), Pace(100.0)).duration_s == 300.0
    rate = make_capacity_plan(default_capacity(LoadKind.RATE), [TARGET], SweepSpec())
    assert level_plan(rate, LoadPoint(LoadKind.RATE, 0.5), Pace()).duration_s == arrivals_needed(0.95) / 0.5
    assert arrivals_needed(0.95) == 100
    assert 480 < arrivals_needed(0.99) < 520
