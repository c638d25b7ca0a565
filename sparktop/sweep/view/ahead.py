"""What is known of a sweep before its first run: its countdown, and the range of its duration."""

from __future__ import annotations

from collections.abc import Sequence

from sparktop.graphics.numbers import range_words
from sparktop.model.countdown import Countdown
from sparktop.model.snapshot import Snapshot
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.forecast import Forecast, forecast
from sparktop.sweep.run.server_side import watched_sums


def expected_of(plan: Plan, snapshot: Snapshot, known: Sequence[SweepResult] = ()) -> Forecast:
    """Return the forecast of a plan from the slots and KV caches of the watched servers.

    `known` are results of earlier sweeps.
    """
    slots = watched_sums(plan, snapshot, lambda view: view.slots)
    return forecast(plan, known, slots)


def countdown_of(
    plan: Plan, snapshot: Snapshot, *, plan_words: str, left_s: float, whole_s: float
) -> Countdown:
    """Return the countdown of a sweep that begins in `left_s` of `whole_s` seconds.

    `plan_words` describes the plan's requests, as the running sweep does.
    """
    expected = expected_of(plan, snapshot)
    time = expected.time
    return Countdown(
        title=plan.preset or "sweep",
        plan_words=plan_words,
        targets=tuple(f"{one.name} ({one.kind.value})" for one in plan.targets),
        levels=plan.axis,
        climb_to=expected.most_concurrency,
        requests=expected.requests,
        at_least=expected.at_least,
        warm_ups=expected.warm_ups,
        time="" if time is None else range_words(time.least_s, time.most_s),
        left_s=left_s,
        whole_s=whole_s,
        simulated=snapshot.simulated,
    )
