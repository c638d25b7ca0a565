"""A recorded rehearsal for reports: a router swings and a server stops answering."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sparktop.demo.scenario import SCENARIOS
from sparktop.model.instant import Instant
from sparktop.model.snapshot import Snapshot
from sparktop.moments.moment import Moment, read_moment
from sparktop.recording import recorder as recorder_module
from sparktop.recording.player import Recording, Span
from stage.rehearsal import START, Outage
from tests.recording.recorded import recorded_to

PLAYED_S, OUTAGE_S, MARK_S = 160, 130, 90
FRAME_S = 10.0
"""Many short frames instead of a few of a minute."""
MARK = "new `prompt` <b>"


@dataclass(frozen=True)
class Recorded:
    """The path of a recording, and the live snapshot of each second."""

    path: Path
    live: tuple[Snapshot, ...]

    def moment(self, start: float | None = None, end: float | None = None) -> Moment:
        """Return the moment between two times in seconds from the start."""
        recording = Recording([self.path])
        found = read_moment(recording, Span(*(None if at is None else wall(at) for at in (start, end))))
        recording.close()
        return found


def wall(at: float) -> datetime:
    """Return the time `at` seconds after the start of a rehearsal."""
    return START + timedelta(seconds=at)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Record 160 seconds of two servers behind a swinging router; the first is gone after 130 seconds."""
    path = tmp_path_factory.mktemp("moments") / "swing.rec.zst"
    scene, outage = SCENARIOS["oscillation"], Outage(0, OUTAGE_S)
    shown = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder_module, "FRAME_S", FRAME_S)
        with recorded_to(path, nodes=2, scenario=scene, outage=outage) as (live, recorder):
            for second in range(1, PLAYED_S + 1):
                shown.append(live.play(1.0).snapshot())
                if second == MARK_S:
                    recorder.mark(Instant(live.now_s, wall(live.now_s)), MARK)
    return Recorded(path, tuple(shown))
