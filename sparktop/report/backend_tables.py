"""Tables of backends, for HTML and Markdown reports."""

from __future__ import annotations

from collections.abc import Container, Sequence

from sparktop.graphics import numbers
from sparktop.model.counter_figures import CounterFigure, How
from sparktop.model.counter_figures import also_reported as also_reported_figures
from sparktop.model.snapshot import BackendView, Latency
from sparktop.report import cell
from sparktop.report.table import Column, Kind, Table

LATENCIES = {
    "TTFT": "ttft",
    "ITL": "itl",
    "TPOT": "tpot",
    "E2E": "e2e",
    "queue": "queue",
    "prefill": "prefill",
    "decode": "decode",
}
"""By title of each latency: the field of `BackendView` that holds it."""


def backend_load(backends: Sequence[BackendView]) -> Table:
    """Return a table of the current load and token rates, one row per backend."""
    columns = (
        Column("backend", Kind.NAME),
        Column("state", Kind.WORD),
        *(Column(title) for title in ("gen tok/s", "prompt tok/s", "running", "waiting", "KV", "req/s")),
    )
    rows = (
        (
            cell.name(one.name),
            cell.state(one),
            cell.rate(one.generation_tps),
            cell.rate(one.prompt_tps),
            cell.count(one.running),
            cell.count(one.waiting),
            cell.percent(one.kv_cache_percent),
            cell.rate(one.requests_per_s),
        )
        for one in backends
    )
    return Table("Backends", columns, tuple(rows))


def rate_windows(backends: Sequence[BackendView]) -> str:
    """Return the time that the backends' token rates cover, as text such as "of the last 10 s".

    The text has a range if backends differ; it is "of the last 10 s" if no backend has a rate.
    """
    known = [one.rate_window_s for one in backends if one.rate_window_s is not None]
    if not known:
        return "of the last 10 s"
    shortest, longest = cell.seconds(min(known)), cell.seconds(max(known))
    return f"of the last {longest} s" if shortest == longest else f"of the last {shortest} to {longest} s"


def backend_work(backends: Sequence[BackendView]) -> Table:
    """Return a table of what explains the speed, one row per backend.

    Columns are preemptions, prefix cache, speculative decoding, batch size and memory reads.
    """
    titles = ("preempt/s", "prefix hits", "drafts taken", "tokens/step", "read GB/s", "of the roofline")
    columns = (Column("backend", Kind.NAME), *(Column(title) for title in titles))
    rows = (
        (
            cell.name(one.name),
            cell.rate(one.preemptions_per_s),
            cell.percent(one.prefix_cache_hit_percent),
            cell.percent(one.spec_decode_accept_percent),
            cell.rate(one.tokens_per_step),
            cell.rate(one.estimated_read_gb_per_s),
            cell.percent(one.roofline_percent),
        )
        for one in backends
    )
    return Table("Caches and steps", columns, tuple(rows))


def also_reported(backends: Sequence[BackendView]) -> Table:
    """Return a table of the metrics that only some servers report, one row per backend and metric."""
    columns = (
        Column("backend", Kind.NAME),
        Column("about", Kind.WORD),
        Column("metric", Kind.WORD),
        Column("value"),
    )
    rows = (
        (cell.name(one.name), figure.section, figure.title, counter_figure(figure, value))
        for one in backends
        for figure, value in also_reported_figures(one.counter_figures)
    )
    return Table("Also reported", columns, tuple(rows))


def limits(backends: Sequence[BackendView]) -> Table:
    """Return a table of what holds each backend back, one row per backend that was judged."""
    columns = (Column("backend", Kind.NAME), Column("limited by", Kind.WORD), Column("because", Kind.NAME))
    rows = (
        (cell.name(one.name), found.kind.value, cell.name(found.words))
        for one in backends
        if (found := one.limited_by) is not None
    )
    return Table("Limited by", columns, tuple(rows))


def also_reported_words(view: BackendView) -> str:
    """Return the role and metrics of a backend that only some servers report, as one line; "" without any.

    Metrics of one section stand together, such as "LMCache: hits 62 %, filled 31 %".
    """
    parts: dict[str, list[str]] = {} if view.role is None else {"role": [view.role]}
    for figure, value in also_reported_figures(view.counter_figures):
        parts.setdefault(figure.section, []).append(f"{figure.title} {counter_figure(figure, value)}")
    if view.spec_verdict is not None:
        parts["speculation"] = [view.spec_verdict]
    return " · ".join(f"{section}: {', '.join(words)}" for section, words in parts.items())


def counter_figure(figure: CounterFigure, value: float) -> str:
    """Return the value of a metric with its unit, such as "12.3 MB/s"."""
    if figure.is_percent:
        return cell.percent(value)
    text = cell.count(value) if figure.how in {How.COUNT, How.GAUGE} else cell.rate(value)
    return f"{text}{figure.shown_unit}{' since start' if figure.how is How.COUNT else ''}"


def backend_servers(backends: Sequence[BackendView], *, detailed: bool) -> Table:
    """Return a table of engine, model and limits, one row per backend.

    `detailed` adds the columns uptime, nodes and address.
    """
    columns = (
        Column("backend", Kind.NAME),
        Column("engine", Kind.NAME),
        Column("model", Kind.NAME),
        Column("context"),
        Column("slots"),
    )
    more = (Column("up"), Column("nodes", Kind.NAME), Column("address", Kind.NAME))
    rows = []
    for one in backends:
        row = (
            cell.name(one.name),
            cell.name(" ".join(filter(None, (one.engine, one.version, one.role and f"({one.role})")))),
            cell.name(one.model),
            cell.whole(one.max_model_len),
            cell.whole(one.slots),
        )
        about = (numbers.age(one.uptime_s), cell.name(", ".join(one.nodes)), cell.name(one.url))
        rows.append((*row, *about) if detailed else row)
    return Table("Servers", columns + more if detailed else columns, tuple(rows))


def backend_lanes(backends: Sequence[BackendView]) -> Table:
    """Return a table with one row per data-parallel rank, for the backends with several ranks."""
    columns = (
        Column("backend", Kind.NAME),
        Column("rank", Kind.NAME),
        Column("running"),
        Column("waiting"),
        Column("KV"),
        Column("generated"),
    )
    rows = (
        (
            cell.name(one.name),
            cell.name(lane.lane),
            cell.count(lane.running),
            cell.count(lane.waiting),
            cell.percent(lane.kv_cache_percent),
            cell.count(lane.generation_tokens),
        )
        for one in backends
        if len(one.lanes) > 1
        for lane in one.lanes
    )
    return Table("Data-parallel ranks", columns, tuple(rows))


def backend_counters(backends: Sequence[BackendView]) -> Table:
    """Return a table of the counters since each server's start, one row per backend."""
    columns = (
        Column("backend", Kind.NAME),
        Column("prompt tokens"),
        Column("generated tokens"),
        Column("preemptions"),
        Column("restarts seen"),
        Column("finished requests", Kind.NAME),
    )
    rows = (
        (
            cell.name(one.name),
            cell.count(one.prompt_tokens),
            cell.count(one.generation_tokens),
            cell.count(one.preemptions),
            str(one.restarts),
            cell.name(", ".join(f"{reason} {cell.count(number)}" for reason, number in one.finished.items())),
        )
        for one in backends
    )
    return Table("Since the servers' start", columns, tuple(rows))


def latencies(
    backends: Sequence[BackendView],
    which: Container[str] = LATENCIES,
    quantiles: Sequence[str] = ("p50", "p90", "p95", "p99"),
) -> Table:
    """Return a table with one row per backend and latency, where at least one request was measured.

    `which` has the titles (keys of `LATENCIES`) to include, `quantiles` the names of the quantiles to show.
    """
    columns = (
        Column("backend", Kind.NAME),
        Column("latency", Kind.WORD),
        *(Column(title) for title in ("mean", *quantiles, "count", "last")),
    )
    rows = (
        (cell.name(one.name), title, *_latency_cells(latency, quantiles))
        for one in backends
        for title, latency in ((title, getattr(one, field)) for title, field in LATENCIES.items())
        if title in which and latency.count
    )
    return Table("Latencies", columns, tuple(rows))


def _latency_cells(latency: Latency, quantiles: Sequence[str]) -> tuple[str, ...]:
    return (
        cell.duration(latency.mean_s),
        *(cell.quantile(getattr(latency, name)) for name in quantiles),
        cell.count(latency.count),
        cell.duration(latency.window_s),
    )
