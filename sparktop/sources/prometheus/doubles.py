"""Servers that stand twice among the series of a Prometheus, because two of its jobs have them as a target.

So it is for minutes after a job was renamed: the series of the old one are still there, with old samples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from sparktop.engines.tables import RUNNING
from sparktop.sources.prometheus.found import (
    NOT_A_ROUTER,
    SERVER_LABELS,
    ActiveTarget,
    FoundServer,
    Key,
)
from sparktop.sources.prometheus.promql import any_of, selector
from sparktop.sources.prometheus.steps import Steps

_MOST_NAMED = 500
_CURRENT_SCRAPES = 1.5


def doubles(servers: Iterable[FoundServer]) -> Steps[list[list[Key]]]:
    """Return, in steps, the keys of servers with the same instance, model and pod, of several each."""
    found: dict[tuple[object, ...], list[Key]] = {}
    for one in servers:
        same = (one.key.instance, one.key.exported_instance, one.key.replica, one.model, one.pod)
        found.setdefault(same, []).append(one.key)
        yield
    return [keys for keys in found.values() if len(keys) > 1]


def times_query(more: str, same: Sequence[Sequence[Key]]) -> str:
    """Return the query for the Unix times of the newest samples of these servers."""
    instances = {keys[0].instance for keys in same}
    only = f"instance=~{any_of(sorted(instances))}" if len(instances) <= _MOST_NAMED else ""
    gauges = selector(RUNNING, NOT_A_ROUTER, only, more)
    return f"max by ({', '.join(SERVER_LABELS)}) (timestamp({gauges}))"


def to_leave_out(
    same: Iterable[Sequence[Key]],
    times: Mapping[Key, float],
    targets: Mapping[Key, ActiveTarget],
    known: Collection[Key],
    every_s: float,
) -> frozenset[Key]:
    """Return the keys to leave out, so that each server stands there once: by its newest samples.

    If two of them are scraped at present, a key of `known` stays, so that nothing changes from time to time.
    These are one server if their scrape URLs are equal; else their instance may be any name.
    """
    found: set[Key] = set()
    for keys in same:
        listed = {} if keys[0].exported_instance else targets
        newest = max(times.get(key, -inf) for key in keys)
        current = [key for key in keys if times.get(key, -inf) >= newest - _CURRENT_SCRAPES * every_s]
        current = [key for key in current if key.target in listed] or current
        first = min(current, key=lambda key: (key not in known, key))
        found |= {
            key for key in keys if key != first and (key not in current or _at_same(key, first, listed))
        }
    return frozenset(found)


def _at_same(one: Key, other: Key, targets: Mapping[Key, ActiveTarget]) -> bool:
    if one.target in targets and other.target in targets:
        return targets[one.target].url == targets[other.target].url
    return one.address.rpartition(":")[2].isdecimal()
