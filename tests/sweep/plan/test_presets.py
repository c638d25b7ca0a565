"""Presets and the plans made of them.

Conditions and plans of capacity searches.

Conditions of a search: how they are written, and how many runs a level gets.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.capacity import (
    find_limits,
    parse_conditions,
)
from sparktop.sweep.plan.plan import Plan, SloCondition, SweepTarget
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
