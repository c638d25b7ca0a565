"""Figures of servers through a Prometheus: of a few the scraped pages, of all from aggregates."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import TypeAlias

from sparktop.engines.tables import RAY, RUNNING, buckets_for, names_for, names_without_total
from sparktop.model.router import FleetServer, rate_window_s
from sparktop.model.series import LATE
from sparktop.sources.prometheus.client import (
    Labels,
    PrometheusClient,
    TimeSeries,
    any_of,
    selector,
)
from sparktop.sources.prometheus.found import (
    NOT_A_ROUTER,
    REPLICA,
    SERVER_LABELS,
    FoundServer,
    ScrapeKey,
    key_of,
)
from sparktop.sources.prometheus.machines import MachinesOf
from sparktop.stopping import gather_or_cancel

# All samples of one scrape have the same time, so that each time is a page. A page is text as a server
# writes it: the readers of `engines` read both alike, and recordings keep it as they keep others.


# Two targets may have the same `instance`: two paths of one address, or one address with different labels.
# Then each time is a page of one of them alone, and a page has the newest lines of each.


def times_by_target(gauges: Sequence[frozenset[float]]) -> list[frozenset[float]]:
    """Return the times at which each target was scraped; `gauges` has those of each gauge of requests.

    Gauges with a time in common are of one target, and so are gauges of which one ends before the other
    begins: those are of a server that was restarted with other labels.
    """
    targets: list[frozenset[float]] = []
    for gauge in gauges:
        times_of_gauge = [times for times in targets if not times.isdisjoint(gauge)]
        targets = [times for times in targets if times.isdisjoint(gauge)]
        targets.append(gauge.union(*times_of_gauge))
    targets = sorted((times for times in targets if times), key=min)
    if any(min(later) < max(earlier) for earlier, later in pairwise(targets)):
        return targets
    return [frozenset().union(*targets)]


def merge_pages(
    lines: Mapping[float, Sequence[str]], times_of_targets: Sequence[Collection[float]]
) -> Iterator[tuple[float, list[str]]]:
    """Yield time and lines of each page, with the newest lines of all targets that are scraped at that time.

    `lines` has those of each time, `times_of_targets` the times of each target. There is no page while it is
    not known what a target reported before.
    """
    ordered = [sorted(times) for times in times_of_targets]
    steps = [later - earlier for times in ordered for earlier, later in pairwise(times)]
    current_s = LATE * median(steps) if steps else 0.0
    for at in sorted(at for times in ordered for at in times):
        if any(0 < times[0] - at <= current_s for times in ordered):
            continue  # not known yet what this target reported at that time
        page: list[str] = []
        for times in ordered:
            newest = times[bisect_right(times, at) - 1]
            if 0 <= at - newest <= current_s:
                page += lines.get(newest, ())
        yield at, page


# A metric's name.
_NAME = re.compile(r"[A-Za-z_:][\w:]*", re.ASCII)
# A label's name.
_LABEL = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# A sample's value: "1.5", "+Inf", "NaN".
_VALUE = re.compile(r"[-+.\w]+", re.ASCII)
_EXPORTED = "exported_"
_NEVER = frozenset({"__name__", REPLICA})
"""Labels that no page has: replicas of a Prometheus write the same page, each at times of its own."""
USUAL_NAMES = frozenset(
    {
        *("job", "instance", "namespace", "pod", "container", "endpoint", "service", "node", "cluster"),
        *("prometheus", "prometheus_replica", "replica"),
    }
)
"""Labels that are not the page's, where the labels of a target are not known."""


def pages(
    series: Iterable[TimeSeries], targets: Mapping[ScrapeKey, Labels]
) -> tuple[dict[ScrapeKey, dict[float, bytes]], frozenset[ScrapeKey]]:
    """Return the pages of each server by the time of the scrape (Unix seconds), oldest first, and mixed ones.

    `targets` has the labels of each target, as its series `up` has them. Series with the same labels but
    those are one to a page: the later in the answer counts. A server is mixed if several targets with the
    same job and instance write its series at different times: then a page has the newest lines of each.
    """
    lines_of: dict[ScrapeKey, dict[float, list[str]]] = {}
    gauges: dict[ScrapeKey, dict[str, frozenset[float]]] = {}
    for each_series in series:
        key = key_of(each_series.labels)
        start = line_start(each_series.labels, targets.get(key.target))
        if start is None:
            continue
        lines = lines_of.setdefault(key, {})
        for at, value in each_series.samples:
            if _VALUE.fullmatch(value):
                lines.setdefault(at, []).append(start + value)
        if each_series.labels["__name__"] in RUNNING:
            times = gauges.setdefault(key, {})
            times[start] = times.get(start, frozenset()).union(at for at, _ in each_series.samples)
    mixed: set[ScrapeKey] = set()
    for key, times in gauges.items():
        times_of_targets = times_by_target([*times.values()])
        if len(times_of_targets) > 1:
            mixed.add(key)
            lines_of[key] = dict(merge_pages(lines_of[key], times_of_targets))
    pages_of = {
        key: {at: "\n".join([*lines[at], ""]).encode("utf-8", "surrogateescape") for at in sorted(lines)}
        for key, lines in lines_of.items()
    }
    return pages_of, frozenset(mixed)


def line_start(labels: Labels, target: Labels | None) -> str | None:
    """Return the line of a series on its page up to the value; None where no page could have it.

    Labels that the Prometheus added are left out: those of `target` (None: the usual ones). A page's own
    label of the same name, which was renamed to `exported_…`, gets its name back.
    """
    name = labels.get("__name__", "")
    if not _NAME.fullmatch(name):
        return None
    added_labels = USUAL_NAMES if target is None else target.keys()
    own_labels: list[str] = []
    for label, value in labels.items():
        is_of_target = label in added_labels and (target is None or target[label] == value)
        if is_of_target or label in _NEVER or not _LABEL.fullmatch(label):
            continue
        plain = label.removeprefix(_EXPORTED)
        written = plain if plain in added_labels else label
        own_labels.append(f'{written}="{_escape(value)}"')
    return f"{name}{{{','.join(own_labels)}}} " if own_labels else f"{name} "


def _escape(value: str) -> str:
    if "\\" not in value and '"' not in value and "\n" not in value:
        return value
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# The figures of all servers from a few aggregates, which cost far less than raw samples.


MOST_QUANTILES = 500
"""Servers whose quantiles are computed at a time: 500 take a Prometheus 0.2 s, 1,000 take 0.7 s."""
_LEAST_QUANTILES_S = 120.0
"""Shortest window of quantiles, in seconds: some requests must have ended in it."""
_LEAST_STATE_S, _SLACK_S = 10.0, 1.0
"""Preemptions are those between the two newest scrapes, as where every sample is read: they make a state."""
_BY = f"by ({', '.join(SERVER_LABELS)})"
_SAME_GAUGE = ("pid", "tp_rank", "pp_rank")
"""Labels by which series differ that report the same gauge: API servers of one vLLM, ranks of one lane of
SGLang."""
_GAUGES = (("running", "sum"), ("waiting", "sum"), ("kv_cache_percent", "max"))
"""Gauges of a server, and how those of its engine cores become one."""
_FULLEST_POOL = (":token_usage", "sglang_token_usage")
"""SGLang's use of its fullest pool, which is the KV cache's only where a server has no gauge of that."""
_RATES = ("generation_tokens", "prompt_tokens")
"""Counters whose rates are asked for."""
_QUANTILES = ("ttft", "itl")
"""Histograms whose quantiles are asked for."""
_BY_MODE = "realtime"
"""In names of counters of several kinds of tokens; there are other counters beside them."""


Figures: TypeAlias = Mapping[str, Mapping[ScrapeKey, float]]
"""Values by target, for each name of a figure."""


async def gauges_and_rates(
    client: PrometheusClient,
    more: str,
    every_s: float,
    *,
    replicated: bool = False,
    engines: Collection[str] = (),
) -> Figures:
    """Return the newest gauges, rates and times of all servers; `more` has further matchers.

    If `replicated`, the series that differ by their `REPLICA` count once. `engines` are those of the servers.

    Raises:
        AnswerError: a query failed.
    """
    window_s = rate_window_s(every_s)
    same = ", ".join((*_SAME_GAUGE, *((REPLICA,) if replicated else ())))
    queries = {
        name: f"{operation} {_BY} (max without ({same}) ({selector(names_for(name), NOT_A_ROUTER, more)}))"
        for name, operation in _GAUGES
    }
    older = tuple(name for name in names_for("kv_cache_percent") if name.endswith(_FULLEST_POOL))
    kv = tuple(name for name in names_for("kv_cache_percent") if name not in older)
    queries["kv_cache_percent"] = " or ".join(
        f"max {_BY} (max without ({same}) ({selector(names, NOT_A_ROUTER, more)}))" for names in (kv, older)
    )
    windows = dict.fromkeys(_RATES, window_s) | {"preemptions": max(_LEAST_STATE_S, 2 * every_s + _SLACK_S)}
    for name, rate_s in windows.items():
        queries[name] = _rate_query(name, more, rate_s, replicated=replicated, of_ray=RAY in engines)
    queries["at"] = f"max {_BY} (timestamp({selector(RUNNING, NOT_A_ROUTER, more)}))"
    return await _ask_figures(client, queries)


async def quantiles(
    client: PrometheusClient, more: str, servers: Sequence[FoundServer], figures: Figures, every_s: float
) -> Figures:
    """Return the 95 % quantiles of TTFT and ITL over two minutes, of at most `MOST_QUANTILES` servers.

    These are the servers with the most waiting requests by `figures`.

    Raises:
        AnswerError: a query failed.
    """
    window_s = max(_LEAST_QUANTILES_S, rate_window_s(every_s))
    waiting = figures["waiting"]
    busiest = sorted(servers, key=lambda server: -waiting.get(server.key, 0.0))[:MOST_QUANTILES]
    only = f"instance=~{any_of({server.key.instance for server in busiest})}"
    by_bucket = _BY.replace("by (", "by (le, ")
    queries = {
        name: f"histogram_quantile(0.95, sum {by_bucket} "
        f"(rate({selector(buckets_for(name), only, more)}[{window_s:.0f}s])))"
        for name in _QUANTILES
    }
    return await _ask_figures(client, queries)


def fullest_group(servers: Iterable[FoundServer], figures: Figures) -> str:
    """Return the group with the most waiting requests."""
    waiting: Counter[str] = Counter()
    for server in servers:
        waiting[server.group] += round(figures["waiting"].get(server.key, 0.0))
    return max(waiting, key=lambda group: waiting[group])


def fleet_servers(
    servers: Iterable[FoundServer],
    figures: Figures,
    late: Figures,
    dead: Collection[ScrapeKey],
    shift_s: float,
    machines_of: MachinesOf = lambda _: (),
) -> tuple[FleetServer, ...]:
    """Return the servers with their figures and machines.

    `late` has the quantiles, `dead` the targets that are down. A Unix time of the Prometheus plus `shift_s`
    is one in monotonic seconds.
    """
    values = {**figures, **late}

    def value(name: str, key: ScrapeKey) -> float | None:
        return None if key.target in dead else values.get(name, {}).get(key)

    def server(found_server: FoundServer) -> FleetServer:
        at, kv = values.get("at", {}).get(found_server.key), value("kv_cache_percent", found_server.key)
        return FleetServer(
            found_server.name,
            found_server.url,
            found_server.group,
            None if at is None else at + shift_s,
            down=found_server.key.target in dead,
            running=value("running", found_server.key),
            waiting=value("waiting", found_server.key),
            kv_cache_percent=None if kv is None or not 0 <= kv <= 1 else 100 * kv,
            generation_tps=value("generation_tokens", found_server.key),
            prompt_tps=value("prompt_tokens", found_server.key),
            preemptions_per_s=value("preemptions", found_server.key),
            ttft_p95_s=value("ttft", found_server.key),
            itl_p95_s=value("itl", found_server.key),
            nodes=machines_of(found_server),
        )

    return tuple(map(server, servers))


def _rate_query(name: str, more: str, window_s: float, *, replicated: bool, of_ray: bool) -> str:
    """Return the query for the rate of a counter.

    Where Ray has it under two names, series of both in one `rate` are an error: the second name is used for
    the servers that lack the first.
    """
    names_without = names_without_total(name)
    once = f"max without ({REPLICA}) " if replicated else ""
    parts = [
        [counter for counter in _counter_names(name) if counter not in names_without],
        *([names_without] if of_ray else []),
    ]
    return " or ".join(
        f"sum {_BY} ({once}(rate({selector(names, NOT_A_ROUTER, more)}[{window_s:.0f}s])))" for names in parts
    )


async def _ask_figures(client: PrometheusClient, asked: Mapping[str, str]) -> Figures:
    """Send a query for each figure, by its name, and return their values by target."""
    keys: dict[ScrapeKey, ScrapeKey] = {}  # so that all figures share the keys

    async def values(promql: str) -> dict[ScrapeKey, float]:
        result: dict[ScrapeKey, float] = {}

        def add(each_series: TimeSeries) -> None:
            if (value := each_series.value) is not None:
                key = key_of(each_series.labels)
                result[keys.setdefault(key, key)] = value

        await client.query(promql, add)
        return result

    answers = await gather_or_cancel(*(values(promql) for promql in asked.values()))
    return dict(zip(asked, answers, strict=True))


def _counter_names(name: str) -> list[str]:
    return [counter for counter in names_for(name) if _BY_MODE not in counter]
