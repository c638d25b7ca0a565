"""A rehearsal that is recorded while it is played."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparktop.recording.recorder import Recorder
from sparktop.store.store import Journals
from stage.rehearsal import Rehearsal


@contextmanager
def recorded_to(
    path: Path, *, before_s: float = 0.0, **played: object
) -> Iterator[tuple[Rehearsal, Recorder]]:
    """Yield a rehearsal with the settings `played`, recorded from second `before_s` on, and its recorder."""
    journal = Journals()
    live = Rehearsal(**played, journal=journal)  # type: ignore[arg-type]  # settings, by name
    if before_s:
        live.play(before_s)
    recorder = Recorder(live.watch, next_path=lambda _: path)
    journal.add(recorder)
    recorder.start(live.store)
    yield live, recorder
    recorder.stop("quit")
