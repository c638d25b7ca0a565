"""What an open-loop sweep will send, and how long it takes: both are known from its plan."""

from __future__ import annotations

from typing import Any

from sparktop.model.time_range import TimeRange
from sparktop.sweep.plan.arrivals import rate_of
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.plan.presets import OPEN_S
from sparktop.sweep.run.open_loop.arrivals import tail_s, warm_up_s
from sparktop.sweep.run.open_loop.replay import replay_forecast

_KNEE_LEVELS = 8
"""Usual number of levels of a search for the highest rate: five doublings, then three between."""
_REST_S = 3.0
"""Usual seconds between two levels, until the last requests have ended and the servers are idle."""


def open_forecast(plan: Plan) -> dict[str, Any]:
    """Return the fields of the forecast of an open-loop sweep, by name."""
    if plan.trace is not None:
        return replay_forecast(plan, plan.trace)
    count, levels = 0, len(plan.points) * len(plan.lengths)
    duration_s = plan.duration_s or OPEN_S
    prompts = 0
    for length in plan.lengths:
        for point in plan.points:
            arrivals = round(rate_of(point).mean_per_s * duration_s) * plan.runs
            count += arrivals
            prompts += arrivals * length
    targets = len(plan.targets)
    before = sum(round(point.value * warm_up_s(plan)) for point in plan.points) * len(plan.lengths)
    each_s = warm_up_s(plan) + duration_s + _REST_S
    known = not plan.find_knee
    levels = levels if known else _KNEE_LEVELS
    made = levels * plan.runs * targets
    return {
        "requests": count * targets if known else None,
        "warm_ups": before * plan.runs * targets,
        "prompt_tokens": prompts * targets if known else None,
        "output_tokens": count * plan.tg * targets if known else None,
        "seconds": made * each_s,
        "why": "by its rates" if known else "a guess: the server decides how many",
        "levels": levels * targets,
        # Beyond a server's limit, the requests of a level take as long again.
        "time": TimeRange(made * each_s, made * (each_s + tail_s(plan))),
    }
