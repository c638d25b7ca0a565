"""Runs a sweep from the command line, and saves its result after each level."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from msgspec import Struct

from sparktop.commands.output import tell, write_file
from sparktop.commands.sweep.progress import SweepLine
from sparktop.ending import hear
from sparktop.errors import OutputError
from sparktop.model.targets import Watch
from sparktop.model.text import clean
from sparktop.store import Store
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.result.store import new_file, save, sweeps_folder
from sparktop.sweep.run.runner import SweepRunner
from sparktop.watch.monitor import Monitor
from sparktop.watch.state_files import announced_load

_INTERRUPTED = 130
_EXIT_CODES = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), _INTERRUPTED)

Render = Callable[[SweepResult, str], str]


class Keeper(Struct):
    """Writes the result of a sweep to a file in the store of sweeps, and to the user's output file."""

    stored: Path | None
    output: Path | None
    form: str
    render: Render

    @classmethod
    def open(cls, env: Mapping[str, str], plan: Plan, output: Path | None, form: str, render: Render) -> Self:
        """Create an empty file in the store and return the keeper.

        If no file can be made, print why and write only to `output`.

        Raises:
            OutputError: no file can be made in the store, and there is no `output`.
        """
        try:
            stored = new_file(sweeps_folder(env), datetime.now(UTC), plan.preset or "sweep")
        except OutputError as error:
            if output is None:
                raise
            tell(str(error))
            stored = None
        return cls(stored, output, form, render)

    def keep(self, result: SweepResult) -> None:
        """Write the result of the sweep, complete or not, to the store and the output file.

        Raises:
            OutputError: a file cannot be written; it keeps its previous content.
        """
        if self.stored is not None:
            save(self.stored, result)
        if self.output is not None:
            write_file(self.output, self.render(result, self.form))

    def finish(self, result: SweepResult) -> None:
        """Write the final result, and print the paths of the written files to standard error.

        Raises:
            OutputError: a file cannot be written.
        """
        self.keep(result)
        places = [clean(path, 300) for path in (self.stored, self.output) if path is not None]
        tell(f"kept in {' and in '.join(places)}")


async def make_sweep(plan: Plan, watch: Watch, keep: Callable[[SweepResult], None]) -> SweepResult:
    """Run a sweep, with a monitor that polls the targets meanwhile, and return its result.

    `keep` is called with the result so far. A first signal (Ctrl+C, SIGTERM, SIGHUP) cancels the sweep, whose
    result is then partial; a second one ends the program.
    """
    store = Store(watch)
    monitor = Monitor(watch, store)
    runner = SweepRunner(plan, store, models=watch.models, save=keep)
    line = SweepLine(live=_is_live(), width=shutil.get_terminal_size().columns)
    line.trace_s = None if plan.trace is None else plan.trace.measured_s
    runner.listen(line.hear)

    def interrupt(_: signal.Signals) -> None:
        runner.cancel("interrupted")
        undo()

    undo = hear(_EXIT_CODES, interrupt)
    await monitor.start()
    try:
        with store.loaded_from_here(plan.loaded), announced_load(plan.loaded_urls):
            return await runner.run()
    finally:
        await monitor.stop()
        undo()


def _is_live() -> bool:
    """Return True if standard error is a terminal that understands escape sequences."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
