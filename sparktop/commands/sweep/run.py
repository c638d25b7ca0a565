"""Runs a sweep from the command line, and saves its result after each level.

Its progress is on standard error: a line per finished level and, on a terminal, a live line.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TextIO

from msgspec.structs import replace

from sparktop.commands.observation import wait_for
from sparktop.commands.output import fold_line, tell, write_file, write_result
from sparktop.ending import INTERRUPTED
from sparktop.errors import OutputError
from sparktop.graphics import numbers
from sparktop.graphics.cells import cell_width
from sparktop.graphics.numbers import duration_words, range_words
from sparktop.model.load import LoadKind
from sparktop.model.sweep import MarkKind, SweepMoment, SweepView
from sparktop.model.targets import EventSettings, Watch
from sparktop.model.text import clean
from sparktop.stopping import on_signals
from sparktop.store import Store
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.plan.watched_targets import others_load
from sparktop.sweep.result.results import LevelResult, Rate, SweepResult
from sparktop.sweep.result.store import new_file, save, sweeps_folder
from sparktop.sweep.run.forecast import forecast, pieces
from sparktop.sweep.run.open_loop import replay_words
from sparktop.sweep.run.progress import (
    GuardSet,
    LevelMeasured,
    Notice,
    PhaseChanged,
    SweepEnded,
    SweepEvent,
)
from sparktop.sweep.run.result_builder import plan_result
from sparktop.sweep.run.runner import SweepRunner
from sparktop.sweep.view.live import LiveView
from sparktop.sweep.view.marks import marks_of
from sparktop.sweep.view.words import conversation_words, main_rate_words
from sparktop.watch.monitor import Monitor
from sparktop.watch.state_files import announced_load, announced_loads

_EXIT_CODES = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), INTERRUPTED)
"""The signals that cancel a sweep, with the exit code of a second one."""

_GLANCE_S = 3.0
"""Longest wait in seconds for the servers' pages before the first request."""

Render = Callable[[SweepResult, str], str]
"""Returns a result as text in a format."""


def measure(plan: Plan, watch: Watch, form: str, output: Path | None, render: Render) -> SweepResult:
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


async def load_of_others(plan: Plan, watch: Watch) -> list[str]:
    """Return what others load of the servers of a plan, a line each, by one poll of each server."""
    watch = replace(watch, nodes=(), events=EventSettings())
    store = Store(watch)
    monitor = Monitor(watch, store)
    await monitor.start()
    try:
        await wait_for(lambda: _have_answered(store), _GLANCE_S, asyncio.Event())
    finally:
        await monitor.stop()
    return others_load(plan, store.snapshot(), announced_loads())


def _have_answered(store: Store) -> bool:
    return all(view.failure is not None or view.age_s is not None for view in store.snapshot().backends)


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
            case GuardSet():
                self._print(event.words)
            case LevelMeasured():
                self._print(level_line(event.target, event.level))
            case SweepEnded():
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


def plan_line(plan: Plan, earlier: Sequence[SweepResult] = ()) -> str:
    """Return in a line what a sweep is about to do: concurrencies, number of requests and duration.

    The duration is by `earlier` results where these fit.
    """
    if plan.trace is not None:
        return "; ".join((replay_words(plan.trace), *pieces(forecast(plan, ()))[1:]))
    expected = forecast(plan, earlier)
    words = (_axis_words(plan, expected.most_concurrency), *plan_result(plan).request_words)
    return f"{', '.join(words)}: {'; '.join(pieces(expected))}"


def _axis_words(plan: Plan, more: int | None) -> str:
    """Return the levels of a plan: "c = 1, 4", "0.5, 1 requests/s (poisson)"."""
    if plan.search_rate:
        return (
            f"rates rise from that of one request at a time until the server falls behind ({plan.arrivals})"
        )
    levels = ", ".join(dict.fromkeys(point.words for point in plan.axis))  # once for all kinds of text
    match plan.kind:
        case LoadKind.RATE:
            return f"{levels} requests/s ({plan.arrivals})"
        case LoadKind.CONCURRENCY:
            return f"c = {levels} requests at once" + (
                "" if more is None else f", then up to {more} while tok/s rise"
            )
        case kind:
            workload = "" if plan.conversations is None else f" (workload {plan.conversations.name})"
            return f"{levels} {kind.value}{workload}"


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
        parts.append(f"{duration_words(moment.trace_at_s)} of {duration_words(moment.trace_s)}")
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
        parts.append(f"{level.requests.failed} of {level.requests.ended} failed")
    marks = marks_of(level)
    words = {kind: dict.fromkeys(mark.word for mark in marks if mark.kind is kind) for kind in MarkKind}
    return parts + [f"{kind.value}: {', '.join(of_kind)}" for kind, of_kind in words.items() if of_kind]
