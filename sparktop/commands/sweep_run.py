"""Running a sweep from the command line: its monitor, signals, and result files that are always complete."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from sparktop.commands.output import tell, write_file
from sparktop.commands.sweep_line import SweepLine
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

_INTERRUPTED = 130
_EXIT_CODES = dict.fromkeys((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), _INTERRUPTED)

Render = Callable[[SweepResult, str], str]


@dataclass(slots=True)
class Keeper:
    """Writes a result to the store of sweeps, and to the user's output file."""

    stored: Path | None
    output: Path | None
    form: str
    render: Render

    @classmethod
    def open(cls, env: Mapping[str, str], plan: Plan, output: Path | None, form: str, render: Render) -> Self:
        """Reserve a file in the store.

        Raises:
            OutputError: the file cannot be made, and there is no other output for the result.
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
        """Write the current result.

        Raises:
            OutputError: it cannot be written; each file still has its previous content.
        """
        if self.stored is not None:
            save(self.stored, result)
        if self.output is not None:
            write_file(self.output, self.render(result, self.form))

    def finish(self, result: SweepResult) -> None:
        """Write the final result, and print where it is.

        Raises:
            OutputError: it cannot be written.
        """
        self.keep(result)
        places = [clean(path, 300) for path in (self.stored, self.output) if path is not None]
        tell(f"kept in {' and in '.join(places)}")


async def make_sweep(plan: Plan, watch: Watch, keep: Callable[[SweepResult], None]) -> SweepResult:
    """Run a sweep with a monitor of its own; a first signal cancels it, a second ends the program."""
    store = Store(watch)
    monitor = Monitor(watch, store)
    runner = SweepRunner(plan, store, models=watch.models, save=keep)
    line = SweepLine(live=_is_live(), width=shutil.get_terminal_size().columns)
    runner.listen(line.hear)

    def interrupt(_: signal.Signals) -> None:
        runner.cancel("interrupted")
        undo()

    undo = hear(_EXIT_CODES, interrupt)
    await monitor.start()
    try:
        return await runner.run()
    finally:
        await monitor.stop()
        undo()


def _is_live() -> bool:
    """Return True if standard error is a terminal that understands escape sequences."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
