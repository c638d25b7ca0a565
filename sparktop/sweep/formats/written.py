"""Writes reports in every format: on a sweep, on other tools' files, and on published tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from msgspec.structs import replace

from sparktop.errors import UsageError
from sparktop.files import SHARED, write_whole
from sparktop.report.document.drawing import Drawing, sheet
from sparktop.report.document.page import to_page
from sparktop.report.document.section import Section
from sparktop.report.markdown import code
from sparktop.sweep.compare.compare import compare
from sparktop.sweep.compare.series import Series, series_of
from sparktop.sweep.formats import comparison, csv_table, llama_benchy, markdown, post
from sparktop.sweep.formats.command import repeat_command
from sparktop.sweep.formats.drawings import curve_drawings, request_drawings
from sparktop.sweep.formats.privacy import SweepPrivacy
from sparktop.sweep.result.results import ComparisonResult, SweepResult
from sparktop.sweep.view.curves import sweep_plots
from sparktop.sweep.view.result import findings

_ON_SCREEN = ("html", "md")
"""Formats that a key of the screen writes."""


def sweep_report(
    result: SweepResult,
    form: str,
    privacy: SweepPrivacy | None = None,
    beside: Sequence[Series] = (),
    made_of: Mapping[str, SweepResult] | None = None,
) -> str:
    """Return the report on a sweep in the format `form`.

    Markdown, HTML, SVG and posts also compare the sweep with the series `beside`. `privacy` decides what the
    report may show; by default no addresses. `made_of` has the sweeps that `result` joins, by name of their
    files; a post has the commands that repeat them.

    Raises:
        UsageError: the format cannot hold this sweep.
    """
    shown = privacy or SweepPrivacy()
    result = shown.of_result(result)
    if form in _FOR_PROGRAMS:
        return _FOR_PROGRAMS[form](result)
    others = shown.of_series(beside)
    if form == "post":
        parts = {} if shown.anonymous else made_of or {"last": result}
        commands = [repeat_command(shown.of_result(one), addresses=shown.addresses) for one in parts.values()]
        return post.render(result, others, list(filter(None, commands)), list(parts))
    if form == "md":
        return markdown.render(result, others, _more(result, shown))
    own = {target.name for target in result.targets}
    named = [replace(one, name=f"{one.name} (ref)") if one.name in own else one for one in others]
    drawings = [*curve_drawings(series_of(result), named, sweep_plots(result)), *request_drawings(result)]
    names = ", ".join(target.name for target in result.targets)
    about = f"{names} · {result.started_at:%Y-%m-%d %H:%M} UTC"
    if form == "svg":
        return _drawn(drawings, f"{markdown.TITLE}, {about}")
    plots = [one.element() for one in drawings]
    sections = markdown.sections(result, others, plots, _more(result, shown))
    return to_page(markdown.TITLE, about, sections, simulated=result.simulated)


def _more(result: SweepResult, privacy: SweepPrivacy) -> list[Section]:
    """Return the last sections of a report: addresses that may be shown, and the command to repeat the sweep.

    An anonymous report has no command, and neither has a report on several sweeps.
    """
    known = [f"{code(one.name)}: {code(one.url)}" for one in result.targets if one.url]
    more = [Section("Addresses", items=tuple(known))] if known else []
    command = (
        "" if privacy.anonymous or result.joined_from else repeat_command(result, addresses=privacy.addresses)
    )
    return [*more, Section("The same again", command=command)] if command else more


def comparison_report(
    found: ComparisonResult, series: Sequence[Series], form: str, facts: comparison.Facts | None = None
) -> str:
    """Return the report on compared series, or on a single series, in the format `form`.

    `facts` are further facts that published tables state.

    Raises:
        UsageError: the format is only for sweeps, or there is nothing to draw.
    """
    if form == "json":
        return comparison.to_json(found, series, facts)
    if form == "md":
        return comparison.to_markdown(found, series, facts)
    if form == "csv":
        return csv_table.render_series(series)
    if form in {"llama-benchy", "post"}:
        raise UsageError(f"--format {form} is for results of sparktop sweep")
    own = [one for one in series if not one.published]
    published = [one for one in series if one.published]
    drawings = list(curve_drawings(own or published, published if own else (), ()))
    names = ", ".join(dict.fromkeys(one.source for one in series))
    if form == "svg":
        return _drawn(drawings, f"sparktop report, {names}")
    first, *others = comparison.sections(found, series, facts)
    parts = [first, Section(plots=tuple(one.element() for one in drawings)), *others]
    return to_page("sparktop report", names, parts, simulated=any(one.simulated for one in series))


def _drawn(drawings: Sequence[Drawing], title: str) -> str:
    if not drawings:
        raise UsageError("--format svg: no level was measured, there is nothing to draw")
    return sheet(drawings, title)


def save_reports(
    shown: SweepResult | Sequence[Series], beside: Sequence[Series], folder: Path, at: datetime
) -> list[Path]:
    """Write a sweep, or the series of another tool's file, to `folder` as HTML and as Markdown.

    Return the paths of the two files, whose names contain the time `at`. `beside` are series to compare with.

    Raises:
        OSError: a file cannot be written.
    """
    written = []
    for form in _ON_SCREEN:
        path = folder / f"sparktop-sweep-{at.astimezone():%Y%m%d-%H%M%S}.{form}"
        if isinstance(shown, SweepResult):
            text = sweep_report(shown, form, beside=beside)
        else:
            series = [*SweepPrivacy().of_series(shown), *beside]
            text = comparison_report(compare(series), series, form)
        write_whole(path, text, SHARED)
        written.append(path)
    return written


def render_json(result: SweepResult) -> str:
    """Return a sweep's result and headline as indented JSON text with every key; unknown values are null."""
    answered = result.model_copy(update={"headline": findings(result).headline})
    return json.dumps(answered.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


_FOR_PROGRAMS = {"csv": csv_table.render, "json": render_json, "llama-benchy": llama_benchy.render}
