"""The metrics of a backend, computed from its newest metrics page and from its pages of the last minute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec.structs import replace

from sparktop.analysis.placement import address_of
from sparktop.model.engine import POSITION, EngineSample, LaneSample, PrefixCache
from sparktop.model.figures import COUNTER_FIGURES, How
from sparktop.model.router import FleetServer, FleetView, Sum, Totals
from sparktop.model.series import known_mean
from sparktop.model.snapshot import BackendView, NodeView, PrefixUse
from sparktop.model.targets import StateThresholds
from sparktop.rates import (
    LATENCY_WINDOW_S,
    MISSED_INTERVALS,
    Window,
    kv_fullest_percent,
    kv_used_percent,
    lane_sum,
    merge,
)

RATE_WINDOW_S = 10.0
"""The window of token and request rates, in seconds."""
RATE_INTERVALS, _LEAST_RATE_S = 2.0, 2.0
"""A rate covers at least this many poll intervals, and 2 s: over less time it would depend on the timing of
steps and polls."""
_BETWEEN_SCRAPES = 0.75
"""Share of that least time that is enough for scraped servers: a closer look begins between two scrapes."""
_NEARLY = 0.9
"""Share of that least time that is enough, because polls are rarely a full interval apart."""
SIMULATED = "+simulated"
"""Suffix of the versions of simulated servers."""
PER_FINISHED_REQUEST = "per finished request"

_NO_FIGURES: Mapping[str, float | None] = dict.fromkeys(figure.name for figure in COUNTER_FIGURES)
_COMPUTED = tuple(figure for figure in COUNTER_FIGURES if figure.how in {How.RATE, How.PERCENT, How.MEAN})
_COUNTS = {figure.counter: figure for figure in COUNTER_FIGURES if figure.how is How.COUNT}
_GAUGES = {figure.counter: figure for figure in COUNTER_FIGURES if figure.how in {How.GAUGE, How.HIGHEST}}
"""Metrics that are what the newest page reports, by the name of their counter or gauge."""

_SUMMED: Mapping[str, Callable[[LaneSample], float | None]] = {
    name: attrgetter(name)
    for name in (
        "running",
        "waiting",
        "waiting_for_capacity",
        "kv_capacity_tokens",
        "prompt_tokens",
        "generation_tokens",
        "preemptions",
    )
}
"""Fields of a server's lanes whose sums are the fields of these names of its view."""

_Lanes: TypeAlias = Sequence[LaneSample]


def with_figures(view: BackendView, lanes: _Lanes, window: Window, interval_s: float) -> BackendView:
    """Return `view` with the metrics of the newest page and those computed over the pages in `window`.

    Rates are computed over the last 10 s, latencies and ratios over the last minute. Both periods are longer
    if the poll interval is long.
    """
    # With slow polling a window must reach the previous sample, or there would never be a figure.
    short_s = max(RATE_WINDOW_S, MISSED_INTERVALS * interval_s)
    long_s = max(LATENCY_WINDOW_S, MISSED_INTERVALS * interval_s)
    least_s = least_rate_s(interval_s) * (1.0 if view.scrape is None else _BETWEEN_SCRAPES)
    sums: dict[str, Any] = {name: lane_sum(lanes, field) for name, field in _SUMMED.items()}
    rate = partial(window.rate, window_s=short_s, least_s=least_s)
    percent = partial(_percent_of_growth, lanes, window, long_s)
    prompt, generated = prompt_counter(window), rate("generation_tokens")
    live_tps, live_s = _live_generation(lanes, window, generated, interval_s)
    read = rate("read_bytes_per_gpu")
    return replace(
        view,
        **sums,
        kv_cache_percent=kv_used_percent(lanes),
        kv_fullest_percent=kv_fullest_percent(lanes),
        finished=_finished_by_reason(lanes),
        prompt_tps=rate(prompt),
        prompt_cached_tps=rate("prompt_tokens_cached") if prompt != "prompt_tokens" else None,
        generation_tps=generated,
        generation_tps_1s=live_tps,
        live_window_s=live_s,
        rate_note=_rate_note(lanes),
        rate_window_s=_rate_window_s(window, short_s, least_s),
        requests_per_s=rate("finished"),
        preemptions_per_s=rate("preemptions"),
        prefix_cache_hit_percent=percent(
            "prefix_cache_hits", "prefix_cache_queries", "prefix_cache_hit_percent"
        ),
        spec_decode_accept_percent=percent(
            "spec_accepted_tokens", "spec_draft_tokens", "spec_accept_percent"
        ),
        spec_accepted_per_draft=window.ratio("spec_accepted_tokens", "spec_drafts", long_s),
        spec_drafts_per_s=rate("spec_drafts"),
        spec_draft_length=window.ratio("spec_draft_tokens", "spec_drafts", short_s),
        tokens_per_step=window.ratio("stepped", "steps", long_s),
        steps_per_s=rate("steps"),
        counter_figures=_counter_figures(lanes, window, short_s, least_s, long_s),
        spec_accept_by_position=_by_position(lanes, window, long_s),
        estimated_read_gb_per_s=None if read is None else read / 1e9,
        ttft=window.latency("ttft", long_s),
        itl=window.latency("itl", long_s),
        e2e=window.latency("e2e", long_s),
        queue=window.latency("queue", long_s),
        tpot=window.latency("tpot", long_s),
        prefill=window.latency("prefill", long_s),
        decode=window.latency("decode", long_s),
    )


def prefix_use(sample: EngineSample, identified: PrefixCache | None) -> PrefixUse | None:
    """Return what caches spared a server of its prompts since its start, by its counters.

    `identified` is how the server says its cache is configured, for pages that do not say whether it is on.
    None where that, the prompt tokens or the cached ones are unknown, and before the first prompt. SGLang
    counts cached tokens from the first one on: before, its hit rate is 0.
    """
    lanes, cache = sample.lanes, sample.prefix_cache
    cache = identified if cache is None or cache.on is None else cache
    tokens = lane_sum(lanes, _SUMMED["prompt_tokens"])
    if cache is None or cache.on is None or tokens is None:
        return None
    prompts = [lane.ttft.count for lane in lanes if lane.ttft is not None]
    if any(lane.per_finished_request for lane in lanes):
        prompts = [*_finished_by_reason(lanes).values()]
    # Without any count, 0 tokens were found only if the cache is off, or the reported hit rate is 0.
    uncounted = 0.0 if not cache.on or any(lane.prefix_cache_hit_percent == 0 for lane in lanes) else None
    cached = lane_sum(lanes, lambda lane: _cached_tokens(lane, uncounted))
    queried = lane_sum(lanes, lambda lane: lane.prefix_cache_queries) if cache.on else None
    if cached is None or not (prompts or queried):
        return None
    lmcache = [lane.counts for lane in lanes if "lmcache_lookups" in lane.counts]
    looked_up = sum(counts["lmcache_lookups"] for counts in lmcache)
    hits = sum(counts.get("lmcache_hits", 0.0) for counts in lmcache)
    return PrefixUse(
        cache,
        sum(prompts) if prompts else None,
        tokens,
        tokens if queried is None else queried,
        cached,
        merge([lane.request_tokens for lane in lanes if lane.request_tokens is not None]),
        (looked_up, hits) if lmcache else None,
    )


def responses_accepted(lanes: _Lanes) -> float | None:
    """Return the requests of the Responses API that a server has accepted; None where it does not count."""
    counts = [lane.counts for lane in lanes if "http_answers" in lane.counts]
    return sum(counted.get("responses", 0.0) for counted in counts) if counts else None


def _cached_tokens(lane: LaneSample, uncounted: float | None) -> float | None:
    """Return the prompt tokens that a lane took from caches, by the highest of its counts.

    They are its count of cached prompt tokens, and the hits of its own and of a shared cache; `uncounted`
    where it reports none of these.
    """
    own_hits, shared = lane.prefix_cache_hits, lane.external_cache_hits
    counts = [lane.prompt_tokens_cached, None if own_hits is None else own_hits + (shared or 0.0), shared]
    return max((count for count in counts if count is not None), default=uncounted)


def with_limits(view: BackendView, thresholds: StateThresholds) -> BackendView:
    """Return `view` with the configured limits of its latencies."""
    ttft_s, itl_ms, queue_s = thresholds.ttft_slow_s, thresholds.itl_slow_ms, thresholds.queue_slow_s
    if not (ttft_s or itl_ms or queue_s):
        return view
    return replace(
        view,
        ttft=replace(view.ttft, slow_s=ttft_s or None),
        itl=replace(view.itl, slow_s=itl_ms / 1000 if itl_ms else None),
        queue=replace(view.queue, slow_s=queue_s or None),
    )


def graph_points(view: BackendView, window: Window, interval_s: float) -> dict[str, float | None]:
    """Return the value to append to each of a backend's graphs, by field name of `BackendHistory`.

    Token rates are those of about the last second. `step_ms` is not included.
    """
    is_split = view.prompt_cached_tps is not None
    points = {
        "generation_tps": view.generation_tps_1s,
        "prompt_tps": window.live_rate(prompt_counter(window), interval_s),
        "prompt_cached_tps": window.live_rate("prompt_tokens_cached", interval_s) if is_split else None,
        "running": view.running,
        "waiting": view.waiting,
        "kv_cache_percent": view.kv_cache_percent,
        "prefix_cache_hit_percent": view.prefix_cache_hit_percent,
        "spec_decode_accept_percent": view.spec_decode_accept_percent,
        "tokens_per_step": view.tokens_per_step,
        "preemptions_per_s": view.preemptions_per_s,
        "estimated_read_gb_per_s": view.estimated_read_gb_per_s,
    }
    for name, latency in (("ttft", view.ttft), ("itl", view.itl), ("e2e", view.e2e), ("queue", view.queue)):
        points[f"{name}_p50_s"] = latency.p50.seconds if latency.p50 else None
        points[f"{name}_p95_s"] = latency.p95.seconds if latency.p95 else None
    return points


def least_rate_s(interval_s: float) -> float:
    """Return the shortest span in seconds over which a rate is shown, for a poll interval of `interval_s`."""
    return _NEARLY * max(_LEAST_RATE_S, RATE_INTERVALS * interval_s)


def prompt_counter(window: Window) -> str:
    """Return the name of the counter from which the rate of prompt tokens is computed.

    If the server counts computed prompt tokens, it is that counter, which leaves out tokens from the prefix
    cache; else the counter of all prompt tokens.
    """
    newest = window.newest
    is_counted = newest is not None and newest.counter("prompt_tokens_computed") is not None
    return "prompt_tokens_computed" if is_counted else "prompt_tokens"


def _rate_note(lanes: _Lanes) -> str | None:
    """Return `PER_FINISHED_REQUEST` if tokens are counted only when a request finishes, else None."""
    return PER_FINISHED_REQUEST if any(lane.per_finished_request for lane in lanes) else None


def _live_generation(
    lanes: _Lanes, window: Window, counted_tps: float | None, interval_s: float
) -> tuple[float | None, float | None]:
    """Return (generated tokens/s of about the last second, seconds that they cover); None where unknown.

    If the server reports a gauge, return the gauge, summed over the engine cores (lanes); else compute the
    rate from the token counter. An idle SGLang refreshes its gauge only every 30 s. So the counter is also
    used while `counted_tps`, the counted rate of the last seconds, is 0 and the server counts each token at
    once.
    """
    reported = [lane.generation_tps_gauge for lane in lanes if lane.generation_tps_gauge is not None]
    resting = not counted_tps and counted_tps is not None and _rate_note(lanes) is None
    if reported and not resting:
        return sum(reported), None
    counted = window.live_growth("generation_tokens", interval_s)
    return (None, None) if counted is None else (counted[0] / counted[1], counted[1])


def _rate_window_s(window: Window, window_s: float, least_s: float) -> float | None:
    """Return the seconds that the token rates cover; None if that is less than `least_s`."""
    spans = (window.growth(name, window_s) for name in ("generation_tokens", "finished"))
    span_s = next((counted[1] for counted in spans if counted), 0.0)
    return span_s if span_s >= least_s else None


def _counter_figures(
    lanes: _Lanes, window: Window, rate_s: float, least_s: float, ratio_s: float
) -> Mapping[str, float | None]:
    """Return the figures of `COUNTER_FIGURES` by name; None for what the server does not report."""
    result = dict(_NO_FIGURES)
    counters = window.newest.layout.counters if window.newest else {}
    for computed in _COMPUTED:
        if computed.counter in counters:
            result[computed.name] = window.figure(computed, rate_s, least_s, ratio_s)
    reported = (
        (_COUNTS, [lane.counts for lane in lanes if lane.counts]),
        (_GAUGES, [lane.gauges for lane in lanes if lane.gauges]),
    )
    for figures, held in reported:
        for name in figures.keys() & set().union(*held):
            figure, amounts = figures[name], [values[name] for values in held if name in values]
            result[figure.name] = figure.scale * (max(amounts) if figure.how is How.HIGHEST else sum(amounts))
    return result


def _by_position(lanes: _Lanes, window: Window, window_s: float) -> tuple[float | None, ...]:
    """Return the percentage of drafts whose token was accepted, by position in the draft; () if unknown."""
    if not any(f"{POSITION}0" in lane.counts for lane in lanes):
        return ()
    positions = max(sum(name.startswith(POSITION) for name in lane.counts) for lane in lanes)
    shares = (window.ratio(f"{POSITION}{index}", "spec_drafts", window_s) for index in range(positions))
    return tuple(None if share is None else 100.0 * share for share in shares)


def _percent_of_growth(
    lanes: _Lanes, window: Window, window_s: float, part: str, whole: str, gauge: str
) -> float | None:
    """Return 100 * growth of the counter `part` / growth of the counter `whole`, over `window_s` seconds.

    If the server lacks these counters, return the mean of the field `gauge` of its lanes. Return None if
    nothing is known.
    """
    parts, wholes = window.growth(part, window_s), window.growth(whole, window_s)
    if parts and wholes:
        return 100.0 * parts[0] / wholes[0] if wholes[0] > 0 else None
    counts = window.newest is not None and window.newest.counter(whole) is not None
    return None if counts else known_mean(map(attrgetter(gauge), lanes))


def _finished_by_reason(lanes: _Lanes) -> Mapping[str, float]:
    totals: dict[str, float] = {}
    for lane in lanes:
        for reason, count in lane.finished.items():
            totals[reason] = totals.get(reason, 0.0) + count
    return totals


def is_simulated(backends: Iterable[BackendView], nodes: Iterable[NodeView]) -> bool:
    """Return whether any server or agent is simulated.

    A simulated server has a version such as 0.32.0+simulated; an agent reports it in its replies.
    """
    if any(view.version is not None and view.version.endswith(SIMULATED) for view in backends):
        return True
    return any(view.identity.simulated for view in nodes)


_Server: TypeAlias = FleetServer | BackendView
_TOTALLED: Mapping[str, Callable[[_Server], float | None]] = {
    "generation_tps": lambda server: server.generation_tps,
    "prompt_tps": lambda server: server.prompt_tps,
    "running": lambda server: server.running,
    "waiting": lambda server: server.waiting,
}


def totals(backends: Iterable[BackendView], fleets: Iterable[FleetView] = ()) -> Totals:
    """Return the sums over all servers, each once; the values of one that does not answer are unknown.

    A server that a Prometheus scrapes counts with the figures of its last scrape, unless they are stale. It
    is in the fleet of one Prometheus (see `EachOnce`): servers of two sites with one address are two.
    """

    def address(server: _Server) -> tuple[str, int, str] | str:
        return address_of(server.url) or server.url

    fleets_known = [view.fleet for view in fleets if view.ok and view.fleet is not None]
    scraped = [(server, fleet.late_at) for fleet in fleets_known for server in fleet.servers]
    addresses = {address(server) for server, _ in scraped}
    single_backends = [view for view in backends if not addresses or address(view) not in addresses]
    counted: list[_Server] = [view for view in single_backends if view.ok]
    counted += [
        server
        for server, late_at in scraped
        if not server.down and server.at is not None and server.at >= late_at
    ]
    absent = len(scraped) + len(single_backends) - len(counted)
    return Totals(**{name: Sum.of_values(map(of, counted), absent=absent) for name, of in _TOTALLED.items()})
