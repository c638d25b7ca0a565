"""The load over time of each lane of a server, for servers with 2 to 16 lanes.

A lane is one engine core (data-parallel rank) of a server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sparktop.model.engine import LaneSample
from sparktop.model.snapshot import LaneHistory
from sparktop.rates.tally import LIVE_SPAN_S, MISSED_INTERVALS
from sparktop.store.load_log import LoadLog

MOST_LANES = 16
"""With more lanes than this, the load of no lane is recorded: the histories would cost more than they
show."""


class LaneLogs:
    """The load over time of each engine core (lane) of a server.

    Nothing is recorded for a server with a single lane or with more than `MOST_LANES`.
    """

    def __init__(self) -> None:
        """Start without lanes."""
        self.logs: dict[str, LoadLog] = {}
        """Load logs by lane name."""
        self._rates: dict[str, LaneRate] = {}

    def note(
        self, at: float, lanes: Sequence[LaneSample], *, continues: bool, interval_s: float
    ) -> dict[str, LaneHistory]:
        """Add the samples of all engine cores (lanes) at `at`; return the history of each lane by lane name.

        The result is empty if the server has a single lane or too many. `continues` is False if the server
        restarted or another server answered since the previous sample.
        """
        if not continues or not 1 < len(lanes) <= MOST_LANES:
            self._rates.clear()
        if not 1 < len(lanes) <= MOST_LANES:
            self.logs.clear()
            return {}
        for gone in self.logs.keys() - {lane.lane for lane in lanes}:
            self.logs[gone].gap(at)
        histories: dict[str, LaneHistory] = {}
        for lane in lanes:
            log = self.logs.get(lane.lane)
            known = log is not None and continues
            if log is None:
                log = self.logs[lane.lane] = LoadLog()
            rate = self._rates.setdefault(lane.lane, LaneRate())
            tokens = None if lane.per_finished_request else lane.generation_tokens
            log.note(at, (lane,), rate.note(at, tokens, MISSED_INTERVALS * interval_s), continues=known)
            histories[lane.lane] = log.history()
        return histories

    def gap(self, at: float) -> None:
        """Add a gap at `at` for every engine core (lane), because the server did not answer."""
        for log in self.logs.values():
            log.gap(at)


class LaneRate:
    """The generated tokens per second of one engine core (lane), over about the last second."""

    def __init__(self) -> None:
        """Start without samples."""
        self._recent: deque[tuple[float, float]] = deque()

    def note(self, at: float, tokens: float | None, widest_s: float) -> float | None:
        """Add the token counter `tokens` of a sample; return the rate in tokens/s.

        Return None if the counter is unknown, or until the samples span a second. Earlier samples are
        forgotten if the counter fell or the previous sample is more than `widest_s` seconds old.
        """
        recent = self._recent
        if tokens is None or (recent and (tokens < recent[-1][1] or at - recent[-1][0] > widest_s)):
            recent.clear()
        if tokens is None:
            return None
        recent.append((at, tokens))
        while len(recent) > 2 and at - recent[1][0] >= LIVE_SPAN_S:  # noqa: PLR2004 - a sample at each end
            recent.popleft()
        took_s = at - recent[0][0]
        return (tokens - recent[0][1]) / took_s if took_s >= LIVE_SPAN_S else None
