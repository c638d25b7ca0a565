"""A result as Markdown for a forum: tables laid out like published ones, each figure defined in a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparktop.graphics.numbers import UNKNOWN
from sparktop.report.markdown import code
from sparktop.sweep.compare import comparison_of
from sparktop.sweep.definitions import METRICS, lines
from sparktop.sweep.formats.comparison import notes_in_markdown
from sparktop.sweep.formats.figure_cells import load_words
from sparktop.sweep.formats.grid import Cell, Grid, in_markdown
from sparktop.sweep.formats.layouts import (
    SERVING,
    THROUGHPUT,
    batch_scaling,
    by_concurrency,
    contexts,
    interactive,
    intervals,
    spread,
    winners,
)
from sparktop.sweep.formats.split_grid import split_grid
from sparktop.sweep.results import RATES, LevelResult, SweepResult, TargetResult
from sparktop.sweep.series import Load, Series, series_of

_STEADY = ("sustained_tps", "pure_decode_tps", "peak_tps")
_FIRST = ("decode_tps", "prefill_tps", "sustained_tps", "ttft_ms")
"""Of several targets: the metrics of the tables with winners."""
_PAIR = 2
_WAITS = ("ttft_ms", "itl_ms", "e2e_ms")
_QUANTILES = ("p50", "p90", "p99")


def render(result: SweepResult) -> str:
    """Give a result as Markdown; addresses of servers are left out."""
    series = series_of(result)
    grids = list(_several(result, series) if len(series) > 1 else _single(result, series))
    grids += [split_grid(target) for target in result.targets]
    shown = {name for name in METRICS if any(name in one.metrics() for one in series)}
    blocks = ["\n".join(_head(result)), *(in_markdown(grid) for grid in grids if grid.rows)]
    if len(series) > 1:
        blocks += notes_in_markdown(comparison_of(result.comparison, series))
    blocks += _doubts(result)
    if shown:
        blocks.append("### What the figures mean\n\n" + "\n".join(f"- {line}" for line in lines(shown)))
    else:
        blocks.append("Nothing was measured.")
    return "\n\n".join(blocks) + "\n"


def _head(result: SweepResult) -> Iterator[str]:
    plan = result.plan
    yield "## sparktop sweep (simulated)" if result.simulated else "## sparktop sweep"
    yield ""
    models = list(dict.fromkeys(target.model for target in result.targets if target.model))
    parts = [
        f"{result.started_at:%Y-%m-%d %H:%M} UTC",
        ", ".join(code(model) for model in models),
        f"{plan.pp if plan.pp is not None else '?'} tokens in, {plan.tg if plan.tg is not None else '?'} out",
        f"{plan.runs if plan.runs is not None else '?'} runs a level",
        plan.mode.value,
        plan.api.value,
        f"tokens counted from {plan.tokens_from.value}" if plan.tokens_from else "",
        f"order {plan.order.value}",
        _prompts(result),
    ]
    yield " · ".join(part for part in parts if part)
    if result.guard is not None:
        yield f"\n{code(result.guard)}"
    if result.status != "done":
        why = f": {code(result.stop_reason)}" if result.stop_reason else ""
        yield f"\n**Not complete** ({result.status or 'it was still running'}){why}"
    for target in result.targets:
        if target.error:
            yield f"\n{code(target.name)}: {code(target.error)}"
    if result.client.trustworthy is False:
        reasons = "; ".join(code(reason) for reason in result.client.reasons) or "no reason was told"
        yield f"\n**The load generator was too slow to be believed**: {reasons}"


def _prompts(result: SweepResult) -> str:
    """Tell what prompts were made of, and what kept them out of the prefix cache."""
    ways = {target.fresh_by for target in result.targets if target.fresh_by is not None}
    if result.plan.seed is None or not ways:
        return ""
    word = " and a word of this sweep" if "nonce" in ways else ""
    return f"prompts from seed {result.plan.seed}{word}"


def _several(result: SweepResult, series: Sequence[Series]) -> Iterator[Grid]:
    comparison = comparison_of(result.comparison, series)
    names = [one.name for one in series]
    for metric in _FIRST:
        yield winners(comparison, metric, names)
    if len(series) == _PAIR:
        yield spread(series[0], series[1])
    for one in series:
        yield _with_refused(_titled(by_concurrency(one, SERVING, "serving"), one), result, one)
        yield _with_refused(_titled(by_concurrency(one, RATES, "every window"), one), result, one)
        yield _titled(_percentiles(result, one.name), one)


def _single(result: SweepResult, series: Sequence[Series]) -> Iterator[Grid]:
    for one in series:
        if result.plan.preset == "batch-scaling":
            yield batch_scaling(one)
        alone = [level for level in one.levels if level.load.concurrency == 1]
        if len(alone) > 1:
            yield contexts(one)
        elif len(one.levels) == len(alone):
            yield interactive(one)
        yield _with_refused(by_concurrency(one, _throughput(one), "Throughput"), result, one)
        yield _with_refused(by_concurrency(one, SERVING, "Serving"), result, one)
        yield _with_refused(by_concurrency(one, RATES, "Every window"), result, one)
        yield intervals(one, ("decode_tps", "sustained_tps", "output_tps"))
        yield _percentiles(result, one.name)


def _with_refused(grid: Grid, result: SweepResult, series: Series) -> Grid:
    """Return a table of levels with a row for each that the server refused, and its words below."""
    target = result.target(series.name)
    refused = [] if target is None else [level for level in target.levels if level.error is not None]
    if target is None or not refused:
        return grid
    empty = (UNKNOWN,) * (len(grid.heads) - 1)
    rows = tuple((f"❌ {_load(level, target)}", *empty) for level in refused)
    words = dict.fromkeys((level.pp, level.error or "") for level in refused)
    notes = tuple(f"❌ {pp:,} in: {code(why)}" if pp is not None else f"❌ {code(why)}" for pp, why in words)
    return replace(grid, rows=(*grid.rows, *rows), notes=(*grid.notes, *notes))


def _throughput(series: Series) -> tuple[str, ...]:
    return THROUGHPUT if "decode_tps" in series.metrics() else _STEADY


def _titled(grid: Grid, series: Series) -> Grid:
    return Grid(
        f"{grid.title.capitalize()}: {code(series.name)}", grid.heads, grid.rows, grid.left, grid.notes
    )


def _percentiles(result: SweepResult, name: str) -> Grid:
    """Concurrency | median, 90th and 99th of a hundred requests, for what a user waits for."""
    target = result.target(name) or TargetResult(name=name, url="")
    told = [METRICS[metric] for metric in _WAITS]
    rows: list[tuple[Cell, ...]] = []
    for level in target.levels:
        if level.error is not None:
            continue
        known = [(metric, level.latency(metric.name)) for metric in told]
        cells = (
            metric.text(getattr(one, part) if one else None) for metric, one in known for part in _QUANTILES
        )
        rows.append((_load(level, target), *cells))
    heads = (f"{metric.title} {part}" for metric in told for part in _QUANTILES)
    return Grid("Percentiles over requests (ms)", ("Concurrency", *heads), tuple(rows))


def _load(level: LevelResult, target: TargetResult) -> str:
    """Give a level's load, with its prompt where one concurrency has several."""
    several = len({one.concurrency for one in target.levels}) < len(target.levels)
    return load_words(Load(level.concurrency, level.pp, level.tg), lengths=several)


def _doubts(result: SweepResult) -> Iterator[str]:
    found = [
        f"- {code(target.name)} {_load(level, target)} {one.code}: {code(one.message)}"
        for target in result.targets
        for level in target.levels
        for one in level.validity
    ]
    if found:
        yield "### Reasons not to believe a level\n\n" + "\n".join(found)
