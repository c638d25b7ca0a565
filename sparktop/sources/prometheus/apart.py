"""Series of one job and instance that several targets write, each at times of its own.

So it is where two targets have the same `instance`: two paths of one address, or one address with different
labels. Each time would be a page of one of them alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from sparktop.model.series import LATE


def scraped_apart(gauges: Sequence[frozenset[float]]) -> list[frozenset[float]]:
    """Return the times at which each target was scraped; `gauges` has those of each gauge of requests.

    Gauges with a time in common are of one target, and so are gauges of which one ends before the other
    begins: those are of a server that was restarted with other labels.
    """
    apart: list[frozenset[float]] = []
    for one in gauges:
        same = [times for times in apart if not times.isdisjoint(one)]
        apart = [times for times in apart if times.isdisjoint(one)]
        apart.append(one.union(*same))
    apart = sorted((times for times in apart if times), key=min)
    if any(min(later) < max(earlier) for earlier, later in pairwise(apart)):
        return apart
    return [frozenset().union(*apart)]


def merged(
    lines: Mapping[float, Sequence[str]], apart: Sequence[Collection[float]]
) -> Iterator[tuple[float, list[str]]]:
    """Yield time and lines of each page, with the newest lines of all targets that are scraped at that time.

    `lines` has those of each time, `apart` the times of each target. There is no page while it is not known
    what a target reported before.
    """
    known = [sorted(times) for times in apart]
    steps = [later - earlier for times in known for earlier, later in pairwise(times)]
    current_s = LATE * median(steps) if steps else 0.0
    for at in sorted(at for times in known for at in times):
        page: list[str] = []
        for times in known:
            index = bisect_right(times, at)
            if index == 0 and times[0] - at <= current_s:
                break
            if index and at - times[index - 1] <= current_s:
                page += lines.get(times[index - 1], ())
        else:
            yield at, page
