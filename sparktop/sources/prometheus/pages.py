"""Raw samples of a Prometheus as the metrics pages that were scraped, without the labels that it added.

All samples of one scrape have the same time, so that each time is a page. A page is text as a server writes
it: the readers of `engines` read both alike, and recordings keep it as they keep others.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from sparktop.engines.tables import RUNNING
from sparktop.model.series import LATE
from sparktop.sources.prometheus.client import Labels, Series
from sparktop.sources.prometheus.found import REPLICA, Key, key_of

# So it is where two targets have the same `instance`: two paths of one address, or one address with
# different
# labels. Each time would be a page of one of them alone.


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


_NAME = re.compile(r"[A-Za-z_:][\w:]*", re.ASCII)
_LABEL = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_VALUE = re.compile(r"[-+.\w]+", re.ASCII)
_EXPORTED = "exported_"
_NEVER = frozenset({"__name__", REPLICA})
"""Labels that no page has: replicas of a Prometheus write the same page, each at times of its own."""
USUAL = frozenset(
    {
        *("job", "instance", "namespace", "pod", "container", "endpoint", "service", "node", "cluster"),
        *("prometheus", "prometheus_replica", "replica"),
    }
)
"""Labels that are not the page's, where the labels of a target are not known."""


def pages(
    series: Iterable[Series], targets: Mapping[Key, Labels]
) -> tuple[dict[Key, dict[float, bytes]], frozenset[Key]]:
    """Return the pages of each server by the time of the scrape (Unix seconds), oldest first, and mixed ones.

    `targets` has the labels of each target, as its series `up` has them. Series with the same labels but
    those are one to a page: the later in the answer counts. A server is mixed if several targets with the
    same job and instance write its series at different times: then a page has the newest lines of each.
    """
    found: dict[Key, dict[float, list[str]]] = {}
    gauges: dict[Key, dict[str, frozenset[float]]] = {}
    for one in series:
        key = key_of(one.labels)
        start = line_start(one.labels, targets.get(key.target))
        if start is None:
            continue
        lines = found.setdefault(key, {})
        for at, value in one.samples:
            if _VALUE.fullmatch(value):
                lines.setdefault(at, []).append(start + value)
        if one.labels["__name__"] in RUNNING:
            times = gauges.setdefault(key, {})
            times[start] = times.get(start, frozenset()).union(at for at, _ in one.samples)
    mixed: set[Key] = set()
    for key, times in gauges.items():
        apart = scraped_apart([*times.values()])
        if len(apart) > 1:
            mixed.add(key)
            found[key] = dict(merged(found[key], apart))
    made = {
        key: {at: "\n".join([*lines[at], ""]).encode("utf-8", "surrogateescape") for at in sorted(lines)}
        for key, lines in found.items()
    }
    return made, frozenset(mixed)


def line_start(labels: Labels, target: Labels | None) -> str | None:
    """Return the line of a series on its page up to the value; None where no page could have it.

    Labels that the Prometheus added are left out: those of `target` (None: the usual ones). A page's own
    label of the same name, which was renamed to `exported_…`, gets its name back.
    """
    name = labels.get("__name__", "")
    if not _NAME.fullmatch(name):
        return None
    added = USUAL if target is None else target.keys()
    own: list[str] = []
    for label, value in labels.items():
        theirs = label in added and (target is None or target[label] == value)
        if theirs or label in _NEVER or not _LABEL.fullmatch(label):
            continue
        plain = label.removeprefix(_EXPORTED)
        written = plain if plain in added else label
        own.append(f'{written}="{_escaped(value)}"')
    return f"{name}{{{','.join(own)}}} " if own else f"{name} "


def _escaped(value: str) -> str:
    if "\\" not in value and '"' not in value and "\n" not in value:
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
