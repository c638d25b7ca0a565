"""Writes the report on a time span in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from sparktop import __version__
from sparktop.errors import UsageError
from sparktop.model.plain import json_time, plain
from sparktop.model.targets import Target
from sparktop.model.text import spreadsheet_text
from sparktop.moments.figures import BACKEND, FIGURES, NODE, Values
from sparktop.moments.moment import Moment, SeriesKey, Spell
from sparktop.moments.plots import time_plots
from sparktop.moments.sections import sections, span_words
from sparktop.moments.shown import shown_moment
from sparktop.report.document.drawing import sheet
from sparktop.report.document.page import to_page
from sparktop.report.document.section import to_markdown
from sparktop.report.document.time_plot import time_drawing
from sparktop.report.json_balance import balance_json
from sparktop.report.privacy import Privacy

SCHEMA = "sparktop.moment/1"
FORMATS = ("md", "html", "csv", "json", "svg")
TITLE = "sparktop report"
_BACKEND = ("name", "url", "group", "engine", "version", "model", "max_model_len", "slots", "nodes", "state")
_NODE = ("os", "driver", "product", "maker", "cpu")
_ROUTER = ("name", "url", "kind", "version", "strategy", "backends")


def moment_report(
    moment: Moment,
    form: str,
    privacy: Privacy | None = None,
    targets: Iterable[Target] = (),
) -> str:
    """Return the report on a time span, whose data is `moment`, in the format `form`, one of `FORMATS`.

    `privacy` decides what the report may show; by default no addresses. `targets` are what was watched.

    Raises:
        UsageError: there is nothing to draw.
    """
    moment = shown_moment(moment, privacy or Privacy(), targets)
    simulated = moment.shown.simulated
    if form == "csv":
        return _csv(moment)
    if form == "json":
        return json.dumps(to_json(moment), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    if form == "md":
        return to_markdown(f"{TITLE} (simulated)" if simulated else TITLE, sections(moment, form))
    if form == "html":
        return to_page(TITLE, span_words(moment), sections(moment, form), simulated=simulated)
    drawings = [time_drawing(plot) for plot in time_plots(moment)]
    if not drawings:
        raise UsageError("--format svg: nothing was measured, there is nothing to draw")
    return sheet(drawings, f"{TITLE}, {span_words(moment)}")


def _csv(moment: Moment) -> str:
    """Return the values behind the plots and tables as CSV: a row for each time, source and metric.

    For a one-minute summary, "value" is the mean, and "min" and "max" are the extremes.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("time", "source", "name", "figure", "unit", "value", "min", "max"))
    for key, unit, values in _series(moment):
        kind, name, field = key
        ranges = moment.ranges.get(key)
        for number, (at, value) in enumerate(values):
            limits = ("", "") if ranges is None else ranges[number]
            time = json_time(datetime.fromtimestamp(at, UTC))
            writer.writerow((time, kind, spreadsheet_text(name), field, unit, _rounded(value), *limits))
    return out.getvalue()


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _series(moment: Moment) -> Iterator[tuple[SeriesKey, str, Values]]:
    """Yield (key, unit, values) of each series that has a known value."""
    units = {(one.kind, one.field): one.unit for one in FIGURES}
    for key, values in moment.series.items():
        if any(value is not None for _, value in values):
            yield key, units.get((key[0], key[2]), ""), values


def to_json(moment: Moment) -> object:
    """Return the data of a report as values for JSON; unknown values are None."""
    shown, readings = moment.shown, moment.readings
    body = {
        "schema": SCHEMA,
        "sparktop": __version__,
        "simulated": shown.simulated,
        "from": json_time(moment.start),
        "to": json_time(moment.end),
        "figures_from": json_time(moment.detail),
        "interval_s": shown.interval_s,
        "recording": readings.source or None,
        "recorded_by": readings.version,
        "gaps": [{"from": json_time(start), "to": json_time(end)} for start, end in readings.gaps],
        "damage": readings.damage,
        "dropped": readings.dropped,
        "unreadable": readings.unreadable,
        "backends": [_view(moment, BACKEND, one, one, _BACKEND) for one in shown.backends],
        "nodes": [_view(moment, NODE, one, one.identity, _NODE) for one in shown.nodes],
        "routers": [{name: getattr(one, name) or None for name in _ROUTER} for one in shown.routers],
        **_happened(moment),
        "series": [
            {
                "source": key[0],
                "name": key[1] or None,
                "figure": key[2],
                "unit": unit or None,
                "times": [round(at, 3) for at, _ in values],
                "values": [_rounded(value) for _, value in values],
                "ranges": moment.ranges.get(key),
            }
            for key, unit, values in _series(moment)
        ],
    }
    return plain(body)


def _happened(moment: Moment) -> dict[str, object]:
    """Return lists for JSON under the keys "alerts", "verdicts", "events", "marks" and "sweeps"."""
    return {
        "alerts": [
            {
                "severity": one.severity,
                "subject": one.subject,
                "message": one.message,
                "since": json_time(one.since),
            }
            for one in moment.shown.alerts
        ],
        "verdicts": [_spell(one) for one in moment.spells],
        "events": [
            {
                "at": json_time(one.at),
                "severity": one.severity,
                "subject": one.subject,
                "message": one.message,
            }
            for one in moment.events
        ],
        "marks": [{"at": json_time(at), "word": word} for at, word in moment.marks],
        "sweeps": [
            {"from": json_time(one.start), "to": one.end and json_time(one.end), "what": one.words}
            for one in moment.sweeps
        ],
    }


def _view(moment: Moment, kind: str, view: object, facts: object, names: Iterable[str]) -> dict[str, object]:
    name = getattr(view, "name")  # noqa: B009 - a view of either kind
    return {
        "name": name,
        **{field: getattr(facts, field) or None for field in names},
        "states": moment.states.get(name) if kind == BACKEND else None,
        "figures": {
            figure.field: {"min": found.least, "mean": found.mean, "max": found.most, "last": found.last}
            for figure, _, found in moment.figures(kind, names=[name])
        },
    }


def _spell(spell: Spell) -> dict[str, object]:
    speed = spell.speed
    return {
        "of": "balance" if speed is None else "speed",
        "subject": spell.subject,
        "verdict": spell.word,
        "from": json_time(spell.start),
        "to": json_time(spell.end),
        "evidence": balance_json(spell.balance, json_time)
        if spell.balance is not None
        else None
        if speed is None
        else {"reason": speed.reason, "cause": speed.cause, "fix": speed.fix},
    }
