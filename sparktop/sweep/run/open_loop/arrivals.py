"""The arrivals of an open-loop run: those that are measured, and those before and after them."""

from __future__ import annotations

from sparktop.sweep.generator.wire.messages import OpenLoop
from sparktop.sweep.plan.order import Load
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.plan.presets import OPEN_S

_WARM_UP_SHARE, _LONGEST_WARM_UP_S = 0.25, 120.0
"""A level that begins with an empty queue looks too good: with answers of 30 s at 80 % of the load that 16
slots can carry, the mean wait of a level of 600 s is 4 % low after a warm-up of 30 s, right after 120 s."""
_LEAST_TAIL_S, _LONGEST_TAIL_S = 30.0, 120.0


def warm_up_s(plan: Plan) -> float:
    """Return the seconds of arrivals before the measured ones, in which the queue gets its usual length.

    Of recorded traffic all requests are measured; before the first one there may be a pause.
    """
    if plan.trace is not None:
        return plan.trace.summary.begin_s
    return min(_LONGEST_WARM_UP_S, _WARM_UP_SHARE * (plan.duration_s or OPEN_S)) if plan.warmup else 0.0


def tail_s(plan: Plan) -> float:
    """Return the longest time for which the load stays on after the measured arrivals, until they ended."""
    if plan.trace is not None:
        return plan.trace.tail_s
    return min(_LONGEST_TAIL_S, max(_LEAST_TAIL_S, plan.duration_s or OPEN_S))


def open_loop_of(plan: Plan, load: Load, run: int) -> OpenLoop:
    """Return the arrivals of a run; they depend on the plan's seed alone, so all targets see the same."""
    point, trace = load.point, plan.trace
    # Where requests wait for answers, how long they take is not known before.
    duration_s = 0.0 if trace is not None and trace.summary.waits else plan.duration_s or OPEN_S
    return OpenLoop(
        pattern=plan.arrivals,
        per_s=point.value,
        end_per_s=point.rises_to,
        warm_up_s=warm_up_s(plan),
        duration_s=duration_s,
        tail_s=tail_s(plan),
        seed=f"{plan.seed}/{load.word}/{run}",
    )
