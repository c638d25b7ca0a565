"""The report on a span of time in every format: sections, verdicts, plots, and what may not be shown."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from math import inf
from statistics import fmean, median
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sparktop import __version__
from sparktop.analysis.balance.rules import RULES
from sparktop.analysis.placement import url_host
from sparktop.errors import UsageError
from sparktop.graphics import numbers
from sparktop.graphics.numbers import UNKNOWN
from sparktop.model.balance import Balance, BalanceWord
from sparktop.model.event import Alert, Event, Severity
from sparktop.model.explained import STATES
from sparktop.model.node import NodeIdentity
from sparktop.model.plain import fields_of, json_time, json_values
from sparktop.model.router import FleetServer, RouterView
from sparktop.model.series import Series
from sparktop.model.snapshot import QUIET_SPEEDS, BackendState, NodeView, Snapshot
from sparktop.model.targets import NodeTarget, Target
from sparktop.model.text import clean, spreadsheet_text
from sparktop.moments.happened import (
    PAGE_LINES,
    Around,
    around,
    compare_minutes,
    pivot,
    what_happened,
)
from sparktop.moments.moment import (
    ALL,
    AROUND_S,
    BACKEND,
    FIGURES,
    GROUP,
    LAST_MINUTE_PLOT,
    MINUTE_PLOTS,
    NODE,
    PLOTS,
    FactChange,
    Moment,
    PlotOf,
    Points,
    SeriesKey,
    Spell,
    figure_text,
)
from sparktop.panels.group.panel import limit_text, value_text
from sparktop.recording.player import GAP_S
from sparktop.report import cell, tables
from sparktop.report.cell import time_of
from sparktop.report.document.document import Grid, Section, Untrusted, escaped, grid_of, to_markdown, to_page
from sparktop.report.document.drawing import TimeLine, TimeMark, TimePlot, TimePoint, sheet, time_drawing
from sparktop.report.json_snapshot import balance_json
from sparktop.report.markdown import WIDTH, code
from sparktop.report.privacy import ROUTER, Privacy
from sparktop.report.tables import CellKind, Table, TableColumn, few_seconds_words, without_stale

SCHEMA = "sparktop.moment/1"
FORMATS = ("md", "html", "csv", "json", "svg")
TITLE = "sparktop report"
_SERVER_FIELDS = ("url", "group", "engine", "version", "model", "max_model_len", "slots", "nodes", "state")
_NODE_FIELDS = ("os", "driver", "product", "maker", "cpu")
_ROUTER_FIELDS, _ROUTER_SAMPLE_FIELDS = ("name", "url", "strategy", "backends"), ("kind", "version")


def moment_report(
    moment: Moment,
    form: str,
    privacy: Privacy | None = None,
    targets: Iterable[Target] = (),
    at: datetime | None = None,
) -> str:
    """Return the report on a time span, whose data is `moment`, in the format `form`, one of `FORMATS`.

    With `at`, Markdown and HTML are one page on the minute that begins then. `privacy` decides what the
    report may show; by default no addresses. `targets` are what was watched.

    Raises:
        UsageError: there is nothing to draw.
    """
    moment = shown_moment(moment, privacy or Privacy(), targets)
    simulated = moment.shown.simulated
    if form == "csv":
        return _to_csv(moment)
    if form == "json":
        return json.dumps(to_json(moment), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    if form == "md":
        return to_markdown(f"{TITLE} (simulated)" if simulated else TITLE, sections(moment, form, at))
    if form == "html":
        return to_page(TITLE, span_words(moment), sections(moment, form, at), simulated=simulated)
    drawings = [time_drawing(plot) for plot in time_plots(moment)]
    if not drawings:
        raise UsageError("--format svg: nothing was measured, there is nothing to draw")
    return sheet(drawings, f"{TITLE}, {span_words(moment)}")


def _to_csv(moment: Moment) -> str:
    """Return the values behind the plots and tables as CSV: a row for each time, source and metric.

    For a one-minute summary, "value" is the mean, and "min" and "max" are the extremes.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("time", "source", "name", "figure", "unit", "value", "min", "max"))
    for (kind, name, field), unit, points in _known_series(moment):
        for at, value, between in points:
            time = json_time(datetime.fromtimestamp(at, UTC))
            rounded = "" if value is None else round(value, 6)
            extremes = between if kind == ALL and between else ("", "")
            writer.writerow((time, kind, spreadsheet_text(name), field, unit, rounded, *extremes))
    return out.getvalue()


def _known_series(moment: Moment) -> Iterator[tuple[SeriesKey, str, Points]]:
    """Yield (key, unit, points) of each series that has a known value."""
    units = {(figure.of.value, figure.name): figure.unit for figure in FIGURES}
    for key, points in moment.series.items():
        if any(point.value is not None for point in points):
            yield key, units.get((key[0], key[2]), ""), points


def to_json(moment: Moment) -> object:
    """Return the data of a report as values for JSON; unknown values are None."""
    last = moment.shown
    body = {
        "schema": SCHEMA,
        "sparktop": __version__,
        "simulated": last.simulated,
        "from": moment.start,
        "to": moment.end,
        "figures_from": moment.detail,
        "interval_s": last.interval_s,
        "recording": moment.source or None,
        "recorded_by": moment.recorded_by,
        "gaps": [{"from": start, "to": end} for start, end in moment.gaps],
        "no_end": moment.no_end or None,
        "damage": moment.damage,
        "dropped": moment.dropped,
        "unreadable": moment.unreadable,
        "backends": [
            _view_json(moment, BACKEND, server.name, server, _SERVER_FIELDS) for server in last.backends
        ],
        "nodes": [_view_json(moment, NODE, node.name, node.identity, _NODE_FIELDS) for node in last.nodes],
        "routers": [_router_json(router) for router in last.routers],
        "alerts": [_message_fields(alert, "since") for alert in moment.shown.alerts],
        "verdicts": [_spell_json(spell) for spell in moment.spells],
        "events": [_message_fields(event, "at") for event in moment.events],
        "changes": [fields_of(change, "of_machine") for change in moment.changes],
        "marks": [{"at": at, "word": word} for at, word in moment.marks],
        "sweeps": [{"from": sweep.start, "to": sweep.end, "what": sweep.words} for sweep in moment.sweeps],
        "series": [
            {
                "source": kind,
                "name": name or None,
                "figure": field,
                "unit": unit or None,
                "times": [round(point.at, 3) for point in points],
                "values": [point.value for point in points],
                "ranges": [point.between for point in points] if kind == ALL else None,
            }
            for (kind, name, field), unit, points in _known_series(moment)
        ],
    }
    return json_values(body)


def _router_json(router: RouterView) -> dict[str, object]:
    fields = {name: getattr(router, name) or None for name in _ROUTER_FIELDS}
    return fields | {name: getattr(router.sample, name) for name in _ROUTER_SAMPLE_FIELDS}


def _message_fields(entry: Alert | Event, time: str) -> dict[str, object]:
    """Return what a report says of an alert or event; `time` is the field with its time."""
    return {name: getattr(entry, name) for name in (time, "severity", "subject", "message")}


def _view_json(
    moment: Moment, kind: str, name: str, facts: object, fields: Iterable[str]
) -> dict[str, object]:
    """Return a server or machine by `kind` and `name`, with the `fields` of `facts`, states and figures."""
    return {
        "name": name,
        **{field: getattr(facts, field) or None for field in fields},
        "states": moment.states.get(name) if kind == BACKEND else None,
        "figures": {
            figure.name: {
                key: point.value for key, point in zip(("min", "mean", "max", "last"), found, strict=True)
            }
            for figure, _, found in moment.figures(kind, names=[name])
        },
    }


def _spell_json(spell: Spell) -> dict[str, object]:
    speed, evidence = spell.speed, None
    if spell.balance is not None:
        evidence = balance_json(spell.balance)
    elif speed is not None:
        evidence = {"reason": speed.reason, "cause": speed.cause, "fix": speed.fix}
    return {
        "of": "balance" if speed is None else "speed",
        "subject": spell.subject,
        "verdict": spell.word,
        "from": spell.start,
        "to": spell.end,
        "evidence": evidence,
    }


# The sections of a report on a time span: summary, plots, verdicts, metrics, events, what was watched.


_LONG = 400
"""Characters of a message; a longer one is cut."""
_MOST_GAPS = 5
"""Times without readings, and damaged parts, that are listed."""
_MOST_ON_PAGE = 1000
"""Lines on what happened, on a page that a browser scrolls."""
_APART = timedelta(seconds=1)
"""How far from the time asked for the figures are divided so that it is said."""
_FEW = 8
"""With more servers or machines than this, Markdown has no table of their figures: forum posts are short."""
_LINES = "Lines at events: ▲ warning, ✖ critical, M mark; pale lines: others."
_DEFINITIONS = (
    "Min, Mean, Max: over all readings, of which a server has none while it does not answer.",
    "Last: the newest; –: unknown. Token rates cover a second each, those of a snapshot 10 s. Times are UTC.",
    "TTFT and ITL are estimates within a bucket of the server's histogram, or its first or last bound.",
)
_JUDGED_AGAIN = (
    "Verdicts, alerts and findings are judged again from what was recorded: a screen that had watched before "
    "the recording can have known more."
)
_BALANCE_DEFINITION = "Verdicts on balance cover the time window before them; see each rule's tests."


def sections(moment: Moment, form: str, at: datetime | None = None) -> list[Section]:
    """Return the sections of a report on a time span in the format `form`, "md" or "html".

    With `at`, they are one page on the minute that begins then.
    """
    if at is not None:
        page = [*around_sections(moment, at), _alerts_section(moment)]
        page += _plot_sections(moment) if form == "html" else []
        page.append(Section(paragraphs=(_about_line(moment), *_missing_sentences(moment))))
        return [part for part in page if part != Section(part.title)]
    on_page = form == "html"
    tests = [*_test_sections(moment)] if on_page else []
    met = {state for shares in moment.states.values() for state in shares}
    states = (f"{state}: {STATES[state].meaning}" for state in STATES if state in met)
    words = (
        *_DEFINITIONS,
        *((_JUDGED_AGAIN,) if moment.source else ()),
        *((_BALANCE_DEFINITION,) if tests else ()),
        *states,
    )
    main_event = pivot(moment)
    marks = (f"{_time_words(moment, at)} {escaped(word)}" for at, word in moment.marks)
    parts: list[Section | Table] = [
        Section(paragraphs=(f"**{_summary_line(moment)}**",)),
        Section(paragraphs=(_about_line(moment), *_missing_sentences(moment))),
        *(_plot_sections(moment) if on_page else ()),
        _alerts_section(moment),
        _verdict_section(moment),
        *(table for kind in (BACKEND, NODE) for table in _figures_table(moment, kind, on_page=on_page)),
        _states_table(moment),
        *(() if main_event is None else (_main_event_section(moment, main_event),)),
        _events_section(moment, _MOST_ON_PAGE if on_page else PAGE_LINES),
        Section("Marks", items=tuple(marks)),
        Section("Sweeps", items=tuple(_sweep_lines(moment))),
        *tests,
        *_watched_tables(moment),
        Section("Words", items=words, folded=True),
    ]
    width = None if on_page else WIDTH
    filled = (
        part for part in parts if (part.rows if isinstance(part, Table) else part != Section(part.title))
    )
    return [Section(table=grid_of(part, width)) if isinstance(part, Table) else part for part in filled]


def _plot_sections(moment: Moment) -> Iterator[Section]:
    """Yield a section with the plots.

    For a long range, yield two: the plots of the whole range, then those of the last minutes.
    """
    plots = time_plots(moment)
    whole_span = [plot for plot in plots if plot.start < moment.detail]
    detailed = [plot for plot in plots if plot.start >= moment.detail]
    titled = [("", whole_span), ("The last minutes", detailed)] if moment.is_long else [("", detailed)]
    for title, plots_shown in titled:
        words = (_LINES,) if any(plot.marks for plot in plots_shown) else ()
        yield Section(title, words, tuple(time_drawing(plot).element() for plot in plots_shown))


def span_words(moment: Moment) -> str:
    """Return the range in words: "2026-01-15 08:53:00 to 09:08:00 UTC"."""
    same_day = moment.start.date() == moment.end.date()
    end = f"{moment.end:%H:%M:%S}" if same_day else f"{moment.end:%Y-%m-%d %H:%M:%S}"
    return f"{moment.start:%Y-%m-%d %H:%M:%S} to {end} UTC"


def _summary_line(moment: Moment) -> str:
    words = [
        f"{code(balance.subject)} {balance.shown_word} "
        + (
            f"since {cell.time_of(balance.since)}"
            if balance.end >= moment.end
            else f"for {numbers.duration_words(balance.seconds)} until {cell.time_of(balance.end)}"
        )
        for balance in {spell.subject: spell for spell in moment.spells if spell.is_bad}.values()
    ]
    words += _unjudged_words(moment)
    words += _rate_words(moment)
    down = []
    for server in moment.shown.backends:
        if server.state is BackendState.LOADING:
            phase = f" ({escaped(server.loading.words)})" if server.loading and server.loading.words else ""
            words.append(f"{code(server.name)} loading{phase} at the end")
        elif server.progress is not None:
            words.append(f"{code(server.name)} at the end: {escaped(server.progress.sentence)}")
        elif not server.ok:
            down.append(code(server.name))
    words += [f"no answer of {', '.join(down)} at the end"] if down else []
    critical = sum(alert.severity is Severity.CRITICAL for alert in moment.shown.alerts)
    count = len(moment.shown.alerts)
    of_these = "critical" if critical == count == 1 else f"{critical} of them critical"
    alerts = numbers.count_words(count, "alert") if count else "no alerts"
    young = few_seconds_words(moment.shown)
    words += [f"{alerts} at the end{f', {of_these}' if critical else ''}{young}"]
    return "; ".join(words)


def _unjudged_words(moment: Moment) -> list[str]:
    """Return the groups whose balance was never judged in the range, each with the reason at its end."""
    judged = {spell.subject for spell in moment.spells if spell.word != BalanceWord.UNKNOWN.value}
    words = []
    for balance in moment.shown.balance:
        if balance.group not in judged:
            why = f" ({escaped(balance.reasons[0])})" if balance.reasons else ""
            words.append(f"balance of {code(balance.group)}: {balance.title}{balance.doubt}{why}")
    return words


def _rate_words(moment: Moment) -> list[str]:
    """Return the mean rate of all servers in words; one that stops answering adds nothing meanwhile.

    Without any figure of a time it did not answer; where its rate alone is unknown, that time is left out.
    """
    of_servers = {figure.name: figure for figure in FIGURES if figure.of == BACKEND}
    means, was_silent = [], False
    for name in _all_names(moment, BACKEND):
        points = {
            field: moment.points_between(figure, name, moment.detail, moment.end)
            for field, figure in of_servers.items()
        }
        known = {point.at for each in points.values() for point in each if point.value is not None}
        rates = points["generation_tps"]
        first_at = next((point.at for point in rates if point.value is not None), inf)
        counted = [point for point in rates if point.at >= first_at]
        values = [point.value or 0.0 for point in counted if point.value is not None or point.at not in known]
        means += [fmean(values)] if values else []
        was_silent = was_silent or any(point.at not in known for point in counted)
    silence = " (a server that does not answer counts as 0)" if was_silent else ""
    return [f"{cell.rate(sum(means))} tok/s on average{silence}"] if means else []


def _all_names(moment: Moment, kind: str) -> list[str]:
    """Return the names of all servers or machines with values; those watched at the range's end first."""
    views = moment.shown.backends if kind == BACKEND else moment.shown.nodes
    other_names = (name for kind_of, name, _ in moment.series if kind_of == kind)
    return list(dict.fromkeys((*(view.name for view in views), *other_names)))


def _about_line(moment: Moment) -> str:
    last = moment.shown
    counts = [(len(last.backends), "server"), (len(last.nodes), "machine"), (len(last.routers), "router")]
    parts = [
        f"{span_words(moment)} ({numbers.duration_words((moment.end - moment.start).total_seconds())})",
        ", ".join(numbers.count_words(number, noun) for number, noun in counts if number),
        tables.poll_words(last),
        f"recording {code(moment.source)}" if moment.source else "",
        f"recorded by sparktop {moment.recorded_by}" if moment.recorded_by not in {None, __version__} else "",
        f"sparktop {__version__}",
    ]
    return " · ".join(filter(None, parts))


def _missing_sentences(moment: Moment) -> Iterator[str]:
    """Yield sentences on what is missing in the range."""
    gaps = moment.gaps
    if moment.omission:
        yield moment.omission
    if moment.is_long:
        span = numbers.duration_words((moment.end - moment.detail).total_seconds())
        yield f"Figures and states are those of the last {span}; verdicts and events are of the whole range."
    if gaps:
        texts = (f"{cell.time_of(start)} to {cell.time_of(end)}" for start, end in gaps[:_MOST_GAPS])
        listed = ", ".join(texts)
        more = f" and {len(gaps) - _MOST_GAPS} more times" if len(gaps) > _MOST_GAPS else ""
        yield f"**No readings** {listed}{more}."
    if moment.dropped:
        yield f"**{numbers.count_words(moment.dropped, 'reading')} dropped**: the disk did not keep up."
    if moment.no_end:
        yield f"**The recording has no end**: {moment.no_end}."
    if moment.damage:
        parts = "; ".join(map(escaped, moment.damage[:_MOST_GAPS]))
        yield f"**The recording is damaged**, readings are lost: {parts}."
    if moment.unreadable:
        yield f"{numbers.count_words(moment.unreadable, 'record')} could not be used."


def _figures_table(moment: Moment, kind: str, *, on_page: bool) -> Iterator[Table]:
    """Yield a table of metrics (smallest, mean, largest, last) of all servers or machines, by `kind`.

    In Markdown (`on_page` False) yield nothing if there are more than `_FEW` of them.
    """
    names = _all_names(moment, kind)
    if len(names) > _FEW and not on_page:
        return
    rows: list[tuple[str, ...]] = []
    above = None
    for figure, name, found in moment.figures(kind, names=names):
        _, _, most, _ = found
        if most.value or not figure.rare:
            texts = (figure_text(figure, point) for point in found)
            title = "" if figure is above else figure.title  # a figure is named in its first row
            rows.append((title, cell.name(name), *texts))
            above = figure
    noun = "Server" if kind == BACKEND else "Machine"
    columns = (TableColumn("Figure", CellKind.WORD), TableColumn(noun, CellKind.NAME))
    heads = tuple(TableColumn(title) for title in ("Min", "Mean", "Max", "Last"))
    yield Table(f"Figures of the {noun.lower()}s", columns + heads, tuple(rows))


def _states_table(moment: Moment) -> Table:
    last_states = {backend.name: backend.state_text for backend in moment.shown.backends}
    shares = {
        name: ", ".join(f"{state} {cell.percent(100 * share)}" for state, share in states.items())
        for name, states in moment.states.items()
    }
    return tables.table(
        "States",
        shares,
        tables.name("Server", lambda name: name),
        tables.word("At the end", lambda name: last_states.get(name, UNKNOWN)),
        tables.word("Share of the time", lambda name: shares[name]),
    )


def _message(text: str) -> str:
    return escaped(clean(text, _LONG))


def _alerts_section(moment: Moment) -> Section:
    items = (
        f"**{alert.severity}** {code(alert.subject)}: {_message(alert.message)} "
        f"(since {alert.since_words(partial(_time_words, moment))})"
        for alert in moment.shown.alerts
    )
    return Section("Alerts at the end", items=tuple(items))


def _events_section(moment: Moment, most: int) -> Section:
    """Return a section with what happened, oldest first, in at most `most` lines of its own."""
    lines, remark = what_happened(moment, most)
    strong = {Severity.WARNING: "**warning** ", Severity.CRITICAL: "**critical** "}
    items = (
        f"{line.time_words(partial(_time_words, moment))} "
        f"{strong.get(line.severity, '')}{code(line.subject)}: {_message(line.words)}"
        for line in lines
    )
    return Section("What happened", (escaped(remark),) if remark else (), items=tuple(items))


def around_sections(moment: Moment, at: datetime) -> Iterator[Section]:
    """Yield what changed most in the minute that begins at `at`, figures before and after, and the list."""
    seen = around(moment, what_happened(moment)[0], at, at, AROUND_S)
    when, main_event = seen.at, seen.main_event
    clock = partial(_time_words, moment)
    headline = seen.headline(code, _message, clock)
    head = [f"**{clock(when)} {headline}**"]
    if main_event is not None and abs(when - at) >= _APART:
        which = "event of the minute from then on" if when > at else "condition that held then"
        named = f"{which}, {code(main_event.subject)}: {_message(main_event.dated_message)}"
        head.append(f"Asked for {clock(at)}; the weightiest {named}, divides the figures at {clock(when)}.")
    yield Section(paragraphs=tuple(head))
    yield _around_section(moment, seen)
    yield _events_section(moment, PAGE_LINES)


def _main_event_section(moment: Moment, event: Event) -> Section:
    """Return a table of the figures that moved from the minute before an event to the minute after it."""
    since = event.since
    words = f"At {_time_words(moment, since)} {code(event.subject)}: {_message(event.dated_message)}"
    return _around_section(moment, compare_minutes(moment, since), (words,))


def _around_section(moment: Moment, seen: Around, words: tuple[str, ...] = ()) -> Section:
    """Return a table of the figures that moved between two minutes, with `words` below it."""
    title = f"The minute before and after {_time_words(moment, seen.at)}"
    if not seen.changes:
        return Section(title, (*words, seen.why_none))
    rows = tuple(
        (change.title, Untrusted(change.subject), change.before, change.after, change.change)
        for change in seen.changes
    )
    columns = ("Figure", "Of", "Before", "After", "Change")
    return Section(table=Grid(title, columns, rows, frozenset({0, 1}), width=WIDTH), items=words)


def _time_words(moment: Moment, time: datetime) -> str:
    """Format a time of day, with the date unless the range and the time are of one day."""
    days = {moment.start.date(), moment.end.date(), time.date()}
    return cell.time_of(time) if len(days) == 1 else f"{time:%m-%d %H:%M:%S}"


def _sweep_lines(moment: Moment) -> Iterator[str]:
    for sweep in moment.sweeps:
        end = "" if sweep.end is None else f" to {cell.time_of(sweep.end)}"
        yield f"{cell.time_of(sweep.start)}{end}: {code(sweep.words)}"


def _watched_tables(moment: Moment) -> Sequence[Table]:
    """Return the tables of what was watched: engines and models, machines, routers."""
    shown = moment.shown
    return (
        tables.backend_servers(shown.backends, detailed=False),
        tables.table(
            "Machines",
            shown.nodes,
            tables.name("Machine", lambda node: node.name),
            tables.name("Product", lambda node: node.identity.product),
            tables.name("GPU", _gpu_names),
            tables.name("Driver", lambda node: node.identity.driver),
            tables.figure(
                "Memory", lambda node: cell.data(node.sample.memory.total_bytes if node.sample else None)
            ),
        ),
        tables.routers(without_stale(shown)),
        tables.table(
            "Addresses",
            [backend for backend in shown.backends if backend.url],
            tables.name("Server", lambda backend: backend.name),
            tables.name("URL", lambda backend: backend.url),
        ),
    )


def _gpu_names(node: NodeView) -> str:
    names = Counter(gpu.name or f"GPU {gpu.index}" for gpu in node.gpus)
    return ", ".join(name if count == 1 else f"{count} × {name}" for name, count in names.items())


# The verdicts in a report on a time span: when each held, and its evidence.


_MOST_SPELLS = 40
"""Verdicts that are listed, the newest."""


def _verdict_section(moment: Moment) -> Section:
    """Return a section with the verdicts in the time span, their times and reasons."""
    shown = [spell for spell in moment.spells if spell.word not in {*QUIET_SPEEDS, BalanceWord.UNKNOWN.value}]
    left_out = len(shown) - _MOST_SPELLS
    items = [f"{left_out} earlier ones are left out"] if left_out > 0 else []
    return Section("Verdicts", items=(*items, *map(_verdict_line, shown[-_MOST_SPELLS:])))


def _test_sections(moment: Moment) -> Iterator[Section]:
    """Yield for each group a table of the tests behind its last bad verdict, else behind its last verdict."""
    for spell in _last_judged(moment):
        if spell.balance is not None:
            yield Section(table=_tests_grid(spell, spell.balance), folded=True)


def _last_judged(moment: Moment) -> Iterable[Spell]:
    """Return the last bad verdict on each group, or its last one if none was bad, of those with evidence."""
    judged = [spell for spell in moment.spells if spell.balance and spell.word != BalanceWord.UNKNOWN.value]
    last = {spell.subject: spell for spell in judged}
    return (last | {spell.subject: spell for spell in judged if spell.is_bad}).values()


def _verdict_line(spell: Spell) -> str:
    when = f"{time_of(spell.start)} to {time_of(spell.end)} ({numbers.duration_words(spell.seconds)})"
    head = f"{code(spell.subject)}: **{spell.shown_word}**, {when}"
    return " · ".join([head, *map(escaped, _evidence_sentences(spell))])


def _evidence_sentences(spell: Spell) -> Iterator[str]:
    if spell.balance is not None:
        yield from tables.sentences(spell.balance)
    elif (speed := spell.speed) is not None:
        labelled = [("", speed.reason), ("likely: ", speed.cause), ("→ ", speed.fix)]
        yield from (f"{label}{text}" for label, text in labelled if text)


def _tests_grid(spell: Spell, balance: Balance) -> Grid:
    """Return a table of the checks on whether there is enough data, then of the rules that hold."""
    rule_titles, *others = (rule(balance) for rule in RULES)
    holding = [rule for rule in others if all(check.holds for check in rule)]
    rows = tuple(
        (
            check.code if not number else "",
            check.shown or check.name,
            value_text(check),
            limit_text(check),
            "yes" if check.holds else "no",
        )
        for rule in [rule_titles, *holding]
        for number, check in enumerate(rule)
    )
    names = ", ".join(rule[0].code for rule in holding)
    when = f"the {balance.window_s:.0f} s before {time_of(spell.end)} UTC"
    note = (
        f"in {when}; rules that hold: {names}" if holding else f"in {when} no rule for an uneven load holds"
    )
    title = f"Tests behind {code(spell.subject)}: {spell.shown_word}"
    return Grid(title, ("Rule", "Test", "Value", "Limit", "Holds"), rows, frozenset({0, 1, 4}), (note,))


# The plots of a report on a time span.


_INTERVALS = 3.0
"""Values that are farther apart than so many usual distances are not connected."""
_MINUTES_APART_S = 150.0
"""Longer distances between the one-minute summaries of a recording are gaps."""
_CLOSE_FROM_S = 150.0
"""Of a longer range, the last minute has a plot of its own, in which fast swings are visible."""
_MS_BELOW_S = 2.0
_MS = 1000.0
_OF_ALL = "all"


def time_plots(moment: Moment) -> list[TimePlot]:
    """Return the plots of a report on a time span that have a known value.

    For a long range, plots of one-minute summaries of the whole range come first. Then come plots of the
    time since `detail`, and a plot of only the last minute.
    """
    shown = [(plot, moment.start) for plot in MINUTE_PLOTS if moment.is_long]
    shown += [(plot, moment.detail) for plot in PLOTS]
    if (moment.end - moment.detail).total_seconds() > _CLOSE_FROM_S:
        shown.append((LAST_MINUTE_PLOT, moment.end - timedelta(minutes=1)))
    marks = tuple(_time_marks(moment))
    plots = (_time_plot(moment, plot, start, marks) for plot, start in shown)
    return [plot for plot in plots if any(line.known for line in plot.lines)]


def _time_marks(moment: Moment) -> Iterator[TimeMark]:
    for event in moment.events:
        yield TimeMark(event.at.timestamp(), event.severity.value, f"{event.subject}: {event.message}")
    for at, word in moment.marks:
        yield TimeMark(at.timestamp(), "marked", word or "mark")


def _time_plot(moment: Moment, of: PlotOf, start: datetime, marks: Sequence[TimeMark]) -> TimePlot:
    views = moment.shown.backends if of.kind == BACKEND else moment.shown.nodes
    names_shown = [""] if of.kind == ALL else [view.name for view in views]
    other_names = (name for kind, name, field in moment.series if kind == of.kind and field in of.fields)
    names = list(dict.fromkeys([*names_shown, *other_names]))
    lines: list[TimeLine] = []
    for number, name in enumerate(names):
        for field in of.fields:
            key = (of.kind, name, field)
            points = _curve_points(moment, key, start)
            for is_band in (None,) if of.kind == ALL else (False, True):
                shown = [
                    None if point is None or is_band is (point.low == point.high) else point
                    for point in points
                ]
                lines.append(
                    TimeLine(name or _OF_ALL, number, shown, field != of.fields[0], is_band=bool(is_band))
                )
    lines = [line for line in lines if line.known]
    inside = tuple(mark for mark in marks if start.timestamp() <= mark.at <= moment.end.timestamp())
    plot = TimePlot(of.title, of.unit, tuple(lines), start, moment.end, inside, of.dashed)
    return _plot_in_ms(plot) if of.unit == "s" else plot


def _curve_points(moment: Moment, key: tuple[str, str, str], start: datetime) -> list[TimePoint | None]:
    """Return the points of the series `key` since `start`; None marks a gap in the curve.

    There is a gap where a value is unknown or two values are too far apart. Empty if no value is known.
    """
    known = moment.series.get(key, ())
    apart_s = _MINUTES_APART_S if key[0] == ALL else _longest_step_s(known)
    points: list[TimePoint | None] = []
    before = None
    for point in known:
        if not start.timestamp() <= point.at <= moment.end.timestamp():
            continue
        is_gap = point.value is None or point.at - (before or point.at) > apart_s
        if is_gap and points and points[-1] is not None:
            points.append(None)
        if point.value is not None:
            points.append(TimePoint(point.at, point.value, *point.ends))
        before = point.at
    return points if any(points) else []


def _longest_step_s(points: Points) -> float:
    """Return the distance in seconds beyond which two values are not connected."""
    steps = [later.at - earlier.at for earlier, later in pairwise(points)]
    return max(GAP_S, _INTERVALS * median(steps)) if steps else GAP_S


def _plot_in_ms(plot: TimePlot) -> TimePlot:
    """Return a plot in milliseconds instead of seconds if all its values are below `_MS_BELOW_S`."""
    if max((point.high for line in plot.lines for point in line.known), default=0.0) >= _MS_BELOW_S:
        return plot

    def in_ms(point: TimePoint | None) -> TimePoint | None:
        return None if point is None else TimePoint(point.at, *(_MS * value for value in point[1:]))

    lines = (replace(line, points=[*map(in_ms, line.points)]) for line in plot.lines)
    return replace(plot, unit="ms", lines=tuple(lines))


# Removes from the data of a report what it may not show; every format is written from the result.


_VERSIONS = frozenset({"version", "recorded_by", "driver", "os", "cpu", "product", "about", "id"})
"""Fields whose numbers with points are no addresses, and ids that no report shows."""
_LONGEST = 1000
"""Characters of a text; a longer one is cut."""


def shown_moment(moment: Moment, privacy: Privacy, targets: Iterable[Target] = ()) -> Moment:
    """Return a copy of the report data in which `privacy` has replaced or cleaned all names and texts.

    `targets` are what was watched; `privacy` then recognises their addresses in any text.
    """
    last, scraped = moment.shown, _scraped_servers(moment.shown)
    names = [(backend.name, BACKEND) for backend in last.backends]
    names += [(router.name, ROUTER) for router in last.routers]
    names += [(name, BACKEND) for kind, name, _ in moment.series if kind == BACKEND]
    names += [(server.name, BACKEND) for server in scraped]
    names += [(view.name, ROUTER) for view in last.fleets]
    names += [(group.group, GROUP) for group in last.balance]
    names += [(spell.subject, GROUP) for spell in moment.spells if spell.speed is None]
    machines = [node.name for node in last.nodes]
    machines += [name for kind, name, _ in moment.series if kind == NODE]
    privacy.know(names, machines, set(_known_hosts(last, list(targets))))
    copy: Moment = _private_copy(moment, "", privacy)
    series = {
        (kind, clean(privacy.machine(name) if kind == NODE else privacy.name(name)), field): values
        for (kind, name, field), values in moment.series.items()
    }
    return replace(copy, series=series)


def _scraped_servers(snapshot: Snapshot) -> list[FleetServer]:
    return [server for view in snapshot.fleets if view.fleet for server in view.fleet.servers]


def _known_hosts(snapshot: Snapshot, targets: Sequence[Target]) -> Iterator[str | None]:
    """Yield the addresses and host names that are known of servers and machines."""
    sources = (*snapshot.backends, *snapshot.routers, *snapshot.fleets, *_scraped_servers(snapshot), *targets)
    urls = [source.url for source in sources]
    for router in snapshot.routers:
        urls += [deployment.address for deployment in router.sample.deployments or ()]
    yield from map(url_host, urls)
    for node in snapshot.nodes:
        yield from (node.identity.hostname, *node.identity.addresses)
    yield from (target.ssh for target in targets if isinstance(target, NodeTarget))


def _private_copy(value: Any, field: str, privacy: Privacy) -> Any:  # noqa: ANN401 - any part of a moment
    """Return a value with all texts in it replaced by what may be shown; `field` is the field that has it."""
    if type(value) is str:  # not an enumeration's word
        return clean(_private_text(value, field, privacy), _LONGEST)
    if isinstance(value, tuple):
        return tuple(_private_copy(item, field, privacy) for item in value)
    if isinstance(value, Mapping):
        if field == "series":
            return {}
        return {
            clean(privacy.name(key)) if isinstance(key, str) else key: _private_copy(item, "", privacy)
            for key, item in value.items()
        }
    if not isinstance(value, Struct) or isinstance(value, Series):
        return value
    parts = {
        name: _private_copy(getattr(value, name), name, privacy)
        for name in type(value).__match_args__  # all fields: each is a parameter
        if name not in {"history", "load", "processes", "engine_processes"}
    }
    if isinstance(value, NodeIdentity) and not privacy.shows_addresses:
        parts |= {"addresses": (), "hostname": None, "boot_id": None}
    if isinstance(value, NodeView):
        parts["name"] = clean(privacy.machine(value.name))
    if isinstance(value, FactChange) and value.what in _VERSIONS:
        parts |= {name: clean(getattr(value, name), _LONGEST) for name in ("before", "after")}
    if isinstance(value, Alert | Event | Spell | FactChange) and _is_of_node(value):
        parts["subject"] = clean(privacy.machine(value.subject))
    return replace(value, **parts)


def _is_of_node(value: Alert | Event | Spell | FactChange) -> bool:
    if isinstance(value, FactChange):
        return value.of_machine
    if isinstance(value, Spell):
        return value.speed is not None
    about = value.id if isinstance(value, Alert) else value.about
    return about is not None and about.startswith(f"{NODE}:")


def _private_text(text: str, field: str, privacy: Privacy) -> str:
    if field in _VERSIONS:
        return text
    if field == "url":
        return privacy.url(text)
    if field == "model":
        return privacy.model(text)
    return privacy.machine(text) if field == "nodes" else privacy.name(text)
