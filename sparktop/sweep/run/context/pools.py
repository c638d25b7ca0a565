"""Levels whose prompts are sent twice, with other traffic in between: what the prefix cache still has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparktop.graphics.durations import range_words
from sparktop.model.load import LoadKind, LoadMode
from sparktop.model.time_range import TimeRange
from sparktop.sweep.generator.wire.messages import RunLoad
from sparktop.sweep.plan.order import Load, loads
from sparktop.sweep.plan.plan import Plan, SweepTarget
from sparktop.sweep.run.pace import FASTEST, SLOWEST, AssumedPace, EarlierSweep
from sparktop.sweep.run.progress import Phase

_MOST_SHARE = 0.25
"""Share of the KV cache that the prompts of a level may fill together, so that they do not displace each
other."""
_AT_ONCE = 4
"""Requests of other traffic in flight."""
_ASSUMED_POOL = (30_000.0, 1_000_000.0)
"""Tokens of KV cache of a server that has not reported them yet: from small to large."""
_LEAST, _MOST = 0.5, 1.5
"""Factors from the time by an earlier sweep to the ends of its range; prompts in the cache take no time."""


class UnknownPoolError(Exception):
    """The server does not report the size of its KV cache, so that no share of it can be filled."""


def phases_before(load: Load, pool: float | None) -> tuple[Phase, ...]:
    """Return the phases before a measured run of `load`; `pool` is the KV cache's size in tokens.

    Raises:
        UnknownPoolError: other traffic is to be sent, and `pool` is None.
    """
    if load.point.kind is LoadKind.POOLS and load.point.value:
        if not pool:
            raise UnknownPoolError("the server does not report the size of its KV cache")
        return Phase.CONTEXT, Phase.TRAFFIC
    return (Phase.CONTEXT,) if load.depth or load.point.kind is LoadKind.POOLS else ()


def repeated(plan: Plan, load: Load, pool: float | None) -> int | None:
    """Return the number of requests of a run in steady mode; None if its duration limits it.

    Prompts that are sent twice fill a quarter of the KV cache at most, whose size in tokens is `pool`.
    """
    if load.point.kind is not LoadKind.POOLS or not pool or plan.requests is None:
        return plan.requests
    return max(1, min(plan.requests, int(pool * _MOST_SHARE / load.prompt_tokens)))


def needed_runs(plan: Plan, load: Load, pool: float | None) -> int:
    """Return the number of runs of a level after which all the plan's requests were repeated; 1 at least.

    A small KV cache of `pool` tokens holds only some of them at once.
    """
    each = repeated(plan, load, pool)
    return 1 if load.point.kind is not LoadKind.POOLS or not each else math.ceil((plan.requests or 1) / each)


def run_requests(plan: Plan, load: Load, pool: float | None) -> int:
    """Return how many requests a run of a level sends: each prompt twice, and the traffic in between."""
    return 2 * (repeated(plan, load, pool) or 1) + _traffic_requests(load, pool or 0.0)


def pools_time(
    plan: Plan, found: Sequence[EarlierSweep | None], pools: Mapping[str, float]
) -> TimeRange | None:
    """Return the range of the duration of a sweep that sends prompts twice; None without targets.

    `found` has an earlier sweep of each target, None for a target without one. `pools` are the sizes of the
    targets' KV caches in tokens by target name, as far as known.
    """
    least_s = most_s = 0.0
    for target, one in zip(plan.targets, found, strict=True):
        small, large = (pools.get(target.name, assumed) for assumed in _ASSUMED_POOL)
        least_s += _seconds(plan, one or FASTEST, small) * (_LEAST if one else 1.0)
        most_s += _seconds(plan, one or SLOWEST, large) * (_MOST if one else 1.0)
    return TimeRange(least_s, most_s) if plan.targets else None


def pool_words(plan: Plan, target: SweepTarget, pool: float | None) -> str:
    """Return how much other traffic is sent to a target whose KV cache holds `pool` tokens, and how long."""
    if pool is None:
        return "reports no size of its KV cache: prompts are sent again at once only"
    tokens = pool * sum(point.value for point in plan.axis)
    time = pools_time(replace(plan, targets=(target,)), (None,), {target.name: pool})
    takes = "" if time is None else f"; about {range_words(time.least_s, time.most_s)}"
    return f"its KV cache holds {pool:,.0f} tokens, {tokens:,.0f} are sent as other traffic{takes}"


def _seconds(plan: Plan, pace: EarlierSweep | AssumedPace, pool: float) -> float:
    total = pace.begin_s
    for load in loads(plan):
        alone, runs = Load(load.prompt_tokens, 1), needed_runs(plan, load, pool)
        sent = runs * 2 * (repeated(plan, load, pool) or 1) + plan.warmup
        between = runs * _traffic_requests(load, pool)
        total += sent * pace.run_s(alone, plan.tg) + between * pace.run_s(alone, 1) + pace.pause_s
    return total


def _traffic_requests(load: Load, pool: float) -> int:
    return math.ceil(load.point.value * pool / load.prompt_tokens)


def traffic_command(command: RunLoad, load: Load, pool: float) -> RunLoad:
    """Return the run of other prompts that are as long as those of `command` and fill a share of `pool`.

    `load` states the share.
    """
    return replace(
        command,
        id=f"{command.id}-traffic",
        mode=LoadMode.STEADY,
        concurrency=_AT_ONCE,
        requests=_traffic_requests(load, pool),
        duration_s=None,
        output_tokens=1,
        prompt_salt=f"{command.prompt_salt}/traffic",
        cache_salt=f"{command.cache_salt}-traffic",
    )
