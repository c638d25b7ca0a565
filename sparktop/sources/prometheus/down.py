"""Targets that are down (`up` is 0), and the servers among them by the samples of the past hour.

An instant query has no series of such a target: a server which was down at the start would be unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sparktop.model.text import clean
from sparktop.sources.prometheus.answer import Series
from sparktop.sources.prometheus.found import KEY_LABELS, Key, key_of, servers_query
from sparktop.sources.prometheus.promql import any_of, selector
from sparktop.sources.prometheus.steps import Steps

MOST_DOWN = 500
"""Targets that are down, of which those that were servers are searched for."""
_PAST_S = 3600
_NAMED = 3


def down_query() -> str:
    """Return the query for the targets that are down, at most `MOST_DOWN`."""
    return f"topk({MOST_DOWN}, count by ({', '.join(KEY_LABELS)}) ({selector(('up',))} == 0))"


def past_query(more: str, group_by: Sequence[str], keys: Iterable[Key]) -> str:
    """Return the query for those of these targets that were servers within the past hour."""
    only = f"instance=~{any_of(sorted({key.instance for key in keys}))}"
    return servers_query(f"{only},{more}" if more else only, group_by, past_s=_PAST_S)


def keys_in(series: Iterable[Series]) -> Steps[set[Key]]:
    """Return, in steps, the keys of the targets that series belong to."""
    found: set[Key] = set()
    for one in series:
        found.add(key_of(one.labels).target)
        yield
    return found


def said_down(keys: Collection[Key]) -> str:
    """Return which targets are down, in one clean line; "" for none."""
    if not keys:
        return ""
    number = len(keys)
    count = "1 target is" if number == 1 else f"{number} targets are"
    count = f"at least {count}" if number >= MOST_DOWN else count
    named = sorted(clean(key.instance or key.job, 60) for key in keys)[:_NAMED]
    return f"{count} down (up is 0): {', '.join([*named, *(['…'] if number > _NAMED else [])])}"
