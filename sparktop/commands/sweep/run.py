"""Runs a sweep from the command line, saves its result after each level, and says how it ended.

Its progress is on standard error: a line per finished level and, on a terminal, a live line.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TextIO

from sparktop.commands.output import fold_line, tell, write_file, write_result
from sparktop.ending import INTERRUPTED
from sparktop.errors import OutputError, UnreachableError
from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width
from sparktop.graphics.numbers import duration_words, range_words
from sparktop.model.sweep import MarkKind, SweepMoment, SweepView
from sparktop.model.targets import Watch
from sparktop.model.text import clean
from sparktop.stopping import on_signals
from sparktop.store import Store
from sparktop.sweep.compare.series import series_of
from sparktop.sweep.formats.drawings import plots
from sparktop.sweep.formats.written import capacity_text, render_json, sweep_report
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import LevelResult, Rate, SweepResult
from sparktop.sweep.result.store import new_file, save, sweeps_folder
from sparktop.sweep.run.progress import (
    Notice,
    PhaseChanged,
    ResultChanged,
    SweepEvent,
)
from sparktop.sweep.run.runner import SweepRunner
from sparktop.sweep.view.live import LiveView
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.result import result_view
from sparktop.sweep.view.words import conversation_words, main_rate_words
from sparktop.watch.monitor import Monitor
from sparktop.watch.state_files import announced_load

_EXIT_CODES = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), INTERRUPTED)
"""The signals that cancel a sweep, with the exit code of a second one."""

_LEAST_PROMPT_SHARE = 0.5
"""Share of a prompt (0 to 1) that a server must count, so that its level is not as one that it refused."""


def make(plan: Plan, watch: Watch, form: str, output: Path | None) -> int:
    """Run a sweep or a search, write its result, and return the exit code."""
    result = _measure(plan, watch, form, output)
    if plan.capacity is None:
        _draw(result)
    code = verdict(result, plan)
    headline = result_view(result).headline
    if headline is not None and (form != "txt" or output is not None):  # else it was printed as text
        tell(headline)  # last, where the eye is after pages of tables and plots
    return code


def _measure(plan: Plan, watch: Watch, form: str, output: Path | None) -> SweepResult:
    """Run a sweep, keep its result after each level and at the end, and print it unless `output` is a file.

    Results are kept in the store of sweeps and in `output`. If no file can be made in the store, print why
    and write only to `output`. A result without a level is not kept in the store.

    Raises:
        OutputError: the result cannot be written, or kept nowhere.
    """
    stored = None
    try:
        stored = new_file(sweeps_folder(os.environ), datetime.now(UTC), plan.preset or "sweep")
    except OutputError as error:
        if output is None:
            raise
        tell(str(error))

    def keep(result: SweepResult) -> None:
        if stored is not None:
            save(stored, result)
        if output is not None:
            write_file(output, render(result, form))

    result = asyncio.run(make_sweep(plan, watch, keep, stored))
    if stored is not None and not result.has_levels:
        stored.unlink(missing_ok=True)
        stored = None
    keep(result)
    places = [clean(path, 300) for path in (stored, output) if path is not None]
    if places:
        tell(f"result kept in {' and in '.join(places)}")
    if output is None and result.has_levels:
        write_result(None, render(result, form), is_markdown=form == "md")
    return result


async def make_sweep(
    plan: Plan, watch: Watch, keep: Callable[[SweepResult], None], stored: Path | None
) -> SweepResult:
    """Run a sweep, with a monitor that polls the targets meanwhile, and return its result.

    `keep` is called with the result so far, and writes it to `stored` unless that is None. A first signal
    (Ctrl+C, SIGTERM, SIGHUP) cancels the sweep, whose result is then partial; a second one ends the program.
    """
    store = Store(watch)
    monitor = Monitor(watch, store)
    runner = SweepRunner(plan, store, models=watch.models, save=keep)
    is_live = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    line = SweepLine(plan, live=is_live, width=shutil.get_terminal_size().columns)
    runner.listen(line.take)

    def interrupt(_: signal.Signals) -> None:
        runner.cancel("interrupted")
        undo()

    undo = on_signals(_EXIT_CODES, interrupt)
    await monitor.start()
    try:
        with store.loaded_from_here(plan.loaded), announced_load(plan.loaded_urls, stored):
            return await runner.run()
    finally:
        await monitor.stop()
        undo()


REDRAW_S = 0.2
"""Least seconds between two drawings of the live line."""
_ERASE = "\r\x1b[K"
"""Clears the live line."""


class SweepLine:
    """Listener of a sweep that prints its events and, on a terminal, keeps a live line of its progress."""

    def __init__(
        self,
        plan: Plan,
        *,
        live: bool,
        width: int = 100,
        stream: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Print to `stream`, by default standard error; `live` on a terminal that understands escapes."""
        self.stream = sys.stderr if stream is None else stream
        self._live = LiveView(plan, clock=clock) if live else None
        self._width = width
        self._clock = clock
        self._drawn_at = -math.inf

    def take(self, event: SweepEvent) -> None:
        """Handle an event of the sweep.

        Print a notice, the limits at which the sweep stops itself, or the summary of a finished level; other
        events print nothing. On a terminal, also redraw the live line if that is due.
        """
        match event:
            case Notice():
                self._print(event.message)
            case ResultChanged(level=LevelResult() as level):
                self._print(level_line(event.target, level))
            case ResultChanged() if event.result.status is not None:
                self._write(_ERASE if self._live else "")
                return
            case _:
                pass
        if self._live is not None:
            self._live.take(event)
            now = self._clock()
            if isinstance(event, PhaseChanged) or now - self._drawn_at >= REDRAW_S:
                self._drawn_at = now
                self._write(_ERASE + progress_line(self._live.line_view(), self._width - 1))

    def _print(self, line: str) -> None:
        words = f"sparktop: {clean(line, 1000)}"
        self._write(f"{_ERASE}{fold_line(words, self._width)}\n" if self._live else f"{words}\n")

    def _write(self, text: str) -> None:
        """Write text to the stream, if there is one.

        If that fails, as after SIGHUP, write nothing from then on: the sweep must go on until its result is
        saved.
        """
        if self.stream is None or not text:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            self.stream = None


def progress_line(view: SweepView, width: int) -> str:
    """Return the text of the live line: what the sweep does, live values and estimated time left.

    Where all of it is wider than `width` cells, leave out whole parts, those that matter least first.
    """
    parts, spare, moment = [clean(view.words, 120)], [], view.moment
    if moment is not None and moment.run is not None:
        failed, in_flight = f"{moment.failed} failed", f"{moment.in_flight} in flight"
        ttft = f"TTFT p50 {numbers.milliseconds(moment.ttft_p50_ms)}"
        parts += [*_rate_parts(moment), in_flight, f"{numbers.decimal(moment.tps, 1)} tok/s", ttft, failed]
        spare = [ttft, in_flight] if moment.failed else [failed, ttft, in_flight]
    if view.left is not None:
        parts.append(f"{range_words(view.left.least_s, view.left.most_s)} left")
    while cell_width(" · ".join(parts)) > width and spare:
        parts.remove(spare.pop(0))
    line = " · ".join(parts)
    while cell_width(line) > width:
        line = line[:-1]
    return line


def _rate_parts(moment: SweepMoment) -> list[str]:
    """Return how far a replay is, and the rates of a load of requests per second; empty for other loads."""
    parts = []
    if moment.trace_at_s is not None and moment.trace_s is not None:
        parts.append(f"replayed {duration_words(moment.trace_at_s)} of {duration_words(moment.trace_s)}")
    if moment.requests_per_s is not None:
        sent_per_s, completed_per_s = moment.requests_per_s
        parts.append(f"{sent_per_s:.2f} /s sent, {completed_per_s:.2f} /s completed")
    return parts


def level_line(target: str, level: LevelResult) -> str:
    """Return a one-line summary of a finished level of the target `target`."""
    loop, ttft, ttft_due = level.open_loop, level.ttft_ms, level.ttft_due_ms
    name = f"{clean(target, 40)}: {level.point.label}" + (f" @ {level.depth:,}" if level.depth else "")
    name += f", {level.pp:,} tokens in" if level.pp and level.agents is None else ""
    output = f"output {_rate_words(level.output_tps, 1)}"
    if level.error is not None:
        return f"{name} · ❌ {clean(level.error, 300)}"
    if loop is not None:
        completed = "–" if loop.completed_per_s is None else f"{loop.completed_per_s:.2f}"
        due_text = f"TTFT p50 {numbers.milliseconds(ttft_due.p50 if ttft_due else None)} from due time"
        late = f"rate too high: {loop.growth_words}" if loop.unstable else due_text
        parts = [name, f"{completed} /s completed", output, late]
    elif level.agents is not None:
        parts = [name, conversation_words(level.agents), output]
    else:
        parts = [
            name,
            *([f"prefill {_rate_words(level.prefill_tps, 0)}"] if level.prefill_tps else []),
            main_rate_words(level),
            f"mean TTFT {numbers.milliseconds(ttft.mean if ttft else None)}",
        ]
    return " · ".join((*parts, *_doubt_parts(level)))


def _rate_words(rate: Rate | None, decimals: int) -> str:
    return f"{numbers.decimal(rate.mean if rate else None, decimals)} tok/s"


def _doubt_parts(level: LevelResult) -> list[str]:
    """Return how many requests failed, the reasons to doubt a level, why it is slow, and small errors."""
    parts = []
    if level.requests.failed:
        parts.append(f"{level.requests.failed} of {level.requests.ended} requests failed")
    marks = marks_of(level)
    words = {kind: dict.fromkeys(mark.word for mark in marks if mark.kind is kind) for kind in MarkKind}
    return parts + [f"{kind.value}: {', '.join(of_kind)}" for kind, of_kind in words.items() if of_kind]


def render(result: SweepResult, form: str) -> str:
    """Return a sweep result in a format of a sweep or a search; only JSON has the servers' addresses."""
    texts = {"json": render_json, "txt": capacity_text}
    return texts[form](result) if form in texts else sweep_report(result, form)


def verdict(result: SweepResult, plan: Plan) -> int:
    """Return the exit code of a sweep that has ended; print to standard error what went wrong.

    0: no problem. 1: the sweep stopped early, too many requests failed, a target or level was not measured,
    or a server read less than half of a prompt. 130: Ctrl+C.

    Raises:
        UnreachableError: no target could be measured at all.
    """
    if result.status == "cancelled":
        tell("interrupted: the result holds what was done until then")
        return INTERRUPTED
    levels = [level for target in result.targets for level in target.levels]
    errors = [*(level.error for level in levels), *(target.error for target in result.targets)]
    if None not in errors:
        raise UnreachableError(result.stop_reason or "nothing was measured")
    if result.status != "done":
        tell(f"{(result.status or 'unfinished').replace('_', ' ')}: {result.stop_reason}")
        return 1
    ended = sum(level.requests.ended for level in levels)
    failed_count = sum(level.requests.failed for level in levels)
    bad = failed_count > plan.max_error_share * ended
    if bad:
        tell(f"{failed_count} of {ended} requests failed: more than {100 * plan.max_error_share:.1f} %")
    refused = sum(level.error is not None for level in levels)
    if refused:
        tell(f"{refused} of {len(levels)} levels were refused by the server and have no figures")
        bad |= not plan.longest  # refusals are part of a search for the longest prompt
    shares = ((level, level.prompt_share) for level in levels)
    cut = [level for level, share in shares if share is not None and share < _LEAST_PROMPT_SHARE]
    if cut:
        counted, asked_tokens = cut[0].counted_prompt_tokens or 0, cut[0].asked_prompt_tokens or 0
        lengths = f"the server counted {counted:,.0f} of {asked_tokens:,.0f} prompt tokens"
        tell(f"{len(cut)} of {len(levels)} levels measured other prompts than were asked for: {lengths}")
    bad |= bool(cut)
    return 1 if bad or any(target.error is not None for target in result.targets) else 0


def _draw(result: SweepResult) -> None:
    """Plot the measured curves on standard error if it is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    width = min(100, shutil.get_terminal_size().columns)
    try:
        sys.stderr.write(plots([curve for curve in series_of(result) if curve.levels], width))
        sys.stderr.flush()
    except OSError:
        return
