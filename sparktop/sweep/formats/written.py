"""Writes reports in every format: on a sweep, on other tools' files, and on published tables.

Also the command that repeats a sweep, the answer of a capacity search as text, and what a report must not
show: every format is written from a copy of the result without secrets and addresses (and on request without
names), so that none can leak what the copy lacks.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from sparktop.analysis.placement import url_host
from sparktop.errors import UsageError
from sparktop.files import SHARED, write_whole
from sparktop.model.load import LoadKind, LoadMode
from sparktop.model.text import with_subject
from sparktop.report.document.document import Section, to_page
from sparktop.report.document.drawing import Drawing, sheet
from sparktop.report.markdown import code
from sparktop.report.privacy import BACKEND, ROUTER, Privacy
from sparktop.sweep.compare.compare import compare, compared_targets, comparison_of
from sparktop.sweep.compare.series import LevelSeries, comparable_with, series_of
from sparktop.sweep.formats import exports, post, report
from sparktop.sweep.formats.drawings import curve_drawings
from sparktop.sweep.plan.capacity import DEFAULT_S
from sparktop.sweep.plan.capacity import NAME as CAPACITY_PRESET
from sparktop.sweep.plan.conversations import BUILT_IN
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.plan.presets import TEXTS_PRESET
from sparktop.sweep.result.results import (
    CapacityResult,
    ComparisonResult,
    PlanResult,
    SweepResult,
    TracePlan,
)
from sparktop.sweep.view.capacity import answer_words, compared_words, stored_words, tried_lines
from sparktop.sweep.view.curves import sweep_plots
from sparktop.sweep.view.result import result_view
from sparktop.sweep.view.words import NO_END

PLACE = "http://HOST:PORT"
"""Stands for an address in a command that others repeat."""


def repeat_command(result: SweepResult, *, addresses: bool = False, places: bool = False) -> str:
    """Return the shell command that puts the same load on the same targets.

    Targets are named as in the configuration file; with `addresses` their URLs are used instead, with
    `places` `PLACE` for each. Return "" if a target's name begins with "-", because the shell command would
    take it as an option, and for a search whose file does not say what it looked for.
    """
    if places and not addresses:
        anywhere = tuple(target.model_copy(update={"url": PLACE}) for target in result.targets)
        return repeat_command(result.model_copy(update={"targets": anywhere}), addresses=True)
    search = result.capacity
    has_lost_search = search is None and result.plan.preset == CAPACITY_PRESET  # of an earlier version
    if has_lost_search or any(target.name.startswith("-") for target in result.targets):
        return ""
    # An answer from stored levels has no command of its own, unless they are those of a search.
    if search is not None and (not search.stored or result.plan.preset == CAPACITY_PRESET):
        return _capacity_command(result, search, addresses=addresses)
    targets = (f"{target.name}={target.url}" if addresses else target.name for target in result.targets)
    words = ["sparktop", "sweep", *targets]
    plan, slo = result.plan, result.slo
    if plan.beside is not None and plan.preset is not None:
        words += ["--preset", plan.preset]
    conditions = slo.conditions if slo is not None else ()
    # In bursts, a number of requests sets the number of runs.
    is_counted = plan.mode is LoadMode.BURST and plan.requests is not None
    runs = None if is_counted else plan.runs
    limit = "" if plan.climb_to is None else f"..{plan.climb_to}"
    opens, agents = plan.mode is LoadMode.OPEN, plan.load is LoadKind.AGENTS
    at_once = plan.load is LoadKind.CONCURRENCY and not opens
    rates = "auto" if plan.find_knee else ",".join(plan.points)
    rates += f",arrivals={plan.arrivals}" if plan.arrivals else ""
    texts = plan.prompts if plan.prompts is not None and plan.prompts.texts else None
    lengths = [*map(str, plan.bases or plan.lengths or result.prompt_lengths())]
    lengths += ["longest"] if plan.longest else []
    depths = (*plan.depths, "whole") if plan.bases else plan.depths
    options = {
        "--preset": None if texts is None else TEXTS_PRESET,
        "-c": ",".join(map(str, plan.concurrency)) + limit if at_once and slo is None else None,
        "--rate": rates if opens else None,
        "--pp": ",".join(lengths) if texts is None else texts.about_tokens,
        "--tg": plan.tg,
        "--depth": ",".join(map(str, depths)),
        "--mode": None if opens or agents else plan.mode.value,
        "--runs": f"{runs}+" if plan.more_runs else runs,
        "--duration": None if plan.duration_s is None else f"{plan.duration_s:g}",
        "--requests": plan.requests,
        "--order": plan.order.value,
        "--api": plan.api.value,
        "--seed": plan.seed,
        "--slo": _slo_option(conditions or plan.depth_slo),
        **_request_options(result),
    }
    if plan.trace is not None:
        options |= _trace_options(plan.trace)
    if agents:
        options |= _agent_options(plan)
    flags = {"--leave": plan.leave, "--no-warm-up": not (plan.warmup or agents)}
    return _command(words, options, plan, [name for name, is_set in flags.items() if is_set])


def _slo_option(conditions: Sequence[str]) -> str:
    """Return conditions as `--slo` takes them: "ttft_p90_ms=2000" for the stored "ttft_p90_ms ≤ 2000"."""
    return ",".join("=".join(condition.split()[::2]) for condition in conditions)


def _command(
    words: Sequence[str], options: Mapping[str, object], plan: PlanResult, flags: Sequence[str]
) -> str:
    """Return a shell command with the options that have a value; those of headers have none in the result."""
    values = [
        word for name, value in options.items() if value not in {None, ""} for word in (name, str(value))
    ]
    headers = [word for name in plan.headers for word in ("--header", f"{name}=…")]
    return shlex.join([*words, *values, *headers, *flags])


def _capacity_command(result: SweepResult, search: CapacityResult, *, addresses: bool) -> str:
    """Return the command that searches again; lengths that the search chose itself are left out."""
    plan = result.plan
    agents, rate = search.load is LoadKind.AGENTS, search.load is LoadKind.RATE
    words = ["sparktop", "capacity", *(target.url if addresses else target.name for target in result.targets)]
    chosen = plan.duration_s is not None and plan.duration_s != DEFAULT_S[search.load]
    options = {
        "--preset": search.limits,
        "--slo": _slo_option(search.conditions) if search.limits is None else None,
        "--workload": _agent_options(plan)["--workload"] if agents else None,
        "--arrivals": plan.arrivals if rate else None,
        "--pp": None if agents else ",".join(map(str, result.prompt_lengths())),
        "--tg": None if agents else plan.tg,
        "--most": None if search.most is None else f"{search.most:g}",
        "--duration": f"{plan.duration_s:g}" if chosen else None,
        "--api": plan.api.value,
        "--seed": plan.seed,
        **_request_options(result),
    }
    return _command(words, options, plan, [f"--{search.load.value}"])


def _request_options(result: SweepResult) -> dict[str, str | None]:
    """Return the options for what each request holds, except its headers.

    `--model` is one for all targets: targets with unlike models have them from the configuration file.
    """
    plan, prompts = result.plan, result.plan.prompts
    models = {target.asked_model for target in result.targets}
    return {
        "--model": models.pop() if len(models) == 1 else None,
        "--prompts": None if prompts is None or prompts.texts else prompts.path or prompts.name,
        "--extra-body": json.dumps(plan.extra_body) if plan.extra_body else None,
        "--timeout": None if plan.timeout_s is None else f"{plan.timeout_s:g}",
    }


def _agent_options(plan: PlanResult) -> dict[str, str | None]:
    """Return the options that choose agents.

    Their workload sets the lengths: None takes the options for these out of the command.
    """
    name = plan.workload
    if name is not None and name not in BUILT_IN:
        name += ".toml"  # a file of the user's own
    return {"--agents": ",".join(plan.points), "--workload": name, **dict.fromkeys(("--pp", "--tg"))}


def _trace_options(trace: TracePlan) -> dict[str, str | None]:
    """Return the options that choose recorded traffic.

    It sets the rate, the lengths and the duration: None takes their options out of the command.
    """
    parts = {
        "format": trace.form,
        "speed": None if trace.speed in {None, 1.0} else f"{trace.speed:g}",
        "range": trace.span,
    }
    words = [trace.path or trace.name, *(f"{name}={text}" for name, text in parts.items() if text)]
    return {**dict.fromkeys(("--rate", "--pp", "--tg", "--duration")), "--trace": ",".join(words)}


def capacity_text(result: SweepResult) -> str:
    """Return the answers and the levels behind them as text."""
    return "\n".join([*_capacity_lines(result), ""])


def _capacity_lines(result: SweepResult) -> Iterator[str]:
    search = result.capacity
    if search is None:
        yield "nothing was measured"
        return
    if search.stored:
        when = f"{result.started_at.astimezone():%Y-%m-%d %H:%M}"
        yield f"by the levels of {when}, nothing was sent: {stored_words(search)}"
    if (compared := compared_targets(search)) is not None:
        yield compared_words(compared)
    for target in result.targets:
        answer = search.answers.get(target.name)
        if answer is None:
            unknown = "the reason is unknown" if result.status else NO_END
            why = target.error or result.stop_reason or unknown
            yield f"nothing was measured: {with_subject(target.name, why)}"
            continue
        first, *others = answer_words(search, answer)
        yield f"{target.name}: {first}"
        yield from (f"  {other}" for other in others)
        reason = target.error or (None if answer.complete else result.stop_reason)
        if reason is not None:
            yield f"  {reason}"
        yield from (f"  {line}" for line in tried_lines(search, answer))


_FIXED = re.compile(
    "schema|status|kind|mode|order|api|loop|code|tokens_from|fresh_by|router_overhead_from|winner_vs|metric"
    "|started_at|finished_at|sparktop|preset|conditions|verdict|call|missed"
)
"""Fields that hold words of sparktop's own, times and codes."""
_BY_NAME = re.compile(
    "served_by|runs_split|busy_batch|backends|values|ranges|changes|holds_to|definitions|balance|setups|commands"
)
"""Fields whose keys are names of servers or targets, at any depth."""
_MACHINES = {"hardware", "machines"}
"""Fields whose keys are names of machines."""
_WORDS = {TargetKind.ENGINE: BACKEND, TargetKind.ROUTER: ROUTER}


class SweepPrivacy(Privacy):
    """Removes from results and series of sweeps what a report must not show."""

    def of_result(self, result: SweepResult) -> SweepResult:
        """Return a copy of a sweep's result that has only what the report may show."""
        self.know(*_names_of(result), hosts=(url_host(target.url) for target in result.targets))
        return SweepResult.model_validate(self._tree(result.to_json(), "", by_name=False))

    def of_series(self, series: Sequence[LevelSeries]) -> list[LevelSeries]:
        """Return copies of series that have only what the report may show; published tables stay as is."""
        measured = [a_series for a_series in series if not a_series.published]
        self.know([(a_series.name, BACKEND) for a_series in measured], [])
        sources = dict.fromkeys(a_series.source for a_series in measured)
        files = {source: f"file-{number}" for number, source in enumerate(sources, 1)}
        return [a_series if a_series.published else self._series(a_series, files) for a_series in series]

    def _series(self, a_series: LevelSeries, files: Mapping[str, str]) -> LevelSeries:
        return replace(
            a_series,
            name=self.name(a_series.name),
            source=files[a_series.source] if self.anonymous else a_series.source,
            model=None if a_series.model is None else self.model(a_series.model),
            notes=tuple(map(self.text, a_series.notes)),
            refused={load: self.text(words) for load, words in a_series.refused.items()},
            engines=tuple(map(self.name, a_series.engines)),
            levels=tuple(replace(level, label=None) for level in a_series.levels)
            if self.anonymous
            else a_series.levels,
        )

    def _tree(self, value: Any, key: str, *, by_name: bool) -> Any:  # noqa: ANN401 - any JSON value
        """Return a JSON value of a result in which texts and names are replaced by what the report may show.

        `key` is the name of the field that holds `value`. If `by_name` is True, the keys of `value` are
        names of servers or machines, which are replaced too.
        """
        if key == "commands" and self.anonymous:
            return {}
        if isinstance(value, dict):
            by_name = by_name or _BY_NAME.fullmatch(key) is not None
            return {
                self._shown_key(name, key, by_name=by_name): self._tree(item, name, by_name=by_name)
                for name, item in value.items()
            }
        if isinstance(value, list):
            if key == "joined_from" and self.anonymous:
                return [f"file-{number}" for number in range(1, len(value) + 1)]
            return [self._tree(item, key, by_name=by_name) for item in value]
        return self._shown_text(value, key) if isinstance(value, str) else value

    def _shown_key(self, name: str, of: str, *, by_name: bool) -> str:
        if of in _MACHINES:
            return self._machines.get(name, name)
        return self._aliases.get(name, name) if by_name else name

    def _shown_text(self, text: str, key: str) -> str:
        if _FIXED.fullmatch(key):
            return text
        if key == "url":
            return self.url(text)
        if key == "path":
            return "" if self.anonymous else text
        return self.model(text) if key == "model" else self.name(text)


def _names_of(result: SweepResult) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (list of (name of a target or server, its kind), names of machines), both in a fixed order."""
    levels = [level for target in result.targets for level in target.levels]
    servers = {name for level in levels for name in level.known_servers}
    servers |= {name for level in levels for split in level.runs_split for name in split}
    servers |= {name for target in result.targets for name in target.setups}
    target_names = {target.name for target in result.targets}
    kinds_by_name = [(target.name, _WORDS[target.kind]) for target in result.targets]
    kinds_by_name += [(name, BACKEND) for name in sorted(servers - target_names)]
    machines = {name for target in result.targets for name in target.machines}
    return kinds_by_name, sorted(machines.union(*(level.hardware for level in levels)))


_ON_SCREEN = ("html", "md")
"""Formats that a key of the screen writes."""


def sweep_report(
    result: SweepResult,
    form: str,
    privacy: SweepPrivacy | None = None,
    beside: Sequence[LevelSeries] = (),
    made_of: Mapping[str, SweepResult] | None = None,
) -> str:
    """Return the report on a sweep in the format `form`.

    Markdown, HTML, SVG and posts also compare the sweep with the series `beside`. `privacy` decides what the
    report may show; by default no addresses. `made_of` has the sweeps that `result` joins, by name of their
    files; a post has the commands that repeat them.

    Raises:
        UsageError: the format cannot hold this sweep, or needs a measured level.
    """
    named_privacy = privacy or SweepPrivacy()
    result = named_privacy.of_result(result)
    if form in _FOR_PROGRAMS:
        return _FOR_PROGRAMS[form](result)
    others = named_privacy.of_series(beside)
    if form == "post":
        if not result.is_measured:
            raise UsageError("--format post: no level was measured, there is nothing to post")
        parts = {} if named_privacy.anonymous else made_of or {"last": result}
        commands = [
            repeat_command(named_privacy.of_result(part), addresses=named_privacy.addresses, places=True)
            for part in parts.values()
        ]
        return post.render(result, others, list(filter(None, commands)))
    if form == "md":
        return report.sweep_markdown(result, others, _last_sections(result, named_privacy))
    target_names = {target.name for target in result.targets}
    series = series_of(result)
    named = [
        replace(other, name=f"{other.name} (ref)") if other.name in target_names else other
        for other in comparable_with(series, others)
    ]
    drawings = list(curve_drawings(series, named, sweep_plots(result)))
    names = ", ".join(target.name for target in result.targets)
    about = f"{names} · {result.started_at:%Y-%m-%d %H:%M} UTC"
    if form == "svg":
        return _svg_sheet(drawings, f"{report.TITLE}, {about}")
    plots = [drawing.element() for drawing in drawings]
    sections = report.sections(result, others, plots, _last_sections(result, named_privacy))
    return to_page(report.TITLE, about, sections, simulated=result.simulated)


def _last_sections(result: SweepResult, privacy: SweepPrivacy) -> list[Section]:
    """Return the last sections of a report: addresses that may be shown, and the command to repeat the sweep.

    An anonymous report has no command, and neither has a report on several sweeps.
    """
    lines = [f"{code(target.name)}: {code(target.url)}" for target in result.targets if target.url]
    more = [Section("Addresses", items=tuple(lines))] if lines else []
    has_command = not (privacy.anonymous or result.joined_from)
    command = repeat_command(result, addresses=privacy.addresses, places=True) if has_command else ""
    return [*more, Section("The same again", command=command)] if command else more


def comparison_report(
    comparison: ComparisonResult, series: Sequence[LevelSeries], form: str, facts: report.Facts | None = None
) -> str:
    """Return the report on compared series, or on a single series, in the format `form`.

    `facts` are further facts that published tables state, for JSON.

    Raises:
        UsageError: the format is only for sweeps, or there is nothing to draw.
    """
    if form == "json":
        return report.comparison_json(comparison, series, facts)
    if form == "md":
        return report.comparison_markdown(comparison, series)
    if form == "csv":
        return exports.series_to_csv(series)
    if form in {"llama-benchy", "post"}:
        raise UsageError(f"--format {form} is for results of sparktop sweep")
    measured = [a_series for a_series in series if not a_series.published]
    published = [a_series for a_series in series if a_series.published]
    drawings = list(curve_drawings(measured or published, published if measured else (), ()))
    names = ", ".join(dict.fromkeys(a_series.source for a_series in series))
    if form == "svg":
        return _svg_sheet(drawings, f"sparktop report, {names}")
    first, *others = report.comparison_sections(comparison, series)
    parts = [first, Section(plots=tuple(drawing.element() for drawing in drawings)), *others]
    return to_page("sparktop report", names, parts, simulated=any(a_series.simulated for a_series in series))


def _svg_sheet(drawings: Sequence[Drawing], title: str) -> str:
    if not drawings:
        raise UsageError("--format svg: no level was measured, there is nothing to draw")
    return sheet(drawings, title)


def save_reports(
    shown: SweepResult | Sequence[LevelSeries], beside: Sequence[LevelSeries], folder: Path, at: datetime
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
    compared = result.comparison and comparison_of(result.comparison, series_of(result))  # as other forms
    answered = result.model_copy(update={"headline": result_view(result).headline, "comparison": compared})
    return json.dumps(answered.to_json(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


_FOR_PROGRAMS = {"csv": exports.to_csv, "json": render_json, "llama-benchy": exports.to_llama_benchy}
