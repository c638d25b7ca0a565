"""Presets and the plans made of them."""

from __future__ import annotations

from typing import Any

import pytest

from sparktop.errors import UsageError
from sparktop.model.load import LoadKind, LoadMode, LoadPoint, concurrency_point
from sparktop.model.targets import GuardLimits, SweepSettings
from sparktop.sweep.plan.plan import Order, Plan, SloCondition, SweepTarget, loads
from sparktop.sweep.plan.presets import (
    STEADY_S,
    Wishes,
    all_presets,
    find_preset,
    make_plan,
)
from sparktop.sweep.plan.slo import parse_slo

SOLO = SweepTarget("solo", "http://127.0.0.1:8000")
SHAPES = {
    "quick": ((1, 4, 16), (128,), 64, 3),
    "topology": ((1, 2, 4, 8, 16, 32, 64), (1024,), 128, 3),
    "arena": ((1, 2, 5, 10), (2048,), 128, 3),
    "wide": ((1, 2, 4, 5, 8, 10, 16, 32, 64, 128, 256), (1024,), 128, 1),
    "interactive": ((1,), (105,), 256, 3),
    "batch-scaling": ((1, 2, 4, 8, 16), (105,), 256, 3),
    "long-context": ((1,), (5000, 20000, 39000), 256, 1),
    "agents": ((64, 128, 256, 512, 1024), (128,), 128, 1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_preset_has_the_shape_of_its_table(name: str) -> None:
    """Concurrency, prompt lengths, tokens and runs of each built-in preset are the published ones."""
    plan = make_plan(find_preset(name), [SOLO])
    assert (plan.concurrency, plan.lengths, plan.tg, plan.runs) == SHAPES[name]
    assert (plan.mode, plan.order, plan.preset) == (LoadMode.BURST, Order.ASCENDING, name)


def test_a_preset_of_the_configuration_stands_in_place_of_a_built_in_one() -> None:
    """One of the same name is used, others stay, and what it leaves open is as in any plan."""
    own = SweepSettings("quick", concurrency=(3,), tg=10)
    assert all_presets([own])["quick"] is own
    assert set(all_presets([own])) == set(SHAPES)
    plan = make_plan(find_preset("quick", [own]), [SOLO])
    assert (plan.concurrency, plan.tg, plan.pp, plan.runs) == ((3,), 10, 128, 3)


def test_an_unknown_preset_names_the_nearest() -> None:
    """For a misspelt name the nearest one is suggested; for any other all are listed."""
    with pytest.raises(UsageError, match="did you mean 'topology'"):
        find_preset("topolgy")
    with pytest.raises(UsageError, match=r"known: quick, topology"):
        find_preset("zzz")


def test_wishes_go_before_the_preset() -> None:
    """Requested settings replace those of the preset; the rest stays."""
    wishes = Wishes(concurrency=(7,), prompt_lengths=(11, 13), seed=5, order=Order.ABBA, runs=4)
    plan = make_plan(find_preset("quick"), [SOLO], wishes)
    assert (plan.concurrency, plan.lengths, plan.pp, plan.seed) == ((7,), (11, 13), 11, 5)
    assert (plan.order, plan.runs, plan.tg) == (Order.ABBA, 4, 64)


def test_runs_that_somebody_asks_for_go_before_the_presets_requests() -> None:
    """The requests that a preset counts are replaced by a requested number of runs."""
    preset = SweepSettings("mine", concurrency=(8,), requests=100)
    assert make_plan(preset, [SOLO]).runs_of(8) == 13
    assert make_plan(preset, [SOLO], Wishes(runs=2)).runs_of(8) == 2


def test_a_steady_sweep_lasts_some_time() -> None:
    """Without a duration a steady run lasts half a minute; with a number of requests it needs none."""
    steady = Wishes(mode=LoadMode.STEADY)
    assert make_plan(find_preset("quick"), [SOLO], steady).duration_s == STEADY_S
    bounded = Wishes(mode=LoadMode.STEADY, requests=50)
    assert make_plan(find_preset("quick"), [SOLO], bounded).duration_s is None


def test_the_guard_of_the_configuration_is_in_the_plan() -> None:
    """Its limits hold, and failures have a limit without being named."""
    plan = make_plan(find_preset("quick"), [SOLO], guard=GuardLimits(8.0, 92.0))
    assert (plan.guard.min_headroom_gib, plan.guard.max_gpu_c) == (8.0, 92.0)
    assert 0 < plan.guard.max_error_share < 1


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        (Wishes(order=Order.ABBA, slo=(SloCondition("ttft_p50_ms", 1.0),)), "--slo"),
        (Wishes(order=Order.ABBA, duration_s=10.0), "--runs"),
        (Wishes(duration_s=10.0, requests=5), "not by both"),
    ],
)
def test_parts_that_contradict_each_other_are_told(wishes: Wishes, words: str) -> None:
    """No plan is made of them, and one line says which and what to do."""
    with pytest.raises(UsageError, match=words):
        make_plan(find_preset("quick"), [SOLO], wishes)


def test_two_targets_need_two_names() -> None:
    """Results are identified by name, so names are unique."""
    with pytest.raises(UsageError, match="same name"):
        make_plan(find_preset("quick"), [SOLO, SOLO])


def rated(**wishes: Any) -> Plan:  # noqa: ANN401 - any settings
    """Return the plan of the preset "quick" with a rate of two requests per second and these settings."""
    points = wishes.pop("points", (LoadPoint(LoadKind.RATE, 2.0),))
    return make_plan(find_preset("quick"), [SOLO], Wishes(points=points, **wishes))


def test_rates_replace_what_a_preset_says_about_concurrency() -> None:
    """One run of a minute a level, in open mode; the preset's lengths stay."""
    plan = rated()
    assert (plan.mode, plan.kind, plan.runs, plan.duration_s) == (LoadMode.OPEN, LoadKind.RATE, 1, 60.0)
    assert (plan.climb_to, plan.more_runs, plan.pp, plan.tg) == (None, False, 128, 64)
    assert [one.point.label for one in loads(plan)] == ["2 /s"]
    assert rated(runs=3).runs == 3


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"requests": 5}, "leave out --requests"),
        ({"slo": parse_slo("ttft_p90_ms=5")}, "sparktop capacity --rate --slo"),
        ({"points": (LoadPoint(LoadKind.RATE, 9999.0),), "duration_s": 3600.0}, "at most 1,000,000"),
        ({"points": (LoadPoint(LoadKind.RATE, 0.001),)}, "less than one request: make it 1000 s"),
        ({"points": (), "find_knee": True, "order": Order.ABBA}, "leave out --order abba"),
        ({"arrivals": "weibull"}, "poisson, constant"),
    ],
)
def test_settings_that_contradict_rates_are_refused(wishes: dict[str, Any], message: str) -> None:
    """Each in one line that says what to leave out."""
    with pytest.raises(UsageError, match=message):
        rated(**wishes)


def test_a_preset_has_rates() -> None:
    """A preset of the configuration may be rates; -c on the command line chooses the other axis."""
    preset = SweepSettings("r", rate="1,2", arrivals="bursty", duration_s=20.0, runs=3, prompt_lengths=(64,))
    plan = make_plan(preset, (SOLO,))
    assert [one.label for one in plan.points] == ["1 /s", "2 /s"]
    assert (plan.mode, plan.arrivals, plan.duration_s, plan.runs) == (LoadMode.OPEN, "bursty", 20.0, 3)
    assert make_plan(preset, (SOLO,), Wishes(arrivals="constant", runs=1)).arrivals == "constant"
    assert make_plan(preset, (SOLO,), Wishes(concurrency=(4,))).kind is LoadKind.CONCURRENCY
    assert make_plan(SweepSettings("a", rate="auto"), (SOLO,)).find_knee
    with pytest.raises(UsageError, match="is not a rate"):
        make_plan(SweepSettings("b", rate="0"), (SOLO,))


def test_a_preset_has_agents() -> None:
    """The axis of a preset is that of the plan, unless a user chooses another."""
    agents = make_plan(SweepSettings("a", agents=(1, 4), workload="chat", duration_s=60.0), (SOLO,))
    assert [point.label for point in agents.axis] == ["1 agent", "4 agents"]
    assert (agents.duration_s, agents.runs) == (60.0, 1)
    assert agents.conversations is not None
    assert agents.conversations.name == "chat"
    other = make_plan(SweepSettings("a", agents=(1, 4)), (SOLO,), Wishes(concurrency=(3,)))
    assert other.axis == (concurrency_point(3),)
