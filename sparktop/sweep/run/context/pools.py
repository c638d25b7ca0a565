"""Levels whose prompts are sent twice, with other traffic in between: what the prefix cache still has."""

from __future__ import annotations

import math
from dataclasses import replace

from sparktop.model.load import LoadKind, LoadMode
from sparktop.sweep.generator.wire.messages import RunLoad
from sparktop.sweep.plan.order import Load
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.run.progress import Phase

_MOST_SHARE = 0.25
"""Share of the KV cache that the prompts of a level may fill together, so that they do not displace each
other."""
_AT_ONCE = 4
"""Requests of other traffic in flight."""


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


def traffic_command(command: RunLoad, load: Load, pool: float) -> RunLoad:
    """Return the run of other prompts that are as long as those of `command` and fill a share of `pool`.

    `load` states the share.
    """
    return replace(
        command,
        id=f"{command.id}-traffic",
        mode=LoadMode.STEADY,
        concurrency=_AT_ONCE,
        requests=math.ceil(load.point.value * pool / load.prompt_tokens),
        duration_s=None,
        output_tokens=1,
        prompt_salt=f"{command.prompt_salt}/traffic",
        cache_salt=f"{command.cache_salt}-traffic",
    )
