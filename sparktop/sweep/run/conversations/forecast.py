"""What a sweep of agents will send, and how long it takes: the duration is known from its plan."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from sparktop.model.time_range import TimeRange
from sparktop.sweep.plan.conversations.preset import ConversationPreset
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.run.conversations.level import ramp_s, tail_s
from sparktop.sweep.terms.statistics import P90_FROM

_SLOW, _FAST = (15.0, 1000.0), (100.0, 8000.0)
"""Assumed (output tok/s, prompt tok/s) of a single request on a slow and on a fast server."""
_REST_S = 3.0
"""Usual seconds between two levels."""


class Expected(Struct, frozen=True):
    """How many requests a level may have, from a slow to a fast server on which nothing waits."""

    least: int
    most: int


def expected_requests(plan: Plan, number: float) -> Expected:
    """Return how many requests `number` agents send in the measured time of a level."""
    preset = plan.conversations
    if preset is None:
        return Expected(0, 0)
    duration_s = plan.duration_s or preset.duration_s
    least, most = (number * duration_s / _cycle_s(preset, *pace) for pace in (_SLOW, _FAST))
    return Expected(round(least), round(most))


def requests_words(plan: Plan) -> str:
    """Return how many requests the lowest level may have, and whether these are too few."""
    lowest = min(plan.axis)
    found = expected_requests(plan, lowest.value)
    few = f"; too few for a 90th percentile, which takes {P90_FROM}" if found.most < P90_FROM else ""
    return f"about {found.least} to {found.most} requests at {lowest.label}{few}"


def _cycle_s(preset: ConversationPreset, output_tps: float, prompt_tps: float) -> float:
    """Return the mean seconds from a call of a conversation to the next; the prefix cache has its past."""
    calls = preset.calls
    humans = max(1.0, preset.human_requests.typical)
    new = preset.new_tokens.typical + preset.own_tokens.typical / calls
    model_s = new / prompt_tps + preset.output_tokens.typical / output_tps
    pauses_s = humans * preset.human_pause_s.typical + (calls - humans) * preset.tool_pause_s.typical
    return model_s + pauses_s / calls


def conversation_forecast(plan: Plan) -> dict[str, Any]:
    """Return the fields of the forecast of a sweep of agents, by name."""
    made = len(plan.points) * len(plan.targets) * plan.runs
    duration_s = plan.duration_s or 0.0
    past = sum(int(point.value) for point in plan.points) if _has_past(plan) else 0
    each_s = ramp_s(plan) + duration_s + _REST_S
    return {
        "requests": None,
        "warm_ups": past * len(plan.targets) * plan.runs,
        "prompt_tokens": None,
        "output_tokens": None,
        "seconds": made * each_s,
        "why": "by the duration of its levels",
        "levels": len(plan.points) * len(plan.targets),
        # Pasts are computed before, and answers that began in the measured time are waited for.
        "time": TimeRange(made * each_s, made * (each_s + tail_s(plan))),
    }


def _has_past(plan: Plan) -> bool:
    return plan.conversations is not None and plan.conversations.calls > 1
