"""Keeps what NCCL answered about the ranks of each backend, with the verdict on it."""

from __future__ import annotations

from collections import deque
from urllib.parse import urlsplit

from sparktop.analysis.ranks import judge_ranks
from sparktop.model.event import Event, Severity
from sparktop.model.instant import Instant
from sparktop.model.ranks import RanksReading, RanksVerdict, RanksView
from sparktop.store.sources import SourceKey
from sparktop.store.tracks import Tracks

_STILL_S = 5.0
"""Seconds without progress from which on an engine stands still: from then on answers are evidence."""
_MOST_READINGS = 24
"""Readings that are kept of one backend."""
_SHOWN_S = 1800.0
"""Seconds after the last query for which its result is shown."""
_WAITS_S = 60.0
"""Seconds after which a query without an answer counts as abandoned."""
_SAME_ROUND_S = 60.0
"""Queries less than this apart are announced as one event."""


class RankVerdicts:
    """Keeps the readings about the ranks of each backend that was asked about, and judges them."""

    def __init__(self, tracks: Tracks) -> None:
        """Start without readings. `tracks` are those of all watched sources."""
        self._tracks = tracks
        self._readings: dict[str, deque[RanksReading]] = {}
        self._announced: dict[str, str] = {}

    def pass_on_apart(self) -> None:
        """Pass the ranks that lag or are missing to the tracks, before their progress is judged."""
        for name, track in self._tracks.backends.items():
            track.ranks_apart = self.ranks_apart(name)

    def add(self, key: SourceKey, reading: RanksReading, when: Instant) -> list[Event]:
        """Add a reading about a backend.

        Return events: that NCCL is asked, and that ranks are apart.
        """
        readings = self._readings.setdefault(key.name, deque(maxlen=_MOST_READINGS))
        before = readings[-1].at if readings else None
        readings.append(reading)
        about = f"{key.label}:ranks"
        events = []
        if before is None or reading.at - before > _SAME_ROUND_S:
            self._announced.pop(key.name, None)
            asked = f"NCCL on {reading.node} is asked about its ranks"
            events.append(Event(when.wall, Severity.INFO, key.name, asked, at_s=when.at, about=about))
        verdict = self._verdict(key.name)
        if verdict.apart is not None and self._announced.get(key.name) != verdict.apart:
            self._announced[key.name] = verdict.apart
            message = f"{verdict.word.value}: {verdict.apart}"
            values = {"answers": float(verdict.answers), "window_s": verdict.span_s}
            events.append(Event(when.wall, Severity.WARNING, key.name, message, values, when.at, about))
        return events

    def still_since(self, name: str) -> float | None:
        """Return the time of a backend's last progress if it holds requests and makes none; else None."""
        track = self._tracks.backends.get(name)
        clock = None if track is None else track.standstill
        return None if clock is None or clock.seconds < _STILL_S else clock.moved_at

    def ranks_apart(self, name: str) -> str | None:
        """Return which ranks of a backend lag or are missing, as a sentence; None without such a verdict."""
        return self._verdict(name).apart if name in self._readings else None

    def view(self, name: str, at: float) -> RanksView | None:
        """Return what is shown about the ranks of a backend at the time `at`; None if NCCL was not asked."""
        readings = self._readings.get(name)
        if not readings or at - readings[-1].at > _SHOWN_S:
            return None
        newest = readings[-1]
        begun = newest.answer is None and newest.problem is None
        answered = next((reading for reading in reversed(readings) if reading.answer is not None), None)
        return RanksView(
            verdict=self._verdict(name),
            age_s=max(0.0, at - newest.at),
            asking=begun and at - newest.at < _WAITS_S,
            node=newest.node,
            answer=None if answered is None else answered.answer,
            warning=None if answered is None else answered.warning,
            names=self._node_by_address(),
        )

    def forget(self, name: str) -> None:
        """Forget all readings about a backend."""
        for by_name in (self._readings, self._announced):
            by_name.pop(name, None)

    def _verdict(self, name: str) -> RanksVerdict:
        names = self._node_by_address()

        def machine_name(host: str | None) -> str:
            return "an unknown machine" if host is None else names.get(host, host)

        return judge_ranks(self._readings[name], self.still_since(name), machine_name)

    def _node_by_address(self) -> dict[str, str]:
        """Return the names of the watched nodes by each of their addresses."""
        names: dict[str, str] = {}
        for name, track in self._tracks.nodes.items():
            identity, host = track.view.identity, urlsplit(track.target.url or "").hostname
            for address in (host, identity.hostname, *identity.addresses):
                if address:
                    names.setdefault(address, name)
        return names
