"""Measures how long an engine has held requests without any progress.

Progress is any change of a counter, of the numbers of a histogram, of the running requests or of the exact
use of the KV cache. Each engine core (lane) of a server is measured on its own, because one may hang while
the others serve. SGLang is an exception: its ranks at rest keep an old number of running requests.
"""

from __future__ import annotations

from collections.abc import Hashable
from operator import attrgetter

from sparktop.model.engine import LANE_COUNTERS, LANE_HISTOGRAMS, EngineSample, LaneSample
from sparktop.values import dataclass

WAITING_HELD_S = 60.0
"""Waiting requests count as held by the engine if none has run for so many seconds."""
STALE_S = 30.0
"""SGLang refreshes its number of running requests only after so many seconds at rest."""

_read_marks = attrgetter("running", "kv_cache_percent", "engine_work", *LANE_COUNTERS)
_read_histograms = attrgetter(*LANE_HISTOGRAMS)


@dataclass(slots=True)
class _LaneClock:
    """The standstill of one engine core."""

    marks: Hashable = None
    moved_at: float = 0.0
    """Time of the last progress, or of the first sample with requests after a time without."""
    seconds: float = 0.0
    waited_s: float | None = None
    """Seconds for which requests have waited while none ran; None while none wait, or some run."""
    held: bool = False
    """Whether the engine held requests at the newest sample."""

    def note(self, at: float, passed_s: float, marks: Hashable, lane: LaneSample) -> None:
        """Add a sample `passed_s` seconds after the one before; 0 if samples are missing between them."""
        if lane.running or not lane.waiting:
            self.waited_s = None
        else:
            self.waited_s = 0.0 if self.waited_s is None else self.waited_s + passed_s
        held = bool(lane.running) or (self.waited_s is not None and self.waited_s >= WAITING_HELD_S)
        if held and self.held and marks == self.marks and not lane.asleep:
            self.seconds += passed_s
        else:
            self.marks, self.moved_at, self.seconds = marks, at, 0.0
        self.held = held


class StandstillClock:
    """Measures how long a server has held requests without any progress."""

    def __init__(self) -> None:
        """Start without a sample. A new process of the engine needs a new clock."""
        self.made_token = False
        """Whether a token was made since the engine's process started, by its counters."""
        self.seconds = 0.0
        """Seconds without progress while requests were held, of the engine core that stands longest; without
        times in which samples are missing."""
        self.moved_at = 0.0
        """Time of the last progress of this engine core."""
        self.lane: LaneSample | None = None
        """The newest sample of this engine core."""
        self.may_be_stale = False
        """Whether the number of running requests may be an old one."""
        self._lanes: dict[str, _LaneClock] = {}
        self._at: float | None = None

    def note(self, sample: EngineSample, missed_after_s: float) -> None:
        """Add a sample; if it comes later than `missed_after_s` after the last, samples are missing.

        A time with missing samples is neither progress nor evidence of a standstill.
        """
        gap_s = 0.0 if self._at is None else sample.at - self._at
        passed_s = gap_s if gap_s <= missed_after_s else 0.0
        self._at = sample.at
        marks = {lane.lane: _marks(lane) for lane in sample.lanes}
        self.made_token = self.made_token or any(lane.generation_tokens for lane in sample.lanes)
        sglang = sample.engine == "sglang"
        common: Hashable = tuple(marks.values()) if sglang and len(marks) > 1 else None
        for lane in sample.lanes:
            clock = self._lanes.setdefault(lane.lane, _LaneClock())
            clock.note(sample.at, passed_s, common or marks[lane.lane], lane)
        self._lanes = {name: self._lanes[name] for name in marks}
        longest = max(sample.lanes, key=lambda lane: self._lanes[lane.lane].seconds)
        clock = self._lanes[longest.lane]
        self.lane, self.seconds, self.moved_at = longest, clock.seconds, clock.moved_at
        alone_stale = clock.seconds < STALE_S + missed_after_s and not longest.waiting
        self.may_be_stale = sglang and (alone_stale if len(marks) == 1 else not longest.waiting)


def _marks(lane: LaneSample) -> Hashable:
    """Return everything of a lane that changes when it makes progress."""
    counted = [(one.count, one.sum) for one in _read_histograms(lane) if one is not None]
    return (*_read_marks(lane), *counted, *sorted(lane.finished.items()))
