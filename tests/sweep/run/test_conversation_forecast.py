"""Forecasts of sweeps of agents."""

from __future__ import annotations

from sparktop.commands.sweep.run import conversations_line
from sparktop.model.targets import SweepSpec
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.run.forecast import forecast


def plan_of(settings: SweepSpec) -> Plan:
    """Return the plan of a preset for one server."""
    return make_plan(settings, [SweepTarget("solo", "http://127.0.0.1:8000")])


def test_the_duration_of_a_sweep_of_agents_is_that_of_its_levels() -> None:
    """Three levels with their ramps, and at most the time in which answers are waited for."""
    found = forecast(plan_of(SweepSpec("a", agents=(1, 4, 8), duration_s=100.0)), ())
    assert (found.levels, found.warm_ups, found.requests) == (3, 13, None)
    assert found.time is not None
    assert (found.time.least_s, found.time.most_s) == (3 * 113.0, 3 * 213.0)


def test_a_short_level_says_before_that_it_has_too_few_requests() -> None:
    """The plan's line names how many requests the lowest level can have."""
    line = conversations_line(plan_of(SweepSpec("a", agents=(1,), duration_s=20.0)))
    assert line.startswith("1 agent (workload coder-quick): 1 level of 20 s, ")
    assert "too few for a 90th percentile, which takes 36" in line
    long = conversations_line(plan_of(SweepSpec("a", agents=(8, 16), duration_s=600.0)))
    assert "too few" not in long
