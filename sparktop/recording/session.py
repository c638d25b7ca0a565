"""The recordings of one viewer: the flight recorder, and a recording that the user starts and stops."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sparktop.errors import OutputError
from sparktop.model.event import Severity
from sparktop.model.instant import Countdown, Instant
from sparktop.model.targets import Watch
from sparktop.model.text import clean, free_name, reason_of, shown_path
from sparktop.recording.flight import (
    PART_S,
    Incidents,
    flight_folder,
    incident_folder,
    last_end,
    make_folder,
    part_path,
    retain,
)
from sparktop.recording.frames import SUFFIX, load_zstd
from sparktop.recording.recorder import Recorder, RecordingFile
from sparktop.stopping import on_signals
from sparktop.store import Store
from sparktop.store.store import Call, Change, Journals
from sparktop.watch.monitor import Monitor
from sparktop.watch.reachable import reporting

if TYPE_CHECKING:  # a start without a sweep needs none of it
    from sparktop.model.snapshot import Snapshot
    from sparktop.model.sweep import SweepView
    from sparktop.recording.past import Band

MIB = 1 << 20
DAY_S = 86_400.0
_CHECK_S = 0.1
"""Seconds between two checks of whether a recording without a screen is to end."""
SWEEP_EVERY_S, ENDED_SWEEP_EVERY_S = 2.0, 60.0
"""Seconds between two records of the sweep on the board while it runs, and after its end."""
_SUBJECT = "recorder"


class Recordings:
    """The flight recorder and the user's recording of one store.

    The store must be created with `journal`, which passes its calls on to both.
    """

    def __init__(self, watch: Watch, *, flight: bool, env: Mapping[str, str]) -> None:
        """Prepare the recordings; `flight` is whether `start` is to start the flight recorder."""
        self.journal = Journals()
        self.journal.add(self)
        self.band: Callable[[], Band] = lambda: None
        """Returns what the sweep's panel on the board shows at present."""
        self._sweep: SweepView | None = None
        self._sweep_at = 0.0
        self._watch = watch
        self._env = env if flight else None
        self._flight: Recorder | None = None
        self._own: Recorder | None = None
        self.own_path: Path | None = None
        """File of the user's recording while it runs, None otherwise."""
        self._incidents: Incidents | None = None
        self._store: Store | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def _add_event(self, message: str, severity: Severity = Severity.WARNING) -> None:
        if self._store is not None:
            self._store.note(_SUBJECT, message, severity)

    def _report(self, message: str, severity: Severity = Severity.WARNING) -> None:
        """Add a message to the store's events; callable in any thread, once `start` has been called."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: there is no screen any more
                self._loop.call_soon_threadsafe(self._add_event, message, severity)

    async def start(self, store: Store) -> None:
        """Start the flight recorder if it is enabled; add an event if an earlier run ended unexpectedly."""
        self._store, self._loop = store, asyncio.get_running_loop()
        if self._env is None:
            return
        folder = flight_folder(self._env)
        try:
            load_zstd()
            await asyncio.to_thread(make_folder, folder)
        except OSError as error:
            self._add_event(f"the flight recorder is off: {clean(folder, 200)}: {reason_of(error)}")
            return
        except OutputError as error:
            self._add_event(f"the flight recorder is off: {error}")
            return
        await asyncio.to_thread(self._report_unexpected_end, folder)
        limit = self._watch.flight_mib * MIB
        incidents = Incidents(incident_folder(folder), self._watch.incidents, self._report)
        store.listen_events(incidents.on_event)

        def next_path(instant: Instant) -> Path:
            make_folder(folder)  # it may have been deleted meanwhile
            return part_path(folder, instant)

        def on_part(path: Path) -> None:
            incidents.on_part(path)
            retain(folder, limit, datetime.now(UTC))

        self._incidents = incidents
        self._flight = Recorder(
            self._watch,
            next_path=next_path,
            part_s=PART_S,
            on_problem=self._report,
            on_part=on_part,
            on_written=incidents.on_written,
        )
        self.journal.add(self._flight)
        self._flight.start(store)

    def _report_unexpected_end(self, folder: Path) -> None:
        from sparktop.recording.records import boot_id  # late, and in a thread: it loads pydantic

        ended = last_end(folder, boot_id())
        if ended is None:
            return
        path, at, is_same_boot = ended
        when = f"{at.astimezone():%Y-%m-%d %H:%M:%S}"
        end_words = "sparktop was killed" if is_same_boot else "this machine went down without a shutdown"
        self._report(f"{end_words} at {when}: sparktop replay {clean(path, 200)} shows the minutes before")

    @property
    def notice(self) -> str | None:
        """Text for the screen's header while the user's recording runs; None otherwise."""
        return "recording" if self._own is not None else None

    def now(self) -> Instant:
        """Return the present time, on the monotonic and on the wall clock."""
        return Instant(time.monotonic(), datetime.now(UTC))

    async def toggle(self, folder: Path) -> str:
        """Start a recording in `folder`, or stop the one that runs; return a line for the user."""
        store = self._store
        if store is None:
            return "nothing to record yet"
        if self._own is not None and self.own_path is not None:
            path, own_recorder = self.own_path, self._own
            await asyncio.to_thread(self._end_own, "stopped")
            if not _has_content(path):
                return f"nothing was recorded in {clean(path, 200)}: {own_recorder.problem or 'no reading'}"
            lost = f"; its end is missing: {own_recorder.problem}" if own_recorder.problem is not None else ""
            return f"recorded {shown_path(path)}{lost}"
        path = folder / f"sparktop-{datetime.now().astimezone():%Y%m%d-%H%M%S}{SUFFIX}"
        try:
            load_zstd()
            path.touch(mode=0o600, exist_ok=False)
        except OSError as error:
            return f"not recorded: {clean(path, 200)}: {reason_of(error)}"
        except OutputError as error:
            return f"not recorded: {error}"
        self._own = Recorder(self._watch, next_path=lambda _: path, on_problem=self._report)
        self.own_path = path
        self.journal.add(self._own)
        self._own.start(store)
        return f"recording to {shown_path(path)}"

    def write(self, instant: Instant, call: Call) -> None:
        """Record the view of the sweep on the board after each judgement of the store; do not raise.

        `call` itself is not recorded here: the recorders do that. A running sweep's view is recorded every
        `SWEEP_EVERY_S` seconds, and one that has ended every `ENDED_SWEEP_EVERY_S` seconds.
        """
        if call.change is not Change.JUDGE:
            return
        band, recorded = self.band(), self._sweep
        view = None if isinstance(band, Countdown) else band
        if view is recorded:
            return
        if view is not None and recorded is not None and view.status is recorded.status:
            every_s = ENDED_SWEEP_EVERY_S if view.status.over else SWEEP_EVERY_S
            if instant.at - self._sweep_at < every_s:
                return
        self._sweep, self._sweep_at = view, instant.at
        for recorder in (self._flight, self._own):
            if recorder is not None:
                recorder.sweep(instant, view)

    def mark(self, instant: Instant, word: str) -> None:
        """Write a mark, with the user's text `word`, to all running recordings, and add it to the events."""
        for recorder in (self._flight, self._own):
            if recorder is not None:
                recorder.mark(instant, word)
        if self._store is not None:
            self._store.note("mark", clean(word, 200) or "mark")

    def _end_own(self, reason: str) -> None:
        if self._own is not None:
            self.journal.remove(self._own)
            self._own.stop(reason)
            self._own = self.own_path = None

    def stop(self, reason: str) -> None:
        """Write the remaining records and `reason`, the reason of the end; end all recordings."""
        self._end_own(reason)
        if self._flight is not None:
            self.journal.remove(self._flight)
            self._flight.stop(reason)
            self._flight = None
        if self._incidents is not None:
            self._incidents.finish()
            self._incidents = None


class RecordedMonitor(Monitor):
    """A monitor whose store is recorded while it runs."""

    def __init__(self, watch: Watch, store: Store, recordings: Recordings) -> None:
        """Watch what `watch` defines, deliver to `store`, and run `recordings` meanwhile."""
        super().__init__(watch, store)
        self._recordings = recordings
        self._recorded = store

    async def start(self) -> None:
        """Start all polling, then the recordings."""
        await super().start()
        await self._recordings.start(self._recorded)

    async def stop(self) -> None:
        """Stop all polling, then the recordings."""
        await super().stop()
        await asyncio.to_thread(self._recordings.stop, "quit")


class RecordingFiles:
    """The files of one recording: the one that was asked for, then others beside it with the next numbers."""

    def __init__(self, path: Path) -> None:
        """Begin with the file `path`, which may exist: then it is continued."""
        self._first = path
        self._begun: list[Path] = []

    def next_path(self, _: Instant) -> Path:
        """Return the path of the next file: "night.2.rec.zst" after "night.rec.zst".

        Numbers of files that exist are passed over. A file into which nothing could be written is returned
        once more.
        """
        if not self._begun:
            self._begun.append(self._first)
        elif _has_content(self._begun[-1]):
            stem = self._first.name.removesuffix(SUFFIX)
            taken = {stem, *(path.name.removesuffix(SUFFIX) for path in self._first.parent.iterdir())}
            self._begun.append(self._first.with_name(f"{free_name(stem, taken, '{}.{}')}{SUFFIX}"))
        return self._begun[-1]

    @property
    def written(self) -> list[Path]:
        """The files that hold something."""
        return [path for path in self._begun if _has_content(path)]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(path.stat().st_size for path in self._begun if path.exists())


async def record(
    watch: Watch,
    path: Path,
    report: Callable[[str], None],
    incidents: Path,
    limits: tuple[float | None, int | None] = (None, None),
) -> tuple[list[Path], str | None, Snapshot]:
    """Watch and record into `path` until Ctrl+C, SIGTERM or one of `limits`.

    `limits` are seconds, and bytes of all files. Return (the files that it wrote, why the end is missing;
    None for a complete recording, the last snapshot).

    After a day or a GiB a file with the next number begins beside it. The minutes around chosen alerts are
    saved in the folder `incidents`, too. `report` receives lines for the user; it is called in any thread.

    Raises:
        OutputError: the file cannot be written.
    """
    _check_writable(path)  # fails before anything is watched
    files, signalled = RecordingFiles(path), asyncio.get_running_loop().create_future()

    def end(number: signal.Signals) -> None:
        if not signalled.done():
            signalled.set_result(number.name)

    undo = on_signals({signal.SIGINT: 130, signal.SIGTERM: 0}, end)
    saved = Incidents(incidents, watch.incidents, lambda message, _: report(message))
    recorder = Recorder(
        watch,
        next_path=files.next_path,
        part_s=DAY_S,
        on_problem=report,
        on_part=saved.on_part,
        on_written=saved.on_written,
    )
    store = Store(watch, journal=recorder)
    store.listen_events(saved.on_event)
    recorder.start(store)
    monitor = Monitor(watch, store)
    began_s = asyncio.get_running_loop().time()
    await monitor.start()
    report(f"recording to {clean(path, 300)}; Ctrl+C ends it")
    reason = "ended"
    try:
        async with reporting(store, watch, report):
            reason = await _reason_to_end(files, began_s, limits, signalled)
    finally:
        await monitor.stop()
        await asyncio.to_thread(recorder.stop, reason)
        await asyncio.to_thread(saved.finish)
        undo()
    if recorder.problem is not None:
        report(f"the end was not recorded: {recorder.problem}")
    return files.written, recorder.problem, store.snapshot()


def _check_writable(path: Path) -> None:
    """Check that a recording can be written to `path`.

    Raises:
        OutputError: it cannot.
    """
    if not path.parent.is_dir():
        raise OutputError(f"{clean(path)}: there is no folder {clean(path.parent)}")
    load_zstd()
    with closing(RecordingFile(path)) as file:
        file.check_room()


async def _reason_to_end(
    files: RecordingFiles,
    began_s: float,
    limits: tuple[float | None, int | None],
    signalled: asyncio.Future[str],
) -> str:
    """Wait until a recording is to end; return the name of the signal, or which limit is reached.

    It began at `began_s` on the event loop's clock.
    """
    most_s, most_bytes = limits
    while not signalled.done():
        if most_s is not None and asyncio.get_running_loop().time() - began_s >= most_s:
            return "time is up"
        if most_bytes is not None and files.size >= most_bytes:
            return "size is reached"
        await asyncio.wait({signalled}, timeout=_CHECK_S)
    return signalled.result()


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
