"""Presets and the plans made of them.

Conditions and plans of capacity searches.

Conditions of a search: how they are written, and how many runs a level gets.

The order of levels, targets and runs, and how long all of it will take.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.load import Level, LoadKind, LoadMode
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.capacity import find_limits, parse_conditions
from sparktop.sweep.plan.plan import Order, Plan, RunBatch, SloCondition, SweepTarget, run_batches
from sparktop.sweep.plan.presets import BUILT_IN, all_presets, find_preset, make_plan, preset_line
from sparktop.sweep.plan.slo import parse_slo, runs_needed, words_of

SOLO = SweepTarget("solo", "http://127.0.0.1:8000")


def test_a_preset_of_the_configuration_stands_in_place_of_a_built_in_one() -> None:
    """One of the same name is used, others stay, and what it leaves open is as in any plan."""
    own = SweepSpec("quick", concurrency=(3,), tg=10)
    assert all_presets([own])["quick"] is own
    assert set(all_presets([own])) == {preset.name for preset in BUILT_IN}
    plan = make_plan(find_preset("quick", [own]), [SOLO])
    assert (plan.concurrency, plan.tg, plan.pp, plan.runs) == ((3,), 10, 128, 3)


def test_a_line_on_a_preset_says_that_runs_may_be_more() -> None:
    """As the plan of its sweep does; a preset of the configuration without that has just so many."""
    assert "at least 3 runs and 10 s" in preset_line(find_preset("quick"))
    assert preset_line(SweepSpec("own", runs=1)) == "1 run a level"


def test_an_unknown_preset_names_the_nearest() -> None:
    """For a misspelt name the nearest one is suggested; for any other all are listed; an old name is read."""
    assert find_preset("agents").name == "high-concurrency"
    with pytest.raises(UsageError, match="did you mean 'topology'"):
        find_preset("topolgy")
    with pytest.raises(UsageError, match=r"known: quick, topology"):
        find_preset("zzz")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (SweepSpec(order="abba", slo="ttft_p50_ms=1"), "--slo"),
        (SweepSpec(prompt_lengths=(128, 256), slo="ttft_p50_ms=1"), "--slo looks for the limit under one"),
        (SweepSpec(order="abba", duration_s=10.0), "--runs"),
        (SweepSpec(duration_s=10.0, requests=5), "not by both"),
        (SweepSpec(rate="2", requests=5), "leave out --requests"),
        (SweepSpec(rate="2", slo="ttft_p90_ms=5"), "sparktop capacity --rate --slo"),
        (SweepSpec(rate="9999", duration_s=3600.0), "at most 1,000,000"),
        (SweepSpec(rate="0.001"), "less than one request: make it 1000 s"),
        (SweepSpec(rate="auto", order="abba"), "leave out --order abba"),
        (SweepSpec(rate="2", arrivals="weibull"), "poisson, constant"),
        (SweepSpec(rate="0"), "is not a rate"),
        (SweepSpec(texts=("code",), depths=(0, 100)), "--depth"),
        (SweepSpec(texts=("code",), prompt_lengths=(100, 200)), "--pp"),
        (SweepSpec(texts=("poem",)), "there is no text 'poem'"),
    ],
)
def test_settings_that_contradict_each_other_are_told(spec: SweepSpec, words: str) -> None:
    """No plan is made of them, and one line says which and what to do."""
    with pytest.raises(UsageError, match=words):
        make_plan(find_preset("quick") | spec, [SOLO])


@pytest.mark.parametrize(
    ("slo", "kind", "words"),
    [
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


def test_published_limits() -> None:
    """MLPerf's for gpt-oss-120b: 3 s and 80 ms for 99 % of the requests; a wrong name gets a hint."""
    assert find_limits("mlperf-gpt-oss-120b") == ("ttft_p99_ms=3000,tpot_p99_ms=80", 0.99)
    with pytest.raises(UsageError, match="did you mean 'mlperf-gpt-oss-120b'"):
        find_limits("mlperf-gpt-oss-12b")
    with pytest.raises(UsageError, match="known: mlperf-gpt-oss-120b, "):
        find_limits("arena")


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
        ("ttft_p90_ms=0", "not a condition"),
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


TARGETS = tuple(SweepTarget(name, f"http://{name}:8000") for name in ("a", "b", "c"))
TWO = Plan(TARGETS[:2], concurrency=(1, 4), runs=3, pp=128)


@given(
    st.integers(1, 3), st.integers(1, 6), st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True)
)
def test_abba_makes_each_run_once_and_marks_both_ends(
    targets: int, runs: int, concurrency: list[int]
) -> None:
    """Whatever the order, each level begins once, ends once, and has each of its runs once, ascending."""
    plan = Plan(TARGETS[:targets], tuple(concurrency), runs=runs, order=Order.ABBA)
    by_level: dict[Level, list[RunBatch]] = {}
    for batch in run_batches(plan):
        by_level.setdefault(batch.level, []).append(batch)
    assert len(by_level) == targets * len(concurrency)
    for parts in by_level.values():
        assert [run for part in parts for run in part.runs or ()] == list(range(runs))
        assert [part.first for part in parts] == [True] + [False] * (len(parts) - 1)
        assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]


def test_a_level_bounded_by_requests_has_as_many_runs_as_that_takes() -> None:
    """Ten requests at c = 4 are three bursts; in steady mode the run itself is bounded."""
    plan = replace(TWO, requests=10)
    assert [plan.runs_of(c) for c in (1, 4, 16)] == [10, 3, 1]
    assert replace(plan, mode=LoadMode.STEADY).runs_of(4) == 3
    assert replace(TWO, duration_s=20.0).runs_of(4) is None
