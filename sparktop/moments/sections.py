"""The sections of a report on a time span: summary, plots, verdicts, metrics, events, what was watched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from statistics import fmean

from sparktop import __version__
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.event import Event, Severity
from sparktop.model.snapshot import BackendState, NodeView
from sparktop.model.text import clean
from sparktop.moments.figures import BACKEND, FIGURES, NODE
from sparktop.moments.moment import Moment
from sparktop.moments.plots import sketch, time_plots
from sparktop.moments.reading import AROUND_S
from sparktop.moments.verdicts import bad_balances, seconds_words, test_sections, verdict_section
from sparktop.report import backend_tables, cell, fleet_tables
from sparktop.report.current import current
from sparktop.report.document.grid import grid_of
from sparktop.report.document.prose import plain
from sparktop.report.document.section import Section
from sparktop.report.document.time_plot import TimePlot, time_drawing
from sparktop.report.markdown import WIDTH, code
from sparktop.report.table import Column, Kind, Table

_LONG = 400
_MOST_EVENTS, _MOST_GAPS, _MOST_AROUND = 30, 5, 12
"""Rows in Markdown; a page has all events."""
_FEW = 8
"""With more servers or machines than this, Markdown has no table of their figures: forum posts are short."""
_LINES = "Lines at events: ▲ warning, ✖ critical, M mark; pale lines: others."
_DEFINITIONS = (
    "Min, Mean, Max: over all readings; Last: at the end; –: unknown. Times are UTC.",
    "A quantile below the first bucket of the server's histogram, or above the last, counts as its bound.",
    "Verdicts on balance cover the time window before them; see each rule's tests.",
)


def sections(moment: Moment, form: str) -> list[Section]:
    """Return the sections of a report on a time span in the format `form`, "md" or "html"."""
    on_page = form == "html"
    width = None if on_page else WIDTH
    plots = time_plots(moment)
    tests = tuple(test_sections(moment, on_page=on_page))
    parts = [
        Section(paragraphs=(f"**{_summary(moment)}**",)),
        Section(paragraphs=(_about(moment), *_missing(moment))),
        *(_drawn(moment, plots) if on_page else [Section(sketch=sketch(plots))]),
        _alerts(moment),
        verdict_section(moment),
        *(() if on_page else tests),
        *_tables(
            width, *(table for kind in (BACKEND, NODE) for table in _figures(moment, kind, on_page=on_page))
        ),
        *_tables(width, _states(moment), _around(moment, None if on_page else _MOST_AROUND)),
        _events(moment, None if on_page else _MOST_EVENTS),
        Section("Marks", items=tuple(f"{_time(moment, at)} {plain(word)}" for at, word in moment.marks)),
        Section("Sweeps", items=tuple(_sweeps(moment))),
        *(tests if on_page else ()),
        *_tables(width, *_watched(moment)),
        Section("Words", items=(*_meanings(moment), *_DEFINITIONS), folded=True),
    ]
    return [one for one in parts if one != Section(one.title)]


def _drawn(moment: Moment, plots: Sequence[TimePlot]) -> Iterator[Section]:
    """Yield a section with the plots.

    For a long range, yield two: the plots of the whole range, then those of the last minutes.
    """
    for title, begins in (("", False), ("The last minutes", True)) if moment.is_long else (("", True),):
        shown = [plot for plot in plots if (plot.start >= moment.detail) == begins]
        words = (_LINES,) if any(plot.marks for plot in shown) else ()
        yield Section(title, words, tuple(time_drawing(plot).element() for plot in shown))


def span_words(moment: Moment) -> str:
    """Return the range in words: "2026-01-15 08:53:00 to 09:08:00 UTC"."""
    same_day = moment.start.date() == moment.end.date()
    end = f"{moment.end:%H:%M:%S}" if same_day else f"{moment.end:%Y-%m-%d %H:%M:%S}"
    return f"{moment.start:%Y-%m-%d %H:%M:%S} to {end} UTC"


def _summary(moment: Moment) -> str:
    words = [
        f"{code(one.subject)} {one.word} "
        + (
            f"since {cell.time_of(one.start)}"
            if one.end >= moment.end
            else f"for {seconds_words(one.seconds)} until {cell.time_of(one.end)}"
        )
        for one in bad_balances(moment)
    ]
    means = [
        found.mean
        for figure, _, found in moment.figures(BACKEND, names=_names(moment, BACKEND))
        if figure.field == "generation_tps" and found.mean is not None
    ]
    words += [f"{cell.rate(sum(means))} tok/s on average"] if means else []
    silent = [one for one in moment.shown.backends if not one.ok]
    loading = [code(one.name) for one in silent if one.state is BackendState.LOADING]
    down = [code(one.name) for one in silent if one.state is not BackendState.LOADING]
    words += [f"{', '.join(loading)} loading at the end"] if loading else []
    words += [f"no answer of {', '.join(down)} at the end"] if down else []
    critical = sum(one.severity is Severity.CRITICAL for one in moment.shown.alerts)
    count = len(moment.shown.alerts)
    words += [f"{_count(count, 'alert')}{f', {critical} critical' if critical else ''} at the end"]
    return "; ".join(words)


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _names(moment: Moment, kind: str) -> list[str]:
    """Return the names of all servers or machines with values; those watched at the range's end first."""
    views = moment.shown.backends if kind == BACKEND else moment.shown.nodes
    return list(
        dict.fromkeys([*(one.name for one in views), *(name for of, name, _ in moment.series if of == kind)])
    )


def _about(moment: Moment) -> str:
    shown, readings = moment.shown, moment.readings
    what = [(len(shown.backends), "server"), (len(shown.nodes), "machine"), (len(shown.routers), "router")]
    parts = [
        f"{span_words(moment)} ({seconds_words((moment.end - moment.start).total_seconds())})",
        ", ".join(_count(number, noun) for number, noun in what if number),
        f"polled every {shown.interval_s:g} s",
        f"recording {code(readings.source)}" if readings.source else "",
        f"recorded by sparktop {readings.version}" if readings.version else "",
        f"sparktop {__version__}",
    ]
    return " · ".join(filter(None, parts))


def _missing(moment: Moment) -> Iterator[str]:
    """Yield sentences on what is missing in the range."""
    readings, gaps = moment.readings, moment.readings.gaps
    if moment.omission:
        yield moment.omission
    if moment.is_long:
        last = seconds_words((moment.end - moment.detail).total_seconds())
        yield (
            "The first plots have one-minute summaries of the whole range. "
            f"Figures and states are those of the last {last}, verdicts and events those of the whole range."
        )
    if readings.events_left_out:
        yield f"Nothing was replayed around {_count(readings.events_left_out, 'earlier event')}: too many."
    if gaps:
        shown = ", ".join(_gap(*gap) for gap in gaps[:_MOST_GAPS])
        more = f" and {len(gaps) - _MOST_GAPS} more times" if len(gaps) > _MOST_GAPS else ""
        yield f"**No readings** {shown}{more}."
    if readings.dropped:
        yield f"**{_count(readings.dropped, 'reading')} dropped**: the disk did not keep up."
    if readings.damage:
        parts = "; ".join(map(plain, readings.damage[:_MOST_GAPS]))
        yield f"**The recording is damaged**, readings are lost: {parts}."
    if readings.unreadable:
        yield f"{_count(readings.unreadable, 'record')} could not be used."


def _gap(start: datetime, end: datetime) -> str:
    return f"{cell.time_of(start)} to {cell.time_of(end)}"


def _tables(width: int | None, *tables: Table) -> Iterator[Section]:
    yield from (Section(table=grid_of(table, width)) for table in tables if table.rows)


def _figures(moment: Moment, kind: str, *, on_page: bool) -> Iterator[Table]:
    """Yield a table of metrics (smallest, mean, largest, last) of all servers or machines, by `kind`.

    In Markdown (`on_page` False) yield nothing if there are more than `_FEW` of them.
    """
    names = _names(moment, kind)
    if len(names) > _FEW and not on_page:
        return
    known = [row for row in moment.figures(kind, names=names) if row[2].most or not row[0].rare]
    rows = [
        (
            figure.title if not number or known[number - 1][0] is not figure else "",
            cell.name(name),
            *(figure.text(value) for value in (found.least, found.mean, found.most, found.last)),
        )
        for number, (figure, name, found) in enumerate(known)
    ]
    noun = "Server" if kind == BACKEND else "Machine"
    columns = (Column("Figure", Kind.WORD), Column(noun, Kind.NAME))
    heads = tuple(Column(title) for title in ("Min", "Mean", "Max", "Last"))
    yield Table(f"Figures of the {noun.lower()}s", columns + heads, tuple(rows))


def _states(moment: Moment) -> Table:
    columns = (
        Column("Server", Kind.NAME),
        Column("At the end", Kind.WORD),
        Column("Share of the time", Kind.WORD),
    )
    last = {one.name: one.state.value for one in moment.shown.backends}
    rows = (
        (
            cell.name(name),
            last.get(name, UNKNOWN),
            ", ".join(f"{state} {_percent(share)}" for state, share in shares.items()),
        )
        for name, shares in moment.states.items()
    )
    return Table("States", columns, tuple(rows))


def _percent(share: float) -> str:
    return cell.percent(100 * share)


def _around(moment: Moment, most: int | None) -> Table:
    """Return a table of the metrics in the minute before and after each warning and critical event.

    Only the newest `most` events with known values are included; None means all.
    """
    columns = (
        Column("Time"),
        Column("About", Kind.NAME),
        *(Column(title) for title in ("tok/s before", "after", "Most waiting", "Least headroom")),
    )
    events = [one for one in moment.events if one.severity is not Severity.INFO]
    rows = [(_time(moment, one.at), cell.name(one.subject), *_around_cells(moment, one)) for one in events]
    known = [row for row in rows if any(text != UNKNOWN for text in row[2:])]
    return Table("The minute before and after", columns, tuple(known[-(most or len(known)) :]))


def _around_cells(moment: Moment, event: Event) -> Iterator[str]:
    apart = timedelta(seconds=AROUND_S)
    before, after = (event.at - apart, event.at), (event.at, event.at + apart)
    for span in (before, after):
        means = [one for one in _each(moment, "generation_tps", *span) if one is not None]
        yield cell.rate(sum(fmean(one) for one in means) if means else None)
    around = (before[0], after[1])
    waiting = [max(values) for values in _each(moment, "waiting", *around)]
    yield cell.count(sum(waiting) if waiting else None)
    headroom = [min(values) for values in _each(moment, "headroom_gib", *around)]
    yield f"{min(headroom):.1f} GiB" if headroom else UNKNOWN


def _each(moment: Moment, field: str, start: datetime, end: datetime) -> list[list[float]]:
    """Return the known values of a metric in a span, a list for each server or machine that has any."""
    figure = next(one for one in FIGURES if one.field == field)
    found = (moment.between(figure, name, start, end) for name in _names(moment, figure.kind))
    known = ([value for _, value in values if value is not None] for values in found)
    return [values for values in known if values]


def _alerts(moment: Moment) -> Section:
    items = (
        f"**{one.severity}** since {_time(moment, one.since)}, {code(one.subject)}: "
        f"{plain(clean(one.message, _LONG))}"
        for one in moment.shown.alerts
    )
    return Section("Alerts at the end", items=tuple(items))


def _events(moment: Moment, most: int | None) -> Section:
    """Return a section with the newest `most` events (None: all), oldest first."""
    newest = moment.events[-(most or len(moment.events)) :] if moment.events else ()
    left_out = f", the last {len(newest)} of {len(moment.events)}" if len(newest) < len(moment.events) else ""
    strong = {Severity.WARNING: "**warning** ", Severity.CRITICAL: "**critical** "}
    return Section(
        f"Events{left_out}",
        items=tuple(
            f"{_time(moment, one.at)} {strong.get(one.severity, '')}{code(one.subject)}: "
            f"{plain(clean(one.message, _LONG))}"
            for one in newest
        ),
    )


def _time(moment: Moment, time: datetime) -> str:
    """Format a time of day, with the date unless the range and the time are of one day."""
    days = {moment.start.date(), moment.end.date(), time.date()}
    return cell.time_of(time) if len(days) == 1 else f"{time:%m-%d %H:%M:%S}"


def _sweeps(moment: Moment) -> Iterator[str]:
    for one in moment.sweeps:
        end = "" if one.end is None else f" to {cell.time_of(one.end)}"
        yield f"{cell.time_of(one.start)}{end}: {code(one.words)}"


def _watched(moment: Moment) -> Sequence[Table]:
    """Return the tables of what was watched: engines and models, machines, routers."""
    columns = (
        Column("Machine", Kind.NAME),
        Column("Product", Kind.NAME),
        Column("GPU", Kind.NAME),
        Column("Driver", Kind.NAME),
        Column("System", Kind.NAME),
        Column("Memory"),
    )
    rows = tuple(_machine(node) for node in moment.shown.nodes)
    urls = tuple((cell.name(one.name), cell.name(one.url)) for one in moment.shown.backends if one.url)
    return (
        backend_tables.backend_servers(moment.shown.backends, detailed=False),
        *_models(moment),
        Table("Machines", columns, rows),
        fleet_tables.routers(current(moment.shown)),
        Table("Addresses", (Column("Server", Kind.NAME), Column("URL", Kind.NAME)), urls),
    )


def _models(moment: Moment) -> Iterator[Table]:
    """Yield a table of the models of servers that served several, each from when on; nothing without one."""
    rows: list[tuple[str, ...]] = []
    swaps = [event for event in moment.events if event.kind == "model" and event.values]
    for server in dict.fromkeys(event.subject for event in swaps):
        own = [event for event in swaps if event.subject == server]
        first = (moment.start, own[0].values.get("before"))
        for time, model in (first, *((event.at, event.values.get("model")) for event in own)):
            rows.append((cell.name(server), _time(moment, time), cell.name(str(model))))
    if rows:
        columns = (Column("Server", Kind.NAME), Column("From", Kind.NAME), Column("Model served", Kind.NAME))
        yield Table("Models in turn", columns, tuple(rows))


def _machine(node: NodeView) -> tuple[str, ...]:
    gpus = [gpu.name or f"GPU {gpu.index}" for gpu in node.sample.gpus] if node.sample else []
    names = [
        name if gpus.count(name) == 1 else f"{gpus.count(name)} × {name}" for name in dict.fromkeys(gpus)
    ]
    memory = node.sample.memory.total_bytes if node.sample else None
    one = node.identity
    return (
        cell.name(node.name),
        cell.name(one.product),
        cell.name(", ".join(names)),
        cell.name(one.driver),
        cell.name(one.os),
        cell.data(memory),
    )


def _meanings(moment: Moment) -> Iterator[str]:
    known = {(kind, field) for kind, _, field in moment.series}
    for figure in FIGURES:
        if figure.meaning and (figure.kind, figure.field) in known:
            unit = f" ({figure.unit})" if figure.unit and figure.unit not in figure.title.lower() else ""
            yield f"{figure.title}{unit}: {figure.meaning}."
